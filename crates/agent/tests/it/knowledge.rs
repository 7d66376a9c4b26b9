//! What is written down for the agent, seen from the log and from what the model is told.

use agent::{Message, Thinking};
use engine::{Body, Content};
use expect_test::expect;
use testkit::{Script, call, say};

use crate::harness::Harness;

const DOCS: (&str, &str) =
    (".ropewalk/agents/docs.md", "---\ndescription: Writes docs\ntools: [read, edit]\n---\nYou write docs.");

fn user(text: &str) -> Message {
    Message::User { text: text.into(), images: vec![] }
}

/// H1, H17.
#[tokio::test]
async fn an_agent_from_a_file_is_a_mode_with_its_own_tools() {
    let script = Script::new([
        vec![
            call("edit", r#"{"path":"a.txt","old":"one","new":"1"}"#),
            call("shell", r#"{"command":"touch x"}"#),
            call("write", r#"{"path":"b.txt","text":"b"}"#),
        ],
        vec![say("ok")],
    ]);
    let checker = (".claude/agents/checker.md", "---\nname: checker\n---\nYou check.");
    let mut harness = Harness::project(script.clone(), &[DOCS, checker, ("a.txt", "one\n")], |_| {}).await;
    let specs = harness.session.specs();
    let modes = specs.iter().find(|spec| *spec.id == *"mode").unwrap();
    let modes: Vec<_> = modes.choices.iter().map(|choice| choice.value.as_ref()).collect();
    assert_eq!(modes, ["code", "ask", "architect", "docs"]);
    let mut events = harness.prompt("/mode doc").await;
    events.extend(harness.prompt("go").await);
    expect![[r#"
        mode = docs
        say The mode is now docs.
        EndTurn
        1 starts: Edit a.txt (Edit)
        file DIR/a.txt Some("one|") -> Some("1|")
        1 ends:  told "edited a.txt at line 1"
        2 starts: touch x (Execute)
        blocked shell  docs
        2 fails: not allowed: shell is not one of the tools of docs
        3 starts: Write b.txt (Edit)
        3 ends:  told "created b.txt (1 line)"
        say ok
        title go
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events).replace("file DIR/b.txt None -> Some(\"b\")\n", ""));
    let request = &script.requests()[0];
    assert!(request.system.contains("You write docs."));
    assert!(
        request
            .tools
            .iter()
            .all(|tool| ["read", "edit", "write", "apply_patch"].contains(&tool.name.as_ref()))
    );
}

/// A mode that was chosen and whose file is gone.
#[tokio::test]
async fn a_mode_that_is_gone_is_left_and_that_is_said() {
    let mut harness = Harness::project(Script::new([]), &[DOCS], |_| {}).await;
    harness.prompt("/mode docs").await;
    std::fs::remove_file(harness.dir.join(DOCS.0)).unwrap();
    // While the session is open nothing is changed any more.
    let events = harness.prompt("go").await;
    assert!(harness.lines(&events).contains("the script is over"));
    harness.restart().await;
    let events = harness.prompt("/status").await;
    let said = harness.lines(&events);
    assert!(
        said.starts_with(
            "mode = ask\nWarning: the mode \"docs\" no longer exists here; the session continues in ask mode\n"
        ),
        "{said}"
    );
    assert!(said.contains("- mode: ask|"), "{said}");
}

/// H2, H5, H8.
#[tokio::test]
async fn other_programs_names_for_settings_are_understood() {
    let harness = Harness::project(Script::new([]), &[], |_| {}).await;
    for (id, value, is) in [
        ("mode", "plan", ("mode", "architect")),
        ("mode", "explore", ("mode", "ask")),
        ("mode", "build", ("mode", "code")),
        ("auto_approve", "full-auto", ("approval", "full")),
        ("auto_approve", "suggest", ("approval", "suggest")),
        ("thinking", "on", ("thinking", "medium")),
    ] {
        harness.try_change(id, value).await.unwrap();
        let settings = harness.settled().await;
        assert_eq!(settings.get(is.0), is.1, "{id} {value}");
    }
    assert!(harness.try_change("mode", "nope").await.unwrap_err().contains("code, ask, architect"));
    assert!(harness.try_change("nope", "x").await.is_err());
}

/// FF8, H7, H9.
#[tokio::test]
async fn a_setting_holds_for_the_very_next_call_of_a_running_turn() {
    let wait = r#"{"command":"while [ ! -e go ]; do sleep 0.02; done"}"#;
    let script = Script::new([vec![call("shell", wait)], vec![say("ok")]]);
    let mut harness = Harness::with(script.clone()).await;
    harness.send(vec![Content::text("go")]).await;
    harness.until(|body| matches!(body, Body::Resolved { .. })).await;
    for (id, value) in
        [("thinking", "high"), ("temperature", "precise"), ("mode", "ask"), ("model", "script:two")]
    {
        harness.change(id, value).await;
    }
    harness.until(|body| matches!(body, Body::SettingChanged { id, .. } if **id == *"model")).await;
    harness.write("go", "");
    harness.turn().await;
    let requests = script.requests();
    let told = |at: usize| {
        let request = &requests[at];
        let edits = request.tools.iter().any(|tool| *tool.name == *"edit");
        (request.thinking, request.temperature, request.model.as_ref(), edits)
    };
    assert_eq!(told(0), (Thinking::Off, None, "script:one", true));
    assert_eq!(told(1), (Thinking::High, Some(0.2), "script:two", false));
}

/// H9: each choice is the number that the provider is asked with, and the default is none.
#[tokio::test]
async fn each_temperature_is_its_number_in_the_request() {
    let choices = ["precise", "balanced", "creative", "default"];
    let script = Script::new(choices.map(|_| vec![say("ok")]));
    let mut harness = Harness::with(script.clone()).await;
    for choice in choices {
        harness.try_change("temperature", choice).await.unwrap();
        harness.prompt("go").await;
    }
    let asked: Vec<Option<f32>> = script.requests().iter().map(|request| request.temperature).collect();
    assert_eq!(asked, [Some(0.2), Some(0.7), Some(1.0), None]);
}

/// H16.
#[tokio::test]
async fn a_command_from_a_file_is_a_prompt_and_an_unknown_one_is_plain_text() {
    let script = Script::new([]);
    let fix =
        (".ropewalk/commands/fix.md", "---\ndescription: Fixes\nargs: [file]\n---\nFix ${file}; !`id`.");
    let mut harness = Harness::project(script.clone(), &[fix], |_| {}).await;
    let commands = harness.session.commands().clone();
    let found = commands.iter().find(|command| *command.name == *"fix").unwrap();
    assert_eq!((found.description.as_ref(), found.hint.as_deref()), ("Fixes", Some("<file>")));
    let events = harness.prompt("/fix a.rs").await;
    assert!(harness.lines(&events).contains("title /fix a.rs"), "{}", harness.lines(&events));
    harness.prompt("/nope what is this").await;
    harness.prompt("/init").await;
    let requests = script.requests();
    assert_eq!(requests[0].messages, [user("Fix a.rs; !`id`.")]);
    assert_eq!(requests[1].messages.last(), Some(&user("/nope what is this")));
    assert!(
        matches!(requests[2].messages.last(), Some(Message::User { text, .. }) if text.starts_with("Write AGENTS.md"))
    );
    harness.restart().await;
    harness.prompt("again").await;
    let (before, after) = (&requests[2].messages, &script.requests()[3].messages);
    assert_eq!(before[..], after[..before.len()], "a restart changes nothing");
}

#[tokio::test]
async fn a_skill_is_listed_and_its_body_is_read_when_it_is_wanted() {
    let script = Script::new([vec![call("skill", r#"{"name":"pdf"}"#), call("skill", r#"{"name":"x"}"#)]]);
    let skill =
        (".agents/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads PDF files\n---\nUse pdftotext.");
    let mut harness = Harness::project(script.clone(), &[skill], |_| {}).await;
    let events = harness.prompt("go").await;
    expect![[r#"
        1 starts: Skill pdf (Read)
        2 starts: Skill x (Read)
        1 ends: The folder of this skill is DIR/.agents/skills/pdf.||Use pdftotext.
        2 fails: there is no skill "x"; the skills are pdf
        say the script is over
        title go
        EndTurn
    "#]]
    .assert_eq(&sorted_ends(&harness.lines(&events)));
    let system = &script.requests()[0].system;
    assert!(system.contains("- pdf: Reads PDF files") && !system.contains("pdftotext"), "{system}");
    let mut without = Harness::with(Script::new([])).await;
    without.prompt("go").await;
}

/// Calls that run side by side start and end in any order.
fn sorted_ends(lines: &str) -> String {
    let (calls, rest): (Vec<&str>, Vec<&str>) =
        lines.lines().partition(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let (starts, ends): (Vec<&str>, Vec<&str>) = calls.into_iter().partition(|line| line.contains("starts:"));
    let mut all = [starts, ends]
        .map(|mut lines| {
            lines.sort_unstable();
            lines
        })
        .concat();
    all.extend(rest);
    all.join("\n") + "\n"
}

/// H11.
#[tokio::test]
async fn status_and_cost_are_told_from_the_log() {
    let usage = |cost_usd, unpriced| {
        testkit::Line::Usage(engine::Usage {
            context_used: 64_000,
            context_size: 128_000,
            input: 10,
            output: 5,
            cost_usd,
            unpriced,
            ..engine::Usage::default()
        })
    };
    let script = Script::new([vec![say("a"), usage(0.25, false)], vec![say("b"), usage(0.0, true)]]);
    let mut harness = Harness::project(script, &[("AGENTS.md", "x")], |_| {}).await;
    let events = harness.prompt("/cost").await;
    assert!(harness.lines(&events).contains("Nothing has been spent yet."));
    harness.prompt("one").await;
    harness.prompt("two").await;
    harness.restart().await;
    let mut events = harness.prompt("/cost").await;
    events.extend(harness.prompt("/status").await);
    let lines = harness.lines(&events);
    for told in [
        "10 in, 5 out",
        "20 in, 10 out",
        "0.25",
        "unknown",
        "- model: script:one|- mode: code|",
        "64000 of 128000 tokens (50 %)",
        "- rules: AGENTS.md|",
    ] {
        assert!(lines.contains(told), "{told}: {lines}");
    }
}

/// C23.
#[tokio::test]
async fn the_model_names_the_session_and_its_call_is_counted() {
    // The title is asked for side by side with the answer: both get the same words here.
    let script = Script::new([vec![say("Fix the parser")], vec![say("Fix the parser")], vec![say("more")]]);
    let mut harness = Harness::project(script.clone(), &[], |config| config.titles_by_model = true).await;
    let events = harness.prompt("it does not parse").await;
    expect![[r#"
        say Fix the parser
        title Fix the parser
        EndTurn
    "#]]
    .assert_eq(&harness.lines(&events));
    assert_eq!(events.iter().filter(|event| matches!(event.body, Body::Usage(_))).count(), 2);
    let asked = script.requests().into_iter().find(|request| request.tools.is_empty()).unwrap();
    assert_eq!(asked.messages, [user("it does not parse\n")]);
    let events = harness.prompt("go on").await;
    assert_eq!(harness.lines(&events), "say more\nEndTurn\n");
    let last = &script.requests()[2].messages;
    assert_eq!(last.len(), 3, "what was said beside the conversation is not part of it: {last:?}");
}

/// C23: nobody waits for a name.
#[tokio::test]
async fn a_title_that_does_not_come_is_the_first_words() {
    struct Nameless(Script);
    impl agent::Model for Nameless {
        fn offers(&self) -> Vec<agent::ModelInfo> {
            self.0.offers()
        }
        fn stream(&self, request: agent::ModelRequest) -> Box<dyn agent::ModelStream> {
            let hang = request.tools.is_empty();
            let script = if hang { Script::new([vec![testkit::Line::Hang]]) } else { self.0.clone() };
            script.stream(request)
        }
    }
    let script = Script::new([vec![say("done")]]);
    let mut harness = Harness::project(Nameless(script), &[], |config| config.titles_by_model = true).await;
    let events = harness.prompt("fix it").await;
    assert_eq!(harness.lines(&events), "say done\ntitle fix it\nEndTurn\n");
}
