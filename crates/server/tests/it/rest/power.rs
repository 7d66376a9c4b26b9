//! Power cuts under readers: what was told may be lost, and no number or name comes back for anything else.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use testkit::server::{Server, Setup, run};
use wire::Dialect::Otter;

use crate::rest::door::{Door, Frame};

const FORMS: [&str; 2] = ["loop_event", "text_delta"];

/// Gives the session a name: an event that is told at once and synced by nobody.
async fn rename(door: &Door, id: &str, title: &str) {
    let body = json!({ "title": title });
    door.send("PATCH", format!("/sessions/{id}"), body).answer().await.is(StatusCode::OK);
}

/// Everything that a reader is told after a number, up to the last name that the session was given.
async fn told(door: &Door, id: &str, form: &str, after: u64, last: &str) -> Vec<Frame> {
    let ask = door.get(format!("/session/{id}/events?format={form}&follow=1"));
    let mut stream = ask.header("last-event-id", after.to_string()).stream().await;
    let mut frames = Vec::new();
    loop {
        let frame = stream.next().await.unwrap();
        let inner = frame.data.get("data").or(frame.data.get("metadata")).cloned().unwrap_or_default();
        frames.push(frame);
        if inner["title"] == last {
            return frames;
        }
    }
}

/// Every update that otter has kept, by its number.
async fn otter(server: &mut Server, id: &str, after: u64) -> (Value, BTreeMap<u64, Value>) {
    let mut client = server.older_client(Otter).await;
    let answer = client.call("session/resume", json!({ "sessionId": id, "sinceEventId": after })).await;
    let updates = client.take_updates();
    let number = |update: &Value| update["eventId"].as_u64().unwrap();
    (answer, updates.iter().map(|update| (number(update), update["update"].clone())).collect())
}

/// Fails if a number that was given before means something else now.
#[track_caller]
fn unchanged<T: PartialEq + std::fmt::Debug>(before: &BTreeMap<u64, T>, after: &BTreeMap<u64, T>) {
    for (number, meaning) in after {
        assert!(before.get(number).is_none_or(|given| given == meaning), "{number}: {meaning:?}");
    }
}

fn by_number(frames: &[Frame]) -> BTreeMap<u64, Frame> {
    frames.iter().filter_map(|frame| Some((frame.id?, frame.clone()))).collect()
}

#[tokio::test]
async fn after_a_power_cut_readers_go_on_and_no_number_means_anything_else() {
    run(Setup::offline().on_disk(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        let first_message = door.say(&id, "stream 5 10").await;
        server.idle(&id).await;
        // The cut takes the last names, which every reader has been told of.
        let disk = server.disk();
        for number in 0..5 {
            rename(&door, &id, &format!("lost {number}")).await;
        }
        let mut before = Vec::new();
        for form in FORMS {
            before.push(by_number(&told(&door, &id, form, 0, "lost 4").await));
        }
        let (_, otter_before) = otter(server, &id, 0).await;
        let newest: Vec<u64> = before.iter().map(|told| *told.keys().last().unwrap()).collect();
        door.close().await;
        server.power_cut(&disk).await;

        let door = Door::open(server);
        let message = door.say(&id, "stream 3 10").await;
        assert_ne!(message, first_message);
        server.idle(&id).await;
        rename(&door, &id, "back").await;
        for ((form, before), newest) in FORMS.into_iter().zip(&before).zip(newest) {
            let whole = told(&door, &id, form, 0, "back").await;
            unchanged(before, &by_number(&whole));
            // Whoever has the newest frame that was lost misses nothing of what came after it, and is told.
            let back = told(&door, &id, form, newest, "back").await;
            assert!(back.iter().all(|frame| frame.id.unwrap() > newest), "{form}");
            let said = back.iter().filter(|frame| frame.text().contains("stream 3 10"));
            assert_eq!(said.count(), 1, "{form}: the prompt is told once: {back:?}");
            assert!(back[0].data.to_string().contains("may be missing"), "{form}: {:?}", back[0]);
        }
        let newest = *otter_before.keys().last().unwrap();
        let (answer, after) = otter(server, &id, newest).await;
        assert_eq!(answer["truncated"], false);
        assert!(after.values().any(|update| update["sessionUpdate"] == "turn_end"), "{after:?}");
        unchanged(&otter_before, &otter(server, &id, 0).await.1);
        door.close().await;
    })
    .await;
}

/// A session that is only looked at after a power cut, and then left alone, keeps its gap.
#[tokio::test]
async fn what_a_power_cut_took_stays_left_out_however_often_the_session_is_opened() {
    run(Setup::offline().on_disk(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        door.say(&id, "stream 1").await;
        server.idle(&id).await;
        let disk = server.disk();
        rename(&door, &id, "lost").await;
        let before = by_number(&told(&door, &id, "loop_event", 0, "lost").await);
        door.close().await;
        server.power_cut(&disk).await;
        server.handle(&id).await;
        let disk = server.disk();
        server.restart().await;
        server.handle(&id).await;
        server.power_cut(&disk).await;
        let door = Door::open(server);
        rename(&door, &id, "back").await;
        let after = by_number(&told(&door, &id, "loop_event", 0, "back").await);
        unchanged(&before, &after);
        assert!(after.keys().last() > before.keys().last());
        door.close().await;
    })
    .await;
}

#[tokio::test]
async fn after_a_number_at_or_above_the_newest_comes_what_is_new() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        let id = door.session().await;
        door.say(&id, "stream 1").await;
        server.idle(&id).await;
        for form in FORMS {
            let now = format!("now {form}");
            rename(&door, &id, &now).await;
            let newest = told(&door, &id, form, 0, &now).await.pop().unwrap().id.unwrap();
            let path = format!("/session/{id}/events?format={form}&follow=1");
            let mut streams = vec![door.get(format!("{path}&from=live")).stream().await];
            for named in [newest.to_string(), (newest + 1).to_string(), "99999999999999999999999".into()] {
                streams.push(door.get(&path).header("last-event-id", &named).stream().await);
            }
            rename(&door, &id, "live").await;
            for stream in &mut streams {
                assert_eq!(stream.next().await.unwrap().id, Some(newest + 1), "{form}");
            }
        }
        let (answer, told) = otter(server, &id, 1 << 40).await;
        assert_eq!((&answer["truncated"], &answer["replayed"]), (&json!(false), &json!(0)));
        assert!(told.is_empty());
        door.close().await;
    })
    .await;
}
