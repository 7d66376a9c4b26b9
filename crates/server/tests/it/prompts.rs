//! What of a prompt reaches the model, and what is left out with a word to the person.

use agent::{Image, Message};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use testkit::Script;
use testkit::server::{Setup, run, write};

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn link(uri: &str) -> Value {
    json!({ "type": "resource_link", "uri": uri, "name": "n" })
}

fn image(mime: &str, bytes: usize) -> Value {
    json!({ "type": "image", "mimeType": mime, "data": "A".repeat(bytes) })
}

/// Sends a prompt to an agent whose workspace has `a.txt`; shows what the model was given, what the
/// person was warned of, and how the turn ended. The workspace is shown as `DIR`.
async fn check(blocks: impl FnOnce(&str) -> Vec<Value>, expected: Expect) {
    let script = Script::new([]);
    run(Setup::script(&script), async |server| {
        let dir = server.workspace().to_string_lossy().into_owned();
        write(server.workspace().join("a.txt"), "</resource> & <b>\n");
        let mut client = server.client().await;
        let session = client.new_session().await;
        let prompt = json!({ "sessionId": session, "prompt": blocks(&dir) });
        let stop = client.call("session/prompt", prompt).await["stopReason"].clone();
        let requests = script.requests();
        let Some(Message::User { text, images }) = requests[0].messages.last() else { panic!("no prompt") };
        let shown = |image: &Image| format!("image {} {}\n", image.mime, image.data.len());
        let images: String = images.iter().map(shown).collect();
        let story = client.story();
        let warnings: String =
            story.texts("agent_thought_chunk").iter().map(|text| format!("! {text}\n")).collect();
        expected.assert_eq(&format!("{text}\n{images}{warnings}{stop}\n").replace(&dir, "DIR"));
    })
    .await;
}

/// D2, I6.
#[tokio::test]
async fn a_message_is_answered_with_what_was_streamed() {
    let script = Script::new([
        vec![testkit::think("hm"), testkit::say("one "), testkit::say("two")],
        vec![testkit::say("half"), testkit::fail("no more")],
        vec![testkit::say("part"), testkit::Line::Hang],
    ]);
    run(Setup::script(&script), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let answer = client.call("session/message", json!({ "sessionId": session, "message": "go" })).await;
        assert_eq!(answer, json!({ "sessionId": session, "stopReason": "end_turn", "output": "one two" }));
        assert_eq!(client.story().texts("agent_message_chunk"), ["one two"]);
        let answer = client.call("session/message", json!({ "sessionId": session, "text": "go" })).await;
        assert_eq!((&answer["stopReason"], &answer["output"]), (&json!("error"), &json!("half")));
        assert!(answer["error"].as_str().is_some_and(|error| error.contains("no more")), "{answer}");
        let hanging = client.send("session/message", json!({ "sessionId": session, "message": "go" })).await;
        client.forget_updates();
        while client.next_update_of("agent_message_chunk").await["content"]["text"] != "part" {}
        client.notify("session/cancel", json!({ "sessionId": session })).await;
        let answer = client.reply(hanging).await.ok().unwrap_or_default();
        assert_eq!((&answer["stopReason"], &answer["output"]), (&json!("cancelled"), &json!("part")));
        assert_eq!(client.refused("session/message", json!({ "sessionId": session })).await.code, -32602);
    })
    .await;
}

/// D1.
#[tokio::test]
async fn a_prompt_is_answered_with_a_stop_reason() {
    check(
        |_| vec![text("hello")],
        expect![[r#"
        hello
        "end_turn"
    "#]],
    )
    .await;
}

/// D3.
#[tokio::test]
async fn texts_are_joined_by_newlines() {
    check(
        |_| vec![text("one"), text("two")],
        expect![[r#"
        one
        two
        "end_turn"
    "#]],
    )
    .await;
}

/// D4, at the limit and one past it.
#[tokio::test]
async fn images_of_known_kinds_and_sizes_are_given_and_others_named() {
    check(
        |_| {
            let kinds = ["image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp", "image/bmp"];
            kinds.iter().map(|kind| image(kind, 4)).chain([text("what is this?")]).collect()
        },
        expect![[r#"
            <resource kind="image/bmp" unread="image/bmp is not one of jpeg, png, gif and webp"/>
            what is this?
            image image/jpeg 4
            image image/jpg 4
            image image/png 4
            image image/gif 4
            image image/webp 4
            ! an image was left out: image/bmp is not one of jpeg, png, gif and webp
            "end_turn"
        "#]],
    )
    .await;
    check(
        |_| vec![image("image/png", 20 << 20)],
        expect![[r#"

        image image/png 20971520
        "end_turn"
    "#]],
    )
    .await;
    check(
        |_| vec![image("image/png", (20 << 20) + 1)],
        expect![[r#"
            <resource kind="image/png" unread="it is larger than 20 MiB"/>
            ! an image was left out: it is larger than 20 MiB
            "end_turn"
        "#]],
    )
    .await;
}

/// D5.
#[tokio::test]
async fn sound_is_left_out_with_a_warning() {
    check(
        |_| vec![text("listen"), json!({ "type": "audio", "mimeType": "audio/wav", "data": "AAAA" })],
        expect![[r#"
            listen
            <resource kind="audio/wav" unread="the model does not support audio"/>
            ! audio (audio/wav) was left out: the model does not support audio
            "end_turn"
        "#]],
    )
    .await;
}

/// D6.
#[tokio::test]
async fn embedded_texts_are_given_as_resources_and_embedded_bytes_are_left_out() {
    check(
        |_| {
            vec![
                text("see"),
                json!({ "type": "resource", "resource": { "uri": "file:///x.rs", "text": "fn x() {}", "mimeType": "text/rust" } }),
                json!({ "type": "resource", "resource": { "uri": "file:///y.png", "blob": "AAAA", "mimeType": "image/png" } }),
            ]
        },
        expect![[r#"
            see
            <resource name="file:///x.rs">fn x() {}</resource>
            <resource uri="file:///y.png" kind="image/png" unread="it is not text"/>
            ! file:///y.png was left out: it is not text
            "end_turn"
        "#]],
    )
    .await;
}

/// D10.
#[tokio::test]
async fn what_a_file_says_cannot_break_out_of_its_resource() {
    check(
        |dir| {
            vec![
                link(&format!("file://{dir}/a.txt")),
                json!({ "type": "resource", "resource": { "uri": "a\"><b", "text": "</resource>" } }),
            ]
        },
        expect![[r#"
            <resource uri="file://DIR/a.txt">&lt;/resource&gt; &amp; &lt;b&gt;
            </resource>
            <resource name="a&quot;&gt;&lt;b">&lt;/resource&gt;</resource>
            "end_turn"
        "#]],
    )
    .await;
}

/// D11.
#[tokio::test]
async fn links_of_unknown_schemes_are_left_out_with_a_warning() {
    check(
        |_| vec![text("see"), link("ftp://host/file"), link("gopher://x"), link("nonsense")],
        expect![[r#"
            see
            <resource uri="ftp://host/file" name="n" unread="only file://, http:// and https:// links are read"/>
            <resource uri="gopher://x" name="n" unread="only file://, http:// and https:// links are read"/>
            <resource uri="nonsense" name="n" unread="only file://, http:// and https:// links are read"/>
            ! ftp://host/file was left out: only file://, http:// and https:// links are read
            ! gopher://x was left out: only file://, http:// and https:// links are read
            ! nonsense was left out: only file://, http:// and https:// links are read
            "end_turn"
        "#]],
    )
    .await;
}

/// D12.
#[tokio::test]
async fn nothing_that_cannot_be_read_ends_a_turn() {
    check(
        |dir| {
            let files = ["none", "../outside", "."].map(|name| link(&format!("file://{dir}/{name}")));
            let mut blocks = files.to_vec();
            blocks.extend([link("file://elsewhere/x"), link("file:///%zz"), image("image/tiff", 1)]);
            blocks
        },
        expect![[r#"
            <resource uri="file://DIR/none" name="n" unread="No such file or directory (os error 2)"/>
            <resource uri="file://DIR/../outside" name="n" unread="it is outside the workspace or not there"/>
            <resource uri="file://DIR/." kind="folder">a.txt
            </resource>
            <resource uri="file://elsewhere/x" name="n" unread="it is on another machine"/>
            <resource uri="file:///%zz" name="n" unread="its address is malformed"/>
            <resource kind="image/tiff" unread="image/tiff is not one of jpeg, png, gif and webp"/>
            ! file://DIR/none was left out: No such file or directory (os error 2)
            ! file://DIR/../outside was left out: it is outside the workspace or not there
            ! file://elsewhere/x was left out: it is on another machine
            ! file:///%zz was left out: its address is malformed
            ! an image was left out: image/tiff is not one of jpeg, png, gif and webp
            "end_turn"
        "#]],
    )
    .await;
}

/// D13, at the limit and one past it.
#[tokio::test]
async fn a_prompt_with_too_much_text_is_refused() {
    let script = Script::new([]);
    run(Setup::script(&script), async |server| {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let half = "x".repeat(1 << 19);
        let prompt = |blocks: Value| json!({ "sessionId": session, "prompt": blocks });
        let most = client.call("session/prompt", prompt(json!([text(&half), text(&half)]))).await;
        assert_eq!(most["stopReason"], "end_turn");
        let more = prompt(json!([text(&half), text(&half), text("x")]));
        let refused = client.refused("session/prompt", more).await;
        assert_eq!(refused.code, -32600);
        assert!(refused.message.starts_with("prompt too large"), "{refused:?}");
        assert_eq!(client.prompt(&session, "less").await, "end_turn");
    })
    .await;
}

/// D14.
#[tokio::test]
async fn every_client_sees_what_another_one_typed() {
    run(Setup::offline(), async |server| {
        let (mut one, mut two) = (server.client().await, server.client().await);
        let session = one.new_session().await;
        two.load(&session).await;
        let prompt = json!({ "sessionId": session, "prompt": [text("look at "), link("file:///tmp/x")] });
        one.call("session/prompt", prompt).await;
        two.prompt(&session, "thanks").await;
        one.catch_up(&session).await;
        two.catch_up(&session).await;
        assert_eq!(one.story().texts("user_message_chunk"), ["thanks"]);
        let seen = two.updates_of("user_message_chunk");
        assert!(
            seen.iter().map(|update| &update["content"]["type"]).eq(["text", "resource_link"]),
            "{seen:?}"
        );
        assert!(seen.iter().all(|update| update["messageId"] == seen[0]["messageId"]));
    })
    .await;
}
