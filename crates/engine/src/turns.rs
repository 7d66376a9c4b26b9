//! A backend that is one function: every turn of every session is a call of it.
//!
//! For agents that keep nothing between turns but what stands in the log. Whatever needs more (its own
//! state per session, tool servers, a review) is a [`Backend`] of its own.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{
    Abilities, Backend, BackendSession, BoxFuture, SessionContext, SessionSpec, TurnContext, TurnError,
    TurnInput,
};
use crate::event::Stop;
use crate::settings::approval_spec;

type Play = dyn Fn(TurnInput, TurnContext) -> BoxFuture<'static, Result<Stop, TurnError>> + Send + Sync;

pub struct Turns {
    abilities: Abilities,
    play: Arc<Play>,
}

impl Turns {
    /// Its sessions can be told one thing: the approval.
    pub fn new<F>(play: impl Fn(TurnInput, TurnContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Stop, TurnError>> + Send + 'static,
    {
        let abilities = Abilities { settings: vec![approval_spec()], ..Abilities::default() };
        Self { abilities, play: Arc::new(move |input, context| Box::pin(play(input, context))) }
    }

    /// The same for an agent that can do this.
    pub fn with(self, abilities: Abilities) -> Self {
        Self { abilities, ..self }
    }
}

impl Backend for Turns {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn open(&self, _spec: SessionSpec, _context: SessionContext) -> Arc<dyn BackendSession> {
        Arc::new(TurnsSession { play: Arc::clone(&self.play) })
    }

    fn project_rules(&self, _cwd: &Path) -> Vec<String> {
        Vec::new()
    }
}

struct TurnsSession {
    play: Arc<Play>,
}

impl BackendSession for TurnsSession {
    fn turn(
        self: Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> BoxFuture<'static, Result<Stop, TurnError>> {
        (self.play)(input, context)
    }
}
