//! A backend that is one function: every turn of every session is a call of it.
//!
//! It is for agents that keep nothing between turns but what is in the log. An agent that needs more (its own
//! state per session, tool servers, a review) implements [`Backend`] itself.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use crate::backend::{
    Abilities, Backend, BackendSession, BoxFuture, SessionContext, SessionSpec, TurnContext, TurnError,
    TurnInput,
};
use crate::event::Stop;
use crate::settings::approval_spec;

type TurnFunction =
    dyn Fn(TurnInput, TurnContext) -> BoxFuture<'static, Result<Stop, TurnError>> + Send + Sync;

pub struct FunctionBackend {
    abilities: Abilities,
    play: Arc<TurnFunction>,
}

impl FunctionBackend {
    /// Its sessions have one setting: the approval.
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

impl Backend for FunctionBackend {
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
    play: Arc<TurnFunction>,
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
