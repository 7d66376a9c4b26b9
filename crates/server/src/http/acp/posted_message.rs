//! The body of one POST, parsed as a message once.
//!
//! The shape of the reply depends on the message, so the body has to be parsed before it is handed on; and
//! it may be many megabytes of images, so it is not parsed twice. A body that is a batch is not a message.

use std::sync::OnceLock;

use wire::{DialectSelection, OwnedRpcMessage, RequestError, RpcId, bernstein};

use crate::connection::ParsedMessage;

pub(in crate::http) struct Post<'a> {
    pub(in crate::http) body: &'a [u8],
    posted: OnceLock<ParsedMessage>,
}

impl<'a> Post<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { body, posted: OnceLock::new() }
    }

    pub(super) fn is_batch(&self) -> bool {
        self.body.trim_ascii_start().starts_with(b"[")
    }

    /// A fault comes with the id to answer it to.
    pub(in crate::http) fn message(&self) -> Result<&OwnedRpcMessage, &(RpcId, RequestError)> {
        self.posted().message.as_ref()
    }

    pub(in crate::http) fn into_posted(self) -> ParsedMessage {
        self.posted.into_inner().unwrap_or_else(|| ParsedMessage::read(self.body))
    }

    pub(super) fn is_bernsteins(&self, spoken: DialectSelection) -> bool {
        if self.is_batch() {
            return bernstein::is_frame(self.body, spoken);
        }
        match self.message() {
            Ok(message) => bernstein::is_message(&message.as_message(), spoken),
            Err(_) => bernstein::is_frame(self.body, spoken),
        }
    }

    fn posted(&self) -> &ParsedMessage {
        self.posted.get_or_init(|| ParsedMessage::read(self.body))
    }
}
