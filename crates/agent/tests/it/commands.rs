//! Slash commands that show, limit and name: what they say and what that does.

use std::sync::Arc;

use agent::ModelRequest;
use engine::{Body, Content, Input, Sender, Seq, SurfaceId};
use testkit::{Line, Script, call, say};

use crate::harness::Harness;

fn costs(usd: f64) -> Line {
    Line::Usage(engine::Usage { cost_usd: usd, ..engine::Usage::default() })
}

async fn told(harness: &mut Harness, text: &str) -> String {
    let events = harness.prompt(text).await;
    harness.lines(&events)
}

fn last_message(request: &ModelRequest) -> String {
    format!("{:?}", request.messages.last().unwrap())
}

/// U3.
#[tokio::test]
async fn a_session_is_held_to_max_cost_and_one_prompt_is_sent_past_it() {
    let script = Script::new((0..5).map(|at| vec![say(format!("answer {at}")), costs(0.25)]));
    let mut harness = Harness::with(script.clone()).await;
    assert!(told(&mut harness, "/max-cost").await.contains("This session has no spending limit"));
    told(&mut harness, "one").await;
    let set = told(&mut harness, "/max-cost 0.20").await;
    assert!(set.contains("The limit of this session is now $0.2000 from here on"), "{set}");
    assert!(told(&mut harness, "two").await.contains("answer 1"), "what was spent before does not count");
    let stopped = told(&mut harness, "three").await;
    assert!(stopped.contains("the budget of /max-cost is used up: $0.2500 of $0.2000"), "{stopped}");
    assert!(stopped.contains("/force-send TEXT") && stopped.contains("MaxTurnRequests"), "{stopped}");
    harness.restart().await;
    assert!(told(&mut harness, "three").await.contains("MaxTurnRequests"), "the log has the limit");
    assert_eq!(script.requests().len(), 2);

    assert!(told(&mut harness, "/force-send\nfour").await.contains("answer 2"));
    let last = last_message(&script.requests()[2]);
    assert!(last.contains("four") && !last.contains("force-send"), "{last}");
    assert!(told(&mut harness, "five").await.contains("MaxTurnRequests"), "it was one prompt");
    let shown = told(&mut harness, "/max-cost").await;
    assert!(shown.contains("by /max-cost: $0.5000 of $0.2000 spent"), "{shown}");
    assert!(told(&mut harness, "/force-send").await.contains("Write `/force-send TEXT`"));
    assert!(told(&mut harness, "/max-cost a lot").await.contains("Nothing was changed"));
    assert!(told(&mut harness, "five").await.contains("MaxTurnRequests"));
    assert!(told(&mut harness, "/max-cost off").await.contains("The limit of this session is removed"));
    assert!(told(&mut harness, "five").await.contains("answer 3"));
    assert!(told(&mut harness, "/max-cost 0").await.contains("This session has no limit set with /max-cost"));
}

/// U3: the owner's budget is out of reach.
#[tokio::test]
async fn max_cost_and_force_send_do_not_loosen_the_owners_budget() {
    let script = Script::new((0..5).map(|at| vec![say(format!("answer {at}")), costs(0.25)]));
    let tune = |config: &mut agent::AgentConfig| config.budget.session_usd = Some(0.2);
    let mut harness = Harness::project(script.clone(), &[], tune).await;
    told(&mut harness, "one").await;
    told(&mut harness, "/max-cost 100").await;
    for prompt in ["two", "/force-send two"] {
        let stopped = told(&mut harness, prompt).await;
        assert!(stopped.contains("the budget of this session is used up"), "{prompt}: {stopped}");
    }
    assert_eq!(script.requests().len(), 1);
    let shown = told(&mut harness, "/max-cost").await;
    assert!(shown.contains("by --max-cost or session_usd: $0.2500 of $0.2000 spent"), "{shown}");
}

/// H18.
#[tokio::test]
async fn the_palette_has_what_it_should_and_each_has_an_effect() {
    let mut harness = Harness::with(Script::new([])).await;
    let help = told(&mut harness, "/help").await;
    for name in [
        "clear",
        "share",
        "undo",
        "redo",
        "agent",
        "model",
        "tools",
        "yolo",
        "sandbox",
        "approval",
        "diff",
        "rename",
        "help",
        "status",
        "doctor",
        "config",
        "cost",
        "compact",
        "init",
        "mcp",
        "permissions",
        "plan",
        "exec",
        "max-cost",
        "force-send",
        "bridge",
        "audit",
    ] {
        assert!(help.contains(&format!("`/{name}")), "{name}: {help}");
    }
    let id = harness.session.id().to_string();
    for (command, said) in [
        ("/rename  Weave the net ", "title Weave the net\n"),
        ("/rename", "Write `/rename TITLE`."),
        ("/exec make test", "`/exec` alone goes back to code mode"),
        ("/agent ask", "mode = ask\n"),
        ("/exec", "mode = code\n"),
        ("/plan", "mode = architect\n"),
        ("/tools", "Tools of the agent in architect mode:|- `read`"),
        ("/exec", "mode = code\n"),
        ("/tools", "- `edit`"),
        ("/mcp", "This session has no MCP servers."),
        ("/config", "Chosen in this session:|- model: script:one|- mode: code|"),
        ("/doctor", "- OK: model: script:one|- OK: folder: `DIR`|"),
        ("/share", &format!("ropewalk sessions share {id} --to URL")),
        ("/bridge", &format!("ropewalk bridge --resume {id}")),
        ("/diff", "This session has no unreviewed changes"),
        ("/yolo", "approval = full\n"),
        ("/yolo", "The approval is now full."),
        ("/audit", "There is no audit log here."),
    ] {
        let told = told(&mut harness, command).await;
        assert!(told.contains(said), "{command}: {told}");
    }
    let banner = |event: &engine::Event| matches!(&event.body, Body::Notice { text, .. } if text.contains("approval is full: everything runs without asking"));
    assert!(harness.log().await.iter().any(|event| banner(event)));
}

/// H18.
#[tokio::test]
async fn one_prompt_is_planned_and_the_mode_stays() {
    let script = Script::new([
        vec![call("write", r#"{"path":"a.txt","text":"x"}"#)],
        vec![say("planned")],
        vec![say("done")],
    ]);
    let mut harness = Harness::with(script.clone()).await;
    let planned = told(&mut harness, "/plan add a file").await;
    assert!(planned.contains("can only read") && planned.contains("say planned"), "{planned}");
    assert!(!harness.dir.join("a.txt").exists());
    told(&mut harness, "go").await;
    let (first, last) = (&script.requests()[0], &script.requests()[2]);
    let has_write = |request: &ModelRequest| request.tools.iter().any(|tool| *tool.name == *"write");
    assert!(!has_write(first) && has_write(last));
    assert!(last_message(first).contains("add a file") && !last_message(first).contains("/plan"));
}

/// H18.
#[tokio::test]
async fn what_the_session_changed_can_be_read_in_every_client() {
    let edit =
        |old: &str, new: &str| call("edit", format!(r#"{{"path":"a.txt","old":"{old}","new":"{new}"}}"#));
    let script =
        Script::new([vec![edit("two", "2")], vec![call("write", r#"{"path":"b.md","text":"```\nx\n"}"#)]]);
    let mut harness = Harness::with(script).await;
    harness.write("a.txt", "one\ntwo\n");
    told(&mut harness, "go").await;
    let all = told(&mut harness, "/diff").await;
    assert!(all.contains("say ````diff|--- a/a.txt|+++ b/a.txt|@@ -1,2 +1,2 @@"), "{all}");
    assert!(all.contains("| one|-two|+2|--- /dev/null|+++ b/b.md|"), "{all}");
    let one = told(&mut harness, "/diff b.md").await;
    assert!(one.contains("+++ b/b.md") && !one.contains("a.txt"), "{one}");
    assert!(told(&mut harness, "/diff c.txt").await.contains("no unreviewed changes in c.txt"));
}

/// W8.
#[tokio::test]
async fn the_audit_of_a_session_is_shown_to_its_owner_alone() {
    let tune = |config: &mut agent::AgentConfig| {
        config.audit = Some(Arc::new(|id, upto, max| {
            assert!(upto > Seq::START, "the prompt is in the log");
            Box::pin(async move { Ok(vec![format!("{max} rows of {id}: `x`")]) })
        }));
    };
    let mut harness = Harness::project(Script::new([]), &[], tune).await;
    let shown = told(&mut harness, "/audit").await;
    let id = harness.session.id().to_string();
    assert!(shown.contains(&format!("```text|30 rows of {id}: 'x'|```")), "{shown}");
    let by = Sender::new(SurfaceId(2), "phone");
    harness.session.send(Input::Prompt { by, content: vec![Content::text("/audit")] }).await.unwrap();
    let events = harness.turn().await;
    let refused = harness.lines(&events);
    assert!(
        refused.contains("Nothing is shown: only the owner at the machine can read the audit log"),
        "{refused}"
    );
    assert!(!refused.contains("rows of"), "{refused}");
}
