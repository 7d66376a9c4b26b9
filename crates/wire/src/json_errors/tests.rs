use std::collections::BTreeMap;
use std::path::PathBuf;

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is only read into")]
struct Order {
    name: String,
    count: u64,
    #[serde(default)]
    price: f64,
    #[serde(default)]
    urgent: bool,
    #[serde(default)]
    folder: PathBuf,
    #[serde(default)]
    lines: Vec<Line>,
    #[serde(default)]
    pair: Option<(i64, i64)>,
    #[serde(default)]
    by_name: BTreeMap<String, Line>,
    colour: Option<Colour>,
    either: Option<Either>,
    strict: Option<Strict>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(dead_code, reason = "it is only read into")]
enum Line {
    Text { text: String },
    Picture { data: String },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it is only read into")]
enum Colour {
    Red,
    Mixed(Vec<u8>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is only read into")]
enum Either {
    Text(String),
    Number(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is only read into")]
struct Strict {
    known: Option<bool>,
}

fn is_plain_text(text: &str) -> bool {
    !names_internals(text) && ["Order", "Either", "Colour", "Strict"].iter().all(|name| !text.contains(name))
}

#[track_caller]
fn check(text: &str, expected: Expect) {
    let said = read::<Order>(text, "the order").unwrap_err().to_string();
    assert!(is_plain_text(&said), "{said}");
    expected.assert_eq(&said);
    // A value that was parsed before is explained in the same way.
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && let Err(error) = read_value::<Order>(value, "", "the order")
    {
        assert_eq!(error.to_string(), said);
    }
}

#[test]
fn the_field_what_was_expected_and_what_came_are_said() {
    check("7", expect!["the order must be an object, not 7"]);
    check("[]", expect!["the order must be an object, not a list"]);
    check("{}", expect!["`name` is missing"]);
    check(r#"{"name":"a"}"#, expect!["`count` is missing"]);
    check(r#"{"name":{},"count":1}"#, expect!["`name` must be a string, not an object"]);
    check(
        r#"{"name":"a","count":"secret words"}"#,
        expect!["`count` must be a whole number, 0 or more, not a string"],
    );
    check(r#"{"name":"a","count":-1}"#, expect!["`count` must be a whole number, 0 or more, not -1"]);
    check(r#"{"name":"a","count":1,"count":1}"#, expect!["`count` is given twice"]);
    check(r#"{"name":"a","count":1,"price":[]}"#, expect!["`price` must be a number, not a list"]);
    check(r#"{"name":"a","count":1,"urgent":null}"#, expect!["`urgent` must be true or false, not null"]);
    check(r#"{"name":"a","count":1,"folder":5}"#, expect!["`folder` must be a path, not 5"]);
    check(r#"{"name":"a","count":1,"lines":{}}"#, expect!["`lines` must be a list, not an object"]);
    check(
        r#"{"name":"a","count":1,"pair":[1]}"#,
        expect!["`pair` must be a list and cannot have the length 1"],
    );
}

#[test]
fn a_field_further_below_is_named_with_the_way_to_it() {
    check(
        r#"{"name":"a","count":1,"lines":[{"type":"text","text":"x"},{"type":"sound"}]}"#,
        expect!["`lines[1].type` must be one of text, picture, not `sound`"],
    );
    check(r#"{"name":"a","count":1,"lines":[{"text":"x"}]}"#, expect!["`lines[0].type` is missing"]);
    check(r#"{"name":"a","count":1,"lines":[{"type":"text"}]}"#, expect!["`lines[0].text` is missing"]);
    check(r#"{"name":"a","count":1,"byName":{"x":5}}"#, expect!["`byName.x` must be an object, not 5"]);
    check(
        r#"{"name":"a","count":1,"colour":"blue"}"#,
        expect!["`colour` must be one of red, mixed, not `blue`"],
    );
    check(
        r#"{"name":"a","count":1,"colour":{"mixed":"x"}}"#,
        expect!["`colour.mixed` must be a list, not a string"],
    );
    check(r#"{"name":"a","count":1,"either":[]}"#, expect!["`either` has an unsupported form"]);
    check(r#"{"name":"a","count":1,"strict":{"other":1}}"#, expect!["`strict.other` is not known here"]);
}

#[test]
fn what_the_peer_wrote_is_not_repeated_unless_it_is_a_plain_name() {
    check(
        r#"{"name":"a","count":1,"byName":{"struct a::b":5}}"#,
        expect!["`byName` must be an object, not 5"],
    );
    check(
        r#"{"name":"a","count":1,"colour":"an enum of mine, expected `x`"}"#,
        expect!["`colour` must be one of red, mixed"],
    );
    check(r#"{"name":"a","count":1,"strict":{"a::b":1}}"#, expect!["`strict` must not have unknown fields"]);
}

#[test]
fn what_is_no_json_says_where() {
    check("", expect!["not valid JSON: it ends too early"]);
    check(r#"{"name":"a"#, expect!["not valid JSON: it ends too early"]);
    check("{bad", expect!["not valid JSON: key must be a string, at position 2"]);
    check("{}\n{}", expect!["`name` is missing"]);
    check("{\"name\":\n,}", expect!["not valid JSON: expected value, at line 2, position 1"]);
    assert!(read::<Order>("{", "it").unwrap_err().is_syntax);
    assert!(!read::<Order>("{}", "it").unwrap_err().is_syntax);
    let bytes = read_bytes::<Order>(b"{\xff}", "it").unwrap_err();
    assert_eq!((bytes.is_syntax, bytes.to_string().as_str()), (true, "not valid JSON: it is not UTF-8"));
}

#[test]
fn a_value_inside_something_else_is_named_with_the_way_to_it() {
    let read = |value: Value| read_value::<Vec<Line>>(value, "prompt", "the prompt").unwrap_err().to_string();
    assert_eq!(read(serde_json::json!("x")), "`prompt` must be a list, not a string");
    assert_eq!(read(serde_json::json!([{ "type": "text" }])), "`prompt[0].text` is missing");
}

fn value() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("name".to_owned()),
        Just("count".to_owned()),
        Just("type".to_owned()),
        Just("lines".to_owned()),
        Just("byName".to_owned()),
        Just("colour".to_owned()),
        Just("either".to_owned()),
        Just("strict".to_owned()),
        Just("struct x::y, expected enum Z at line 1 column 2".to_owned()),
        Just("untagged ` variant".to_owned()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word.clone(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_value_makes_a_message_that_names_a_type(value in value()) {
        if let Err(error) = read::<Order>(&value.to_string(), "the order") {
            prop_assert!(is_plain_text(&error.to_string()), "{error}");
        }
        if let Err(error) = read_value::<Order>(value, "", "the order") {
            prop_assert!(is_plain_text(&error.to_string()), "{error}");
        }
    }
}
