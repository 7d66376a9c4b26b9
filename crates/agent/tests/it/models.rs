//! Real providers' words through our readers, and ours for them.

mod calls;
mod corpus;
mod encode;
mod errors;
mod fixtures;
mod hostile;
mod recorded;

use agent::{Decoder, ModelError, ModelEvent, ModelStop, Native, Wire};
use engine::Usage;

/// A reply as it was read.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    thinking: String,
    /// Id, name, arguments.
    calls: Vec<(String, String, String)>,
    native: Option<Native>,
    usage: Option<Usage>,
    stop: Option<ModelStop>,
    error: Option<ModelError>,
    /// `t`ext, t`h`inking and `c`alls in the order in which they came.
    order: String,
}

/// Reads `body`, given in pieces of `size` bytes.
fn hear(wire: Wire, body: &str, size: usize) -> Heard {
    let mut decoder = wire.decoder("test:model");
    let mut heard = Heard::default();
    for piece in body.as_bytes().chunks(size.max(1)) {
        if heard.error.is_none() && !decoder.ended() {
            take(&mut heard, |events| decoder.push(piece, events));
        }
    }
    if heard.error.is_none() && !decoder.ended() {
        finish(&mut heard, &mut decoder);
    }
    heard
}

fn finish(heard: &mut Heard, decoder: &mut Decoder) {
    take(heard, |events| decoder.finish(events));
}

fn take(heard: &mut Heard, read: impl FnOnce(&mut Vec<ModelEvent>) -> Result<(), ModelError>) {
    let mut events = Vec::new();
    heard.error = read(&mut events).err();
    for event in events {
        let mark = match event {
            ModelEvent::Text(text) => {
                heard.text.push_str(&text);
                't'
            }
            ModelEvent::Thinking(text) => {
                heard.thinking.push_str(&text);
                'h'
            }
            ModelEvent::ToolCall { id, name, arguments } => {
                heard.calls.push((id, name, arguments));
                'c'
            }
            ModelEvent::Native(native) => {
                heard.native = Some(native);
                continue;
            }
            ModelEvent::Usage(usage) => {
                heard.usage = Some(usage);
                continue;
            }
            ModelEvent::Done { stop } => {
                heard.stop = Some(stop);
                continue;
            }
            ModelEvent::Notice(text) => panic!("a decoder does not wait: {text}"),
        };
        if mark == 'c' || !heard.order.ends_with(mark) {
            heard.order.push(mark);
        }
    }
}
