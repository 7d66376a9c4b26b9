//! Real providers' words through our readers, and ours for them.

mod calls;
mod corpus;
mod encode;
mod errors;
mod fixtures;
mod hostile;
mod recorded;

use agent::{Decoder, ModelError, ModelEvent, ModelStop, NativeReply, Wire};
use engine::Usage;

/// A reply as it was read.
#[derive(Debug, Default, PartialEq)]
struct DecodedReply {
    text: String,
    thinking: String,
    /// Id, name, arguments.
    calls: Vec<(String, String, String)>,
    native: Option<NativeReply>,
    usage: Option<Usage>,
    stop: Option<ModelStop>,
    error: Option<ModelError>,
    /// `t`ext, t`h`inking and `c`alls in the order in which they came.
    order: String,
}

/// Reads `body`, given in pieces of `size` bytes.
fn hear(wire: Wire, body: &str, size: usize) -> DecodedReply {
    let mut decoder = wire.decoder("test:model");
    let mut reply = DecodedReply::default();
    for piece in body.as_bytes().chunks(size.max(1)) {
        if reply.error.is_none() && !decoder.ended() {
            take(&mut reply, |events| decoder.push(piece, events));
        }
    }
    if reply.error.is_none() && !decoder.ended() {
        finish(&mut reply, &mut decoder);
    }
    reply
}

fn finish(reply: &mut DecodedReply, decoder: &mut Decoder) {
    take(reply, |events| decoder.finish(events));
}

fn take(reply: &mut DecodedReply, read: impl FnOnce(&mut Vec<ModelEvent>) -> Result<(), ModelError>) {
    let mut events = Vec::new();
    reply.error = read(&mut events).err();
    for event in events {
        let mark = match event {
            ModelEvent::Text(text) => {
                reply.text.push_str(&text);
                't'
            }
            ModelEvent::Thinking(text) => {
                reply.thinking.push_str(&text);
                'h'
            }
            ModelEvent::ToolCall { id, name, arguments } => {
                reply.calls.push((id, name, arguments));
                'c'
            }
            ModelEvent::Native(native) => {
                reply.native = Some(native);
                continue;
            }
            ModelEvent::Usage(usage) => {
                reply.usage = Some(usage);
                continue;
            }
            ModelEvent::Done { stop } => {
                reply.stop = Some(stop);
                continue;
            }
            ModelEvent::Notice(text) => panic!("a decoder does not wait: {text}"),
        };
        if mark == 'c' || !reply.order.ends_with(mark) {
            reply.order.push(mark);
        }
    }
}
