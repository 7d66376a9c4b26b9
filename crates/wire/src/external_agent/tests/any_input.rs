//! Whatever an agent sends, nothing breaks, and the resulting events can be stored.

use std::collections::BTreeSet;

use engine::{Body, MessageId};
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::raw;
use crate::external_agent::{
    SettingOffers, UpdateTranslator, initialize_response, permission_request, prompt_response,
    session_response, setting_request,
};

/// Words of the protocol, so that random input gets past the first checks.
const WORDS: [&str; 36] = [
    "sessionUpdate",
    "tool_call",
    "tool_call_update",
    "toolCallId",
    "title",
    "kind",
    "status",
    "content",
    "type",
    "text",
    "diff",
    "path",
    "newText",
    "terminal",
    "terminalId",
    "locations",
    "rawInput",
    "rawOutput",
    "_meta",
    "claudeCode",
    "parentToolUseId",
    "completed",
    "c",
    "agent_message_chunk",
    "messageId",
    "plan",
    "entries",
    "config_option_update",
    "configOptions",
    "options",
    "currentValue",
    "id",
    "usage_update",
    "used",
    "size",
    "cost",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned), 1 => ".{0,6}"]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Well-formed updates.
fn well_formed() -> Vec<Value> {
    let shown = json!([
        { "type": "content", "content": { "type": "text", "text": "out" } },
        { "type": "diff", "path": "/p/a", "oldText": null, "newText": "b" },
        { "type": "terminal", "terminalId": "t" },
    ]);
    vec![
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "ls", "kind": "execute", "status": "pending",
            "content": shown, "locations": [{ "path": "/p", "line": 1 }], "rawInput": { "command": ["ls"] } }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": shown,
            "rawOutput": { "exit_code": 1 }, "_meta": { "claudeCode": { "parentToolUseId": "c" } } }),
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": { "type": "text", "text": "a" } }),
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "a", "priority": "low", "status": "pending" }] }),
        json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": { "amount": 0.5, "currency": "USD" } }),
        json!({ "sessionUpdate": "config_option_update", "configOptions": [{ "id": "mode", "type": "select",
            "name": "Mode", "currentValue": "a", "options": [{ "group": "g", "options": [{ "value": "a" }] }] }] }),
        json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "a", "input": {} }] }),
        json!({ "sessionUpdate": "session_info_update", "title": "t" }),
    ]
}

/// One part of a value, replaced by something else.
fn mutated() -> impl Strategy<Value = Value> {
    (prop::sample::select(well_formed()), any::<prop::sample::Index>(), any_json()).prop_map(
        |(mut update, at, other)| {
            let mut places = Vec::new();
            places_of(&update, String::new(), &mut places);
            if let Some(place) = update.pointer_mut(&places[at.index(places.len())]) {
                *place = other;
            }
            update
        },
    )
}

fn places_of(value: &Value, path: String, places: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| places_of(item, format!("{path}/{n}"), places));
        }
        Value::Object(members) => {
            members.iter().for_each(|(name, item)| places_of(item, format!("{path}/{name}"), places));
        }
        _ => {}
    }
    places.push(path);
}

fn update() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => any_json(),
        4 => mutated(),
        2 => prop::sample::select(well_formed()),
    ]
}

proptest! {
    #[test]
    fn calls_begin_before_they_end_and_nothing_breaks(
        updates in prop::collection::vec((update(), any::<bool>()), 0..24),
    ) {
        let mut translator = UpdateTranslator::default();
        let mut messages = 0;
        let mut open = BTreeSet::new();
        for (update, in_turn) in updates {
            let params = raw(&json!({ "sessionId": "s", "update": update }));
            let mut next = || { messages += 1; MessageId(messages) };
            for heard in translator.translate(&params, &mut next, in_turn) {
                if let Some(words) = heard.said.relayed.filter(|words| !words.0.is_empty()) {
                    prop_assert_eq!(serde_json::from_str::<Value>(&words.0).unwrap(), update.clone());
                }
                match heard.said.body {
                    Body::ToolStarted(start) => {
                        prop_assert!(in_turn);
                        prop_assert!(open.insert(start.call), "begun twice");
                    }
                    Body::ToolChanged(change) => prop_assert!(open.contains(&change.call)),
                    Body::ToolOutput { call, .. } => prop_assert!(open.contains(&call)),
                    Body::ToolEnded(end) => prop_assert!(open.remove(&end.call)),
                    Body::Usage(usage) => prop_assert!(usage.cost_usd.is_finite() && usage.cost_usd >= 0.0),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn answers_and_questions_may_say_anything(said in any_json(), id in word()) {
        let said = raw(&said);
        drop(initialize_response(&said));
        drop(permission_request(&said));
        let (_, offers) = (prompt_response(&said), session_response(&said).offers);
        for (spec, value) in offers.specs().iter().zip(offers.values()) {
            prop_assert!(spec.offers(value.1), "what is chosen can be chosen");
        }
        setting_request(&offers, "s", &id, &id);
        prop_assert_eq!(SettingOffers::of(&said), offers);
    }
}

#[test]
fn deep_wide_and_doubled_json_is_taken_as_it_is() {
    let deep = format!(
        r#"{{"update":{{"sessionUpdate":"tool_call","toolCallId":"c","title":"x","rawInput":{}{}}}}}"#,
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    let wide = format!(
        r#"{{"update":{{"sessionUpdate":"plan",{}"entries":[]}}}}"#,
        (0..5000).map(|n| format!(r#""a{n}":1,"#)).collect::<String>()
    );
    let doubled = r#"{"update":{"sessionUpdate":"plan","sessionUpdate":"notice","title":"a"}}"#.to_owned();
    for (params, kind) in [(deep, "started"), (wide, "foreign"), (doubled, "notice")] {
        let params = RawValue::from_string(params).unwrap();
        let heard = UpdateTranslator::default().translate(&params, &mut || MessageId(1), true);
        let told: Vec<_> = heard.iter().map(|heard| super::brief(&heard.said.body)).collect();
        assert!(told[0].starts_with(kind), "{}", &told[0][..told[0].len().min(100)]);
    }
}
