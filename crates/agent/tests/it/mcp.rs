//! Tool servers used through the agent: good ones, and those that misbehave in every way we know.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::{McpConfig, Message, ProjectServer};
use engine::{Body, Event, PermissionAnswer, ServerState, ServerTransport, Stop, ToolServer};
use expect_test::{Expect, expect};
use testkit::{Line, Script, call, say};

use crate::harness::Harness;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn script_of(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/servers").join(name).display().to_string()
}

/// Our server, behaving as said. It writes notes for the test into a file.
fn server(name: &str, how: &str, notes: &Path) -> ToolServer {
    let arguments = vec![script_of("server.py"), how.to_owned(), notes.display().to_string()];
    let environment = vec![("GIVEN".to_owned(), "yes".to_owned())];
    ToolServer {
        name: name.into(),
        transport: ServerTransport::Child { command: "python3".into(), arguments, environment },
    }
}

/// Patient enough for a busy machine; each test makes short what it waits for.
fn patient() -> McpConfig {
    McpConfig { grace: TEST_TIMEOUT, start_timeout: TEST_TIMEOUT, ..McpConfig::default() }
}

struct Scene {
    harness: Harness,
    script: Script,
    notes: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn new(how: &str, config: McpConfig, replies: Vec<Vec<Line>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        let script = Script::new(replies);
        let harness = Harness::serving(script.clone(), config, vec![server("srv", how, &notes)]).await;
        Self { harness, script, notes, _folder: folder }
    }

    async fn prompt(&mut self) -> String {
        let events = self.harness.prompt("go").await;
        self.harness.lines(&events)
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(&self.notes).unwrap_or_default()
    }

    /// Waits until the server has noted something.
    async fn noted(&self, what: &str) {
        let began = Instant::now();
        while !self.notes().contains(what) {
            assert!(began.elapsed() < TEST_TIMEOUT, "no {what:?} in {:?}", self.notes());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The names of the tools that the model was offered in its nth request, without ours.
    fn offered(&self, request: usize) -> Vec<String> {
        let requests = self.script.requests();
        let names = requests[request].tools.iter().map(|tool| tool.name.to_string());
        names.filter(|name| name.starts_with("mcp__")).collect()
    }

    fn state(&self) -> ServerState {
        self.harness.session.servers().unwrap().list()[0].state.clone()
    }

    /// Waits until no process that the server noted is left.
    async fn nobody_left(&self) {
        let notes = self.notes();
        let pids = notes
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(what, _)| ["started", "child"].contains(what));
        for (_, pid) in pids {
            let began = Instant::now();
            while alive(pid) {
                assert!(began.elapsed() < TEST_TIMEOUT, "{pid} lives on");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

fn alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

/// One call per reply, of a server that can do everything; what happens, as lines.
async fn check(tools: &[(&str, &str)], expected: Expect) -> Scene {
    let replies = tools.iter().map(|(tool, arguments)| vec![call(format!("mcp__srv__{tool}"), *arguments)]);
    let mut scene = Scene::new("all", patient(), replies.chain([vec![say("Done.")]]).collect()).await;
    let lines = scene.prompt().await;
    expected.assert_eq(&lines);
    scene
}

#[tokio::test]
async fn a_servers_tools_are_used_like_ours_and_asked_for() {
    let scene = check(
        &[("echo", r#"{"text":"hi"}"#), ("look", ""), ("fail", "{}"), ("echo", "[1]"), ("none", "{}")],
        expect![[r#"
            1 starts: srv: echo (Other)
            asks Execute Medium mcp__srv__echo
            1 ends: you said hi
            2 starts: srv: look (Other)
            asks Network Medium mcp__srv__look
            2 ends: you said 
            3 starts: srv: fail (Other)
            asks Execute Medium mcp__srv__fail
            3 fails: it is broken
            4 starts: mcp__srv__echo (Other)
            4 fails: the arguments must be a JSON object: invalid type: sequence, expected a map at line 1 column 0
            5 starts: mcp__srv__none (Other)
            5 fails: there is no tool "mcp__srv__none"; the tools are read, list, glob, search, edit, write, apply_patch, shell, jobs, job_input, update_plan, fetch, ask_user, mcp__srv__echo, mcp__srv__look, mcp__srv__env, mcp__srv__where, mcp__srv__steps, mcp__srv__grow, mcp__srv__die, mcp__srv__huge, mcp__srv__hang, mcp__srv__fail, mcp__srv__image, task
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(scene.state(), ServerState::Ready);
    assert_eq!(scene.notes().matches("started").count(), 1);
    let view = &scene.harness.session.servers().unwrap().list()[0];
    assert_eq!((view.transport, view.tools.len()), ("stdio", 11));
    scene.harness.shutdown().await;
    scene.noted("end of input").await;
    scene.nobody_left().await;
}

#[tokio::test]
async fn nothing_is_started_before_a_turn_needs_it_and_a_refusal_holds() {
    let mut scene = Scene::new("all", patient(), vec![vec![call("mcp__srv__echo", "{}")]]).await;
    assert_eq!((scene.notes().as_str(), scene.state()), ("", ServerState::Idle));
    scene.harness.answer = PermissionAnswer::DenyOnce;
    let lines = scene.prompt().await;
    assert!(lines.contains("1 fails: not allowed: the user refused it"), "{lines}");
    assert!(!scene.notes().contains("call"), "{}", scene.notes());
}

#[tokio::test]
async fn progress_is_shown_under_the_call_and_images_reach_the_model() {
    let scene = check(
        &[("steps", "{}"), ("image", "{}")],
        expect![[r#"
            1 starts: srv: steps (Other)
            asks Execute Medium mcp__srv__steps
            1 Stdout: [1 of 2] step [31m1|
            1 Stdout: [2 of 2] step [31m2|
            1 ends: you said 
            2 starts: srv: image (Other)
            asks Execute Medium mcp__srv__image
            2 ends: Block(Image { mime: "image/png", data: "iVBORw0KGgo=", uri: None })
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
    let last = scene.script.requests().pop().unwrap();
    let images = last.messages.iter().filter_map(|message| match message {
        Message::ToolResult { images, .. } => Some(images.len()),
        _ => None,
    });
    assert_eq!(images.collect::<Vec<_>>(), [0, 1]);
}

/// X2: the server sees what a command sees, and what its entry names.
#[tokio::test]
async fn a_server_gets_a_clean_environment_and_dangerous_names_are_dropped_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let mut named = server("srv", "all", &folder.path().join("notes"));
    if let ServerTransport::Child { environment, .. } = &mut named.transport {
        let more = [("LD_PRELOAD", "x"), ("PATH", "/evil"), ("https_proxy", "x"), ("KEY", "k")];
        environment.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    let script = Script::new([vec![call("mcp__srv__env", "{}")], vec![call("mcp__srv__where", "{}")]]);
    let mut harness = Harness::serving(script, patient(), vec![named]).await;
    let events = harness.prompt("go").await;
    let lines = harness.lines(&events);
    assert!(lines.starts_with("Warning: MCP server srv: these variables are not passed on, since they change which code runs: LD_PRELOAD, PATH, https_proxy\n"), "{lines}");
    let environment = r#"1 ends: {"GIVEN": "yes", "KEY": "k", "PATH": "/usr/local/bin:/usr/bin:/bin"}"#;
    // Python adds one of its own where the locale is plain.
    assert!(lines.replace(r#""LC_CTYPE": "C.UTF-8", "#, "").contains(environment), "{lines}");
    assert!(lines.contains("2 ends: DIR\n"), "{lines}");
}

#[tokio::test]
async fn a_server_that_dies_at_its_start_is_told_of_and_the_turn_goes_on() {
    let mut scene = Scene::new("dies", patient(), vec![vec![say("Without.")], vec![say("Again.")]]).await;
    expect![[r#"
        Warning: MCP server srv: the program ended (exit status: 3): no licence[31m found
        say Without.
        title go
        EndTurn
    "#]]
    .assert_eq(&scene.prompt().await);
    assert!(matches!(scene.state(), ServerState::Failed { .. }));
    // The same is not told again and again, and it is not tried again at once.
    assert_eq!(scene.prompt().await, "say Again.\nEndTurn\n");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let transport =
        ServerTransport::Child { command: "no-such-program".into(), arguments: vec![], environment: vec![] };
    let mut harness =
        Harness::serving(Script::new([]), patient(), vec![ToolServer { name: "x".into(), transport }]).await;
    let events = harness.prompt("go").await;
    let lines = harness.lines(&events);
    assert!(
        lines.starts_with("Warning: MCP server x: program no-such-program not found; install it"),
        "{lines}"
    );
}

/// X4: neither a server that hangs nor one that lists for ever holds up the turn.
#[tokio::test]
async fn a_server_that_hangs_holds_up_the_turn_for_a_moment_only() {
    let config = McpConfig {
        grace: Duration::from_millis(50),
        start_timeout: Duration::from_millis(400),
        ..patient()
    };
    let mut scene = Scene::new("hangs", config, vec![vec![say("Without.")]]).await;
    expect![[r#"
        Info: still starting: MCP server srv; tools are added when it is ready
        say Without.
        title go
        EndTurn
    "#]]
    .assert_eq(&scene.prompt().await);
    let began = Instant::now();
    while !matches!(scene.state(), ServerState::Failed { .. }) {
        assert!(began.elapsed() < TEST_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(scene.state(), ServerState::Failed { reason: "it did not answer within 0.4 s".into() });
    scene.nobody_left().await;
}

#[tokio::test]
async fn noise_is_borne_and_a_list_without_end_is_cut() {
    for how in ["garbage", "endless"] {
        let mut scene = Scene::new(how, patient(), vec![vec![say("Fine.")]]).await;
        let lines = scene.prompt().await;
        assert!(!scene.offered(0).is_empty(), "{how}: {lines}");
    }
}

#[tokio::test]
async fn names_descriptions_and_schemas_of_a_hostile_server_are_bounded() {
    let mut scene = Scene::new("hostile", patient(), vec![vec![say("Fine.")]]).await;
    let lines = scene.prompt().await;
    assert!(lines.starts_with("Warning: MCP server srv: 386 of its tools are left out"), "{lines}");
    let names = scene.offered(0);
    assert_eq!(names.len(), 124);
    expect![[
        r#"["mcp__srv__same", "mcp__srv__same_2", "mcp__srv__SAME_3", "mcp__srv__with_space_and_more"]"#
    ]]
    .assert_eq(&format!("{:?}", &names[..4]));
    assert!(names.iter().all(|name| name.len() <= 64));
    for tool in scene.script.requests()[0].tools.iter() {
        assert!(
            tool.description.len() < 3000 && !tool.description.contains(['\u{1b}', '\0']),
            "{}",
            tool.name
        );
        assert!(tool.schema.to_string().len() < 40_000, "{}", tool.name);
    }
}

#[tokio::test]
async fn a_new_list_of_tools_counts_from_the_next_call_of_the_model_on() {
    let replies = vec![vec![call("mcp__srv__grow", "{}")], vec![call("mcp__srv__echo", "{}")], vec![]];
    let mut scene = Scene::new("all", patient(), replies).await;
    scene.prompt().await;
    assert!(!scene.offered(0).contains(&"mcp__srv__grown".to_owned()));
    // By the second at the latest: the announcement and the answer race each other.
    assert!(scene.offered(2).contains(&"mcp__srv__grown".to_owned()), "{:?}", scene.offered(2));
    scene.script.then(vec![call("mcp__srv__grown", "{}")]);
    let lines = scene.prompt().await;
    assert!(lines.contains("1 ends: you said"), "{lines}");
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_started_again_by_the_next() {
    let scene = check(
        &[("die", "{}"), ("echo", r#"{"text":"back"}"#)],
        expect![[r#"
            1 starts: srv: die (Other)
            asks Execute Medium mcp__srv__die
            1 fails: the server ended during the call: the program ended (exit status: 9): I am done; the next call starts it again
            Warning: MCP server srv: the program ended (exit status: 9): I am done
            2 starts: srv: echo (Other)
            asks Execute Medium mcp__srv__echo
            2 ends: you said back
            say Done.
            title go
            EndTurn
        "#]],
    )
    .await;
    assert_eq!(scene.notes().matches("started").count(), 2);
}

#[tokio::test]
async fn a_message_of_a_hundred_megabytes_ends_the_server_and_not_us() {
    let mut scene = Scene::new("all", patient(), vec![vec![call("mcp__srv__huge", "{}")]]).await;
    let lines = scene.prompt().await;
    assert!(lines.contains("it sent a message of more than 16 MiB"), "{lines}");
}

#[tokio::test]
async fn a_call_that_hangs_is_given_up_and_the_server_is_told() {
    let config = McpConfig { call_timeout: Duration::from_millis(300), ..patient() };
    let mut scene =
        Scene::new("all", config, vec![vec![call("mcp__srv__hang", "{}")], vec![say("Well.")]]).await;
    let lines = scene.prompt().await;
    assert!(lines.contains("1 fails: the server did not answer within 0 s"), "{lines}");
    scene.noted("cancelled it took too long").await;
}

#[tokio::test]
async fn a_cancelled_turn_cancels_the_call() {
    let mut scene = Scene::new("all", patient(), vec![vec![call("mcp__srv__hang", "{}")]]).await;
    scene.harness.send(vec![engine::Content::text("go")]).await;
    scene.harness.until(|body| matches!(body, Body::Resolved { .. })).await;
    scene.noted("call hang").await;
    scene.harness.cancel().await;
    let events = scene.harness.turn().await;
    let failed = events.iter().any(|event| matches!(&event.body, Body::ToolEnded(end) if end.failed));
    assert!(failed && matches!(events.last().unwrap().body, Body::TurnEnded { stop: Stop::Cancelled, .. }));
    scene.noted("cancelled the turn was cancelled").await;
}

/// What a session has started ends with it, and what its client named is there again when it is.
#[tokio::test]
async fn servers_and_their_children_end_with_the_session_and_come_back_with_it() {
    let mut scene =
        Scene::new("family", patient(), vec![vec![say("One.")], vec![call("mcp__srv__echo", "{}")]]).await;
    scene.prompt().await;
    scene.noted("child").await;
    scene.harness.reopen().await;
    scene.nobody_left().await;
    let lines = scene.prompt().await;
    assert!(lines.contains("1 ends: you said"), "{lines}");
    assert_eq!(scene.notes().matches("started").count(), 2);
    scene.harness.shutdown().await;
    scene.nobody_left().await;
}

#[tokio::test]
async fn servers_come_and_go_while_the_session_lives() {
    let mut scene = Scene::new("all", patient(), vec![]).await;
    scene.prompt().await;
    let servers = Arc::clone(scene.harness.session.servers().unwrap());
    servers.add(server("Other one", "all", &scene.notes)).unwrap();
    assert!(servers.remove("srv") && !servers.remove("srv"));
    scene.prompt().await;
    assert!(
        scene.offered(1).iter().all(|name| name.starts_with("mcp__Other_one__")),
        "{:?}",
        scene.offered(1)
    );
    assert_eq!(servers.list().iter().map(|server| server.name.as_ref()).collect::<Vec<_>>(), ["Other one"]);
    scene.noted("end of input").await;
}

/// A project that was cloned must not start programs of its own accord.
#[tokio::test]
async fn a_projects_server_is_started_only_if_the_person_allows_it() {
    fn project(folder: &Path) -> Result<Vec<ProjectServer>, String> {
        let notes = folder.join("notes");
        let shown = format!("theirs: python3 {}", notes.file_name().unwrap().display());
        Ok(vec![ProjectServer { server: server("theirs", "all", &notes), shown, notices: Vec::new() }])
    }
    for (answer, offered) in [(PermissionAnswer::DenyOnce, 0), (PermissionAnswer::AllowOnce, 11)] {
        let script = Script::new([]);
        let config = McpConfig { project: Some(project), ..patient() };
        let mut harness = Harness::serving(script.clone(), config, Vec::new()).await;
        harness.answer = answer;
        let events = harness.prompt("go").await;
        let lines = harness.lines(&events);
        assert!(lines.starts_with("asks Execute High theirs: python3 notes\n"), "{lines}");
        let tools = script.requests()[0].tools.iter().filter(|tool| tool.name.starts_with("mcp__")).count();
        assert_eq!(tools, offered, "{lines}");
        assert_eq!(harness.dir.join("notes").exists(), offered > 0);
        // Asked once, whatever the answer was.
        let events = harness.prompt("again").await;
        assert!(!harness.lines(&events).contains("asks"), "{}", harness.lines(&events));
    }
}

/// A web server of ours that ends with the test.
struct Web {
    child: std::process::Child,
    port: String,
}

impl Web {
    fn start(how: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the test's own child")]
        let mut command = std::process::Command::new("python3");
        command.args([&script_of("http_server.py"), how]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, port: port.trim().to_owned() }
    }

    fn server(&self, token: &str) -> ToolServer {
        let headers = vec![
            ("Authorization".to_owned(), format!("Bearer {token}")),
            ("X-Key".to_owned(), "open".to_owned()),
        ];
        let url = format!("http://127.0.0.1:{}/mcp", self.port).into();
        ToolServer { name: "web".into(), transport: ServerTransport::Http { url, headers } }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

async fn over_http(server: ToolServer, replies: Vec<Vec<Line>>) -> String {
    let mut harness = Harness::serving(Script::new(replies), patient(), vec![server]).await;
    let events: Vec<Arc<Event>> = harness.prompt("go").await;
    let lines = harness.lines(&events);
    harness.shutdown().await;
    lines
}

/// X1.
#[tokio::test]
async fn headers_reach_a_server_over_http() {
    let web = Web::start("plain");
    let lines = over_http(web.server("sesame"), vec![vec![call("mcp__web__headers", "{}")]]).await;
    assert!(lines.contains(r#"1 ends: {"authorization": "Bearer sesame", "x-key": "open"}"#), "{lines}");
    let lines = over_http(web.server("wrong"), vec![]).await;
    assert!(lines.starts_with("Warning: MCP server web: ") && lines.contains("401"), "{lines}");
    assert!(!lines.contains("wrong"), "{lines}");
}

#[tokio::test]
async fn headers_follow_a_redirect_at_the_same_address_and_nowhere_else() {
    let there = Web::start("plain");
    let elsewhere = Web::start(&format!("http://127.0.0.1:{}/other", there.port));
    let lines = over_http(elsewhere.server("sesame"), vec![]).await;
    assert!(lines.starts_with("Warning: MCP server web: ") && lines.contains("307"), "{lines}");
}

#[tokio::test]
async fn an_answer_without_end_over_http_is_cut() {
    let web = Web::start("plain");
    let lines = over_http(web.server("sesame"), vec![vec![call("mcp__web__flood", "{}")]]).await;
    assert!(lines.contains("1 fails:") && lines.contains("16 MiB"), "{lines}");
}
