//! The test harness: the agent behind a real registry, in process, with a folder to work in and a person who
//! prompts, answers permission requests and reads what happened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, AgentConfig, McpConfig, Model, ToolAccess, UndoCleanup, WebAccess};
use engine::{
    Body, Clock, Content, Event, Input, LogRead, LogReader, MemoryStore, NewSessionRequest, PageRequest,
    PermissionAnswer, Principal, Redactor, Registry, RegistryParts, Sender, Seq, SessionHandle, SurfaceId,
    Timestamp, ToolContent, ToolServer,
};

/// Longer than anything here takes, also on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }
}

pub struct Harness {
    pub dir: PathBuf,
    pub session: SessionHandle,
    pub answer: PermissionAnswer,
    store: Arc<MemoryStore>,
    model: Arc<dyn Model>,
    /// Holds from the next restart on, like what follows.
    pub reach: ToolAccess,
    pub redactor: Option<Arc<dyn Redactor>>,
    tune: Tune,
    registry: Arc<Registry>,
    reader: LogReader,
    me: Sender,
    _folder: tempfile::TempDir,
}

/// What a test has different.
type Tune = Arc<dyn Fn(&mut AgentConfig) + Send + Sync>;

fn registry(
    store: &Arc<MemoryStore>,
    model: &Arc<dyn Model>,
    reach: &ToolAccess,
    redactor: Option<&Arc<dyn Redactor>>,
    tune: &Tune,
    dir: &Path,
) -> Arc<Registry> {
    let mut config = AgentConfig::new(vec![Arc::clone(model)]);
    config.environment = vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())];
    config.steps_max = 12;
    config.reach = reach.clone();
    config.undo = Some(dir.with_file_name("undo"));
    tune(&mut config);
    let backend = Arc::new(Agent::new(config));
    let parts = RegistryParts::new(Arc::clone(store) as Arc<_>, backend, Arc::new(Noon));
    let forgets = UndoCleanup { folder: dir.with_file_name("undo") };
    let redactor = redactor.cloned();
    Registry::new(RegistryParts { followers: vec![Arc::new(forgets)], redactor, ..parts })
}

impl Harness {
    pub async fn with(model: impl Model) -> Self {
        Self::reaching(model, |_| ToolAccess::default()).await
    }

    /// A harness with the given tool access, which is made from the parent folder of the workspace.
    pub async fn reaching(model: impl Model, reach: impl FnOnce(&Path) -> ToolAccess) -> Self {
        Self::made(model, reach, Arc::new(|_| {}), Vec::new()).await
    }

    /// A house whose client names tool servers.
    pub async fn serving(model: impl Model, mcp: McpConfig, servers: Vec<ToolServer>) -> Self {
        let tune = move |config: &mut AgentConfig| config.mcp = mcp.clone();
        Self::made(model, |_| ToolAccess::default(), Arc::new(tune), servers).await
    }

    /// A house that sees this web.
    pub async fn on_the_web(
        model: impl Model,
        reach: impl FnOnce(&Path) -> ToolAccess,
        web: WebAccess,
    ) -> Self {
        let tune = move |config: &mut AgentConfig| config.web = web.clone();
        Self::made(model, reach, Arc::new(tune), Vec::new()).await
    }

    /// A house in a project with these files, whose agent is told something different.
    pub async fn project(model: impl Model, files: &[(&str, &str)], tune: fn(&mut AgentConfig)) -> Self {
        let write = |top: &Path| {
            for (path, text) in files {
                let path = top.join("work").join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            ToolAccess::default()
        };
        Self::made(model, write, Arc::new(tune), Vec::new()).await
    }

    async fn made(
        model: impl Model,
        reach: impl FnOnce(&Path) -> ToolAccess,
        tune: Tune,
        servers: Vec<ToolServer>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap().join("work");
        std::fs::create_dir(&dir).unwrap();
        let store = Arc::new(MemoryStore::default());
        let model: Arc<dyn Model> = Arc::new(model);
        let reach = reach(dir.parent().unwrap());
        let registry = registry(&store, &model, &reach, None, &tune, &dir);
        let wish = NewSessionRequest {
            owner: Principal::local(),
            cwd: dir.clone(),
            roots: vec![],
            within: None,
            servers,
            source: "test".into(),
        };
        let session = registry.create(wish).await.unwrap();
        let reader = session.read(Seq::START);
        let me = Sender::owner(SurfaceId(1), "me");
        let answer = PermissionAnswer::AllowOnce;
        Self {
            dir,
            session,
            answer,
            store,
            model,
            reach,
            redactor: None,
            tune,
            registry,
            reader,
            me,
            _folder: folder,
        }
    }

    /// Everything out of memory and back from the store.
    pub async fn restart(&mut self) {
        self.registry.shutdown().await;
        let redactor = self.redactor.as_ref();
        self.registry = registry(&self.store, &self.model, &self.reach, redactor, &self.tune, &self.dir);
        self.session = self.registry.open(&Principal::local(), self.session.id()).await.unwrap();
        let seen = self.reader.cursor();
        self.reader = self.session.read(seen);
    }

    /// Out of memory and back from the store, in the same process.
    pub async fn reopen(&mut self) {
        self.registry.close(&Principal::local(), self.session.id()).await.unwrap();
        self.session = self.registry.open(&Principal::local(), self.session.id()).await.unwrap();
        let seen = self.reader.cursor();
        self.reader = self.session.read(seen);
    }

    pub async fn shutdown(&self) {
        self.registry.shutdown().await;
    }

    /// Removes the session for good.
    pub async fn delete(&self) {
        assert!(self.registry.delete(&Principal::local(), self.session.id()).await.unwrap());
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.dir.join(path)).unwrap()
    }

    pub async fn prompt(&mut self, text: &str) -> Vec<Arc<Event>> {
        self.send(vec![Content::text(text)]).await;
        self.turn().await
    }

    pub async fn send(&self, content: Vec<Content>) {
        self.session.send(Input::Prompt { by: self.me.clone(), content }).await.unwrap();
    }

    pub async fn move_to(&self, cwd: PathBuf) {
        self.session.send(Input::Move { by: self.me.clone(), cwd }).await.unwrap();
    }

    pub async fn change(&self, id: &str, value: &str) {
        let input = Input::Change { by: self.me.clone(), id: id.into(), value: value.into() };
        self.session.send(input).await.unwrap();
    }

    pub async fn try_change(&self, id: &str, value: &str) -> Result<(), String> {
        let input = Input::Change { by: self.me.clone(), id: id.into(), value: value.into() };
        self.session.send(input).await.map(drop).map_err(|error| error.to_string())
    }

    /// The settings once everything that was sent is in them.
    pub async fn settled(&self) -> Arc<engine::Settings> {
        let input = Input::Move { by: self.me.clone(), cwd: self.dir.clone() };
        let accepted = self.session.send(input).await.unwrap();
        self.session.written(accepted.seq).await;
        Arc::clone(&self.session.snapshot().settings)
    }

    /// Everything that stands in the log.
    pub async fn log(&self) -> Vec<Arc<Event>> {
        let mut reader = self.session.read(Seq::START);
        let mut all = Vec::new();
        while let LogRead::Events(events) = reader.take(PageRequest::USUAL).await.unwrap() {
            all.extend(events);
        }
        all
    }

    pub async fn cancel(&self) {
        self.session.send(Input::Cancel { by: self.me.clone(), only: None }).await.unwrap();
    }

    /// What happens until the turn ends. Asks are answered on the way.
    pub async fn turn(&mut self) -> Vec<Arc<Event>> {
        self.until(|body| matches!(body, Body::TurnEnded { .. })).await
    }

    /// What happens until something does.
    pub async fn until(&mut self, wanted: impl Fn(&Body) -> bool) -> Vec<Arc<Event>> {
        let mut seen = Vec::new();
        let watch = async {
            loop {
                let events = self.reader.next().await.unwrap().expect("the session ended");
                for event in events {
                    if let Body::Asked { ask, .. } = &event.body {
                        let input =
                            Input::Answer { by: self.me.clone(), ask: *ask, answer: self.answer.clone() };
                        self.session.send(input).await.unwrap();
                    }
                    let last = wanted(&event.body);
                    seen.push(Arc::clone(&event));
                    if last {
                        self.reader.skip_to(event.seq);
                        return;
                    }
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, watch).await.expect("it took too long");
        seen
    }

    /// Events as lines; the folder is `DIR`, the one above `TOP`, calls are numbered.
    pub fn lines(&self, events: &[Arc<Event>]) -> String {
        let mut calls: Vec<&engine::CallId> = Vec::new();
        let mut lines = String::new();
        for event in events {
            if let Body::ToolStarted(start) = &event.body {
                calls.push(&start.call);
            }
            let number = |call: &engine::CallId| 1 + calls.iter().position(|known| *known == call).unwrap();
            if let Some(line) = line(&event.body, &number) {
                // What a sub-agent does is indented.
                let line = if event.origin.task().is_some() { format!("  {line}") } else { line };
                // Neighbouring text reads as one line, however it was cut.
                let glue =
                    line.starts_with("say ") && lines.lines().last().is_some_and(|l| l.starts_with("say "));
                match glue {
                    true => lines.insert_str(lines.len() - 1, &line["say ".len()..]),
                    false => lines.push_str(&format!("{line}\n")),
                }
            }
        }
        let shown = |path: &Path| path.to_str().unwrap().to_owned();
        lines.replace(&shown(&self.dir), "DIR").replace(&shown(self.dir.parent().unwrap()), "TOP")
    }
}

/// Only what the built-in agent decides; the engine has its own tests.
fn line(body: &Body, number: &dyn Fn(&engine::CallId) -> usize) -> Option<String> {
    Some(match body {
        Body::Text { text, .. } => format!("say {}", text.replace('\n', "|")),
        Body::Thought { text, .. } => format!("think {text}"),
        Body::Plan { entries } => {
            format!(
                "plan {}",
                entries.iter().map(|e| format!("{:?}", e.status)).collect::<Vec<_>>().join(" ")
            )
        }
        Body::ToolStarted(start) => {
            format!("{} starts: {} ({:?})", number(&start.call), start.title, start.kind)
        }
        Body::ToolOutput { call, stream, text } => {
            format!("{} {stream:?}: {}", number(call), text.replace('\n', "|"))
        }
        Body::ToolEnded(end) => {
            let text = end.content.iter().map(|content| match content {
                ToolContent::Block(Content::Text(text)) => text.replace('\n', "|"),
                other => format!("{other:?}"),
            });
            let told = end.raw.as_ref().map(|raw| format!(" told {}", raw.0)).unwrap_or_default();
            let exit = end.exit.as_ref().map(|exit| format!(" exit {:?} {:?}", exit.code, exit.signal));
            let how = if end.failed { "fails" } else { "ends" };
            format!(
                "{} {how}: {}{told}{}",
                number(&end.call),
                text.collect::<String>(),
                exit.unwrap_or_default()
            )
        }
        Body::FileEdited { change, .. } => {
            let text = |text: &Option<Arc<str>>| text.as_ref().map(|text| text.replace('\n', "|"));
            format!("file {} {:?} -> {:?}", change.path.display(), text(&change.before), text(&change.after))
        }
        Body::Asked { request, .. } => {
            format!("asks {:?} {:?} {}", request.class, request.risk, request.subject)
        }
        Body::PolicyBlocked { tool, path, mode, .. } => {
            format!(
                "blocked {tool} {} {mode}",
                path.as_ref().map(|p| p.display().to_string()).unwrap_or_default()
            )
        }
        Body::SettingChanged { id, value } => format!("{id} = {value}"),
        Body::Title { title } => format!("title {title}"),
        Body::Notice { level, text } => format!("{level:?}: {text}"),
        Body::Cleared => "cleared".into(),
        Body::Compacting { given_up } => (if *given_up { "not compacted" } else { "compacting" }).into(),
        Body::Compacted { .. } => "compacted".into(),
        Body::TurnEnded { stop, .. } => format!("{stop:?}"),
        _ => return None,
    })
}
