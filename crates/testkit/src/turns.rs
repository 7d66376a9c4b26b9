//! A backend whose turns a test writes as code: for what no model could be made to say.

use std::path::Path;
use std::sync::Arc;

use engine::{
    Abilities, Backend, BackendSession, BoxFuture, Category, Choice, MODE, SessionContext, SessionSpec,
    SettingSpec, Stop, TurnContext, TurnError, TurnInput, approval_spec,
};

type Play = dyn Fn(TurnInput, TurnContext) -> BoxFuture<'static, Result<Stop, TurnError>> + Send + Sync;

pub struct Turns {
    abilities: Abilities,
    play: Arc<Play>,
}

impl Turns {
    /// Every turn of every session is one call of `play`.
    pub fn new<F>(play: impl Fn(TurnInput, TurnContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Stop, TurnError>> + Send + 'static,
    {
        let abilities = Abilities {
            settings: vec![mode_spec(), approval_spec()],
            commands: Vec::new(),
            tools: Vec::new(),
            images: true,
            servers: false,
        };
        Self { abilities, play: Arc::new(move |input, context| Box::pin(play(input, context))) }
    }
}

fn mode_spec() -> SettingSpec {
    let choice = |value: &str| Choice { value: value.into(), name: value.into(), description: "".into() };
    SettingSpec {
        id: MODE.into(),
        name: "Mode".into(),
        description: "".into(),
        category: Category::Mode,
        choices: vec![choice("code"), choice("ask")],
        default: "code".into(),
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
