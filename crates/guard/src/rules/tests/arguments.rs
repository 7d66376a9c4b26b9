//! Answers about exact arguments.

use super::*;

#[test]
fn arguments_are_the_same_however_they_are_spelled() {
    let world = World::new();
    let book = world.book();
    let key = |tool: &str, subject: &str, input: &str| {
        book.arguments_key(tool, subject, &engine::Opaque(input.into()))
    };
    let same = |tool: &str, one: (&str, &str), other: (&str, &str)| {
        key(tool, one.0, one.1) == key(tool, other.0, other.1)
    };
    assert!(same("shell", ("git  push 'x'", "{}"), (" git push x", r#"{"timeout_seconds":9}"#)));
    assert!(!same("shell", ("git push x", "{}"), ("git push 'x y'", "{}")));
    assert!(!same("shell", ("echo 'a b'", "{}"), ("echo a b", "{}")));
    assert!(
        !same("shell", ("make; make a", "{}"), ("make;  make a", "{}")),
        "only a single command is looked through"
    );
    assert!(!same("shell", ("echo '$X'", "{}"), ("echo $X", "{}")));
    assert!(same("edit", ("/w/a", r#"{"old":"1", "new":"2"}"#), ("/w/a", r#"{"new":"2","old":"1"}"#)));
    assert!(!same("edit", ("/w/a", r#"{"old":"1","new":"2"}"#), ("/w/a", r#"{"old":"1","new":"3"}"#)));
    assert!(!same("edit", ("/w/a", r#"{"old":"1"}"#), ("/w/b", r#"{"old":"1"}"#)));
    assert!(same("mcp__s__t", ("mcp__s__t", r#"{"id": 7}"#), ("mcp__s__t", r#"{"id":7}"#)));
    assert!(!same("mcp__s__t", ("mcp__s__t", r#"{"id":7}"#), ("mcp__s__t", r#"{"id":"7"}"#)));
    assert!(!same("mcp__s__t", ("mcp__s__t", "not json"), ("mcp__s__t", "nor this")));
}

/// G11: the same tool with the same arguments, and nothing else.
#[test]
fn an_answer_about_exact_arguments_holds_for_these_alone() {
    let world = World::new();
    let (book, work) = (world.book(), world.work());
    let request = |tool: &str, subject: &str, input: &str| AskRequest {
        input: engine::Opaque(input.into()),
        ..hypothetical_request(tool, subject, &work, None)
    };
    let answer = |request: &AskRequest, allow: bool| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = RememberedAnswer {
            workspace: work.clone(),
            tool: Arc::clone(&request.tool),
            subject: Arc::clone(&request.subject),
            consent: None,
            scope: RuleScope::Arguments(request.input.clone()),
            allow,
        };
        runtime.block_on(book.remember(answer)).unwrap().to_string()
    };
    let shell = |line: &str| request("shell", line, &serde_json::json!({ "command": line }).to_string());
    let edit = |path: &str, input: &str| request("edit", path, input);
    let server = |input: &str| request("mcp__s__t", "mcp__s__t", input);
    assert_eq!(answer(&shell("cargo  test"), true), "shell(cargo  test)");
    let told = answer(&edit("src/a.rs", r#"{"path": "src/a.rs", "new": "b)", "old": "a"}"#), true);
    assert_eq!(told, r#"edit(src/a.rs={"new":"b)","old":"a","path":"src/a.rs"})"#);
    let told = answer(&server(r#"{"b": [1, {"d": 1, "c": "x\n"}], "a": null}"#), false);
    assert_eq!(told, r#"mcp__s__t(={"a":null,"b":[1,{"c":"x\n","d":1}]})"#);
    for book in [book, world.book()] {
        let said = |request: &AskRequest| book.find(&work, request).map(|hit| (hit.effect, hit.exact));
        use RuleEffect::{Allow, Deny};
        // A single command is the same however it is spaced.
        assert_eq!(said(&shell("cargo test")).map(|(effect, _)| effect), Some(Allow));
        assert_eq!(said(&shell("cargo test -p x")), None);
        let same = r#"{"old":"a","new":"b)","path":"src/a.rs"}"#;
        assert_eq!(said(&edit("src/a.rs", same)), Some((Allow, true)));
        assert_eq!(said(&edit("src/a.rs", r#"{"old":"a","new":"c","path":"src/a.rs"}"#)), None);
        assert_eq!(said(&edit("src/b.rs", same)), None, "what the path leads to counts too");
        assert_eq!(said(&server(r#"{"a":null,"b":[1,{"c":"x\n","d":1}]}"#)), Some((Deny, true)));
        assert_eq!(said(&server(r#"{"a":null,"b":[1,{"c":"x","d":1}]}"#)), None);
        assert_eq!(said(&server("not json")), None);
    }
}
