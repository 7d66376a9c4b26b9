//! A backend whose turns a test writes as code: for what no model could be made to say.

use std::path::Path;
use std::sync::Arc;

use engine::{
    Abilities, Backend, BackendSession, Category, Choice, MODE, SessionContext, SessionSpec, SettingSpec,
    Stop, TurnContext, TurnError, TurnInput, approval_spec,
};

/// The plain one, with modes and images.
pub struct Turns(engine::FunctionBackend);

impl Turns {
    /// Every turn of every session is one call of `play`.
    pub fn new<F>(play: impl Fn(TurnInput, TurnContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Stop, TurnError>> + Send + 'static,
    {
        let settings = vec![mode_spec(), approval_spec()];
        Self(engine::FunctionBackend::new(play).with(Abilities {
            settings,
            images: true,
            ..Abilities::default()
        }))
    }
}

impl Backend for Turns {
    fn abilities(&self) -> &Abilities {
        self.0.abilities()
    }

    fn open(&self, spec: SessionSpec, context: SessionContext) -> Arc<dyn BackendSession> {
        self.0.open(spec, context)
    }

    fn project_rules(&self, cwd: &Path) -> Vec<String> {
        self.0.project_rules(cwd)
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
        words: None,
    }
}
