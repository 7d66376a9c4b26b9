//! The body of one request, which is read as a message once.
//!
//! Whose message it is decides in which shape it is answered, so it has to be read before it is handed to anybody; and
//! it may be many megabytes of pictures, so it is not read twice. A body that is several messages is no message.

use std::sync::OnceLock;

use wire::{Fault, OwnedMessage, RpcId, Spoken, bernstein};

use crate::connection::Posted;

pub(in crate::http) struct Post<'a> {
    pub(in crate::http) body: &'a [u8],
    posted: OnceLock<Posted>,
}

impl<'a> Post<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { body, posted: OnceLock::new() }
    }

    pub(super) fn is_batch(&self) -> bool {
        self.body.trim_ascii_start().starts_with(b"[")
    }

    /// A fault comes with the id to answer it to.
    pub(in crate::http) fn message(&self) -> Result<&OwnedMessage, &(RpcId, Fault)> {
        self.posted().message.as_ref()
    }

    pub(in crate::http) fn into_posted(self) -> Posted {
        self.posted.into_inner().unwrap_or_else(|| Posted::read(self.body))
    }

    pub(super) fn is_bernsteins(&self, spoken: Spoken) -> bool {
        if self.is_batch() {
            return bernstein::is_frame(self.body, spoken);
        }
        match self.message() {
            Ok(message) => bernstein::is_message(&message.as_message(), spoken),
            Err(_) => bernstein::is_frame(self.body, spoken),
        }
    }

    fn posted(&self) -> &Posted {
        self.posted.get_or_init(|| Posted::read(self.body))
    }
}
