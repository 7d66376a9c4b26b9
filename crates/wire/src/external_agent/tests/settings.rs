//! Settings in the three forms that agents use.

use engine::Category;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Session, raw};
use crate::external_agent::{SettingMethod, SettingOffers, UpdateTranslator, setting_request};

fn offers(result: Value) -> SettingOffers {
    SettingOffers::of(&raw(&result))
}

fn check(result: Value, expected: Expect) {
    let offers = offers(result);
    let mut lines = String::new();
    for spec in offers.specs() {
        let choices: Vec<_> =
            spec.choices.iter().map(|choice| format!("{}={}", choice.value, choice.name)).collect();
        let value = offers.value(&spec.id).unwrap();
        let method = offers.method(&spec.id).unwrap();
        lines.push_str(&format!(
            "{} {:?} {:?} {value} {method:?} {choices:?}\n",
            spec.id, spec.name, spec.category
        ));
    }
    expected.assert_eq(&lines);
}

fn modes() -> Value {
    json!({ "currentModeId": "default", "availableModes": [
        { "id": "default", "name": "Default", "description": "Prompts for approval" },
        { "id": "yolo", "name": "YOLO" },
    ] })
}

fn models() -> Value {
    json!({ "currentModelId": "big", "availableModels": [
        { "modelId": "auto", "name": "Auto" }, { "modelId": "big", "name": "Big", "description": null },
    ] })
}

fn select(id: &str, category: Value) -> Value {
    json!({
        "id": id, "name": "Mode", "category": category, "type": "select", "currentValue": "a",
        "options": [{ "value": "a", "name": "A" }, { "value": "b", "name": "B" }],
    })
}

/// Gemini and qwen.
#[test]
fn modes_and_models_are_settings_where_there_are_no_options() {
    check(
        json!({ "sessionId": "s", "modes": modes(), "models": models() }),
        expect![[r#"
            mode "Mode" Mode default Mode ["default=Default", "yolo=YOLO"]
            model "Model" Model big Model ["auto=Auto", "big=Big"]
        "#]],
    );
}

/// Claude, codex and kimi send all three.
#[test]
fn options_stand_for_modes_and_models() {
    check(
        json!({
            "modes": modes(), "models": models(),
            "configOptions": [select("permissions", json!("mode")), select("model", Value::Null)],
        }),
        expect![[r#"
            permissions "Mode" Mode a Option { id: "permissions", boolean: false } ["a=A", "b=B"]
            model "Mode" Model a Option { id: "model", boolean: false } ["a=A", "b=B"]
        "#]],
    );
}

#[test]
fn options_in_groups_are_one_list_and_switches_have_two_choices() {
    check(
        json!({ "configOptions": [
            { "id": "m", "name": "M", "category": "model", "type": "select", "currentValue": "x", "options": [
                { "group": "one", "name": "One", "options": [{ "value": "x", "name": "X" }] },
                { "group": "two", "name": "Two", "options": [{ "value": "y", "name": "Y" }] },
            ] },
            { "id": "think", "name": "Think", "category": "thought_level", "type": "boolean", "currentValue": true },
        ] }),
        expect![[r#"
            m "M" Model x Option { id: "m", boolean: false } ["x=X", "y=Y"]
            think "Think" ModelConfig true Option { id: "think", boolean: true } ["true=On", "false=Off"]
        "#]],
    );
}

#[test]
fn what_is_chosen_can_be_chosen_though_it_is_not_listed() {
    check(
        json!({ "models": { "currentModelId": "hidden", "availableModels": [] } }),
        expect![[r#"
            model "Model" Model hidden Model ["hidden=hidden"]
        "#]],
    );
}

/// The approval setting decides what the agent may do.
#[test]
fn an_option_of_the_agents_is_never_taken_for_the_approval_preset() {
    let offers = offers(json!({ "configOptions": [select("approval", json!("other"))] }));
    assert_eq!(&*offers.specs()[0].id, "agent-approval");
    assert_eq!(offers.specs()[0].category, Category::Other);
    let (method, params) = setting_request(&offers, "s", "agent-approval", "b").unwrap();
    assert_eq!((method, &params["configId"]), ("session/set_config_option", &json!("approval")));
    // Its own JSON would use an id of ours.
    let mut session = Session { translator: UpdateTranslator::new(offers), ..Session::default() };
    let mut changed = select("approval", json!("other"));
    changed["currentValue"] = json!("b");
    let told =
        session.lines(&[json!({ "sessionUpdate": "config_option_update", "configOptions": [changed] })]);
    assert_eq!(told, ". set agent-approval b\n");
}

#[test]
fn malformed_options_are_left_out_and_there_is_a_limit() {
    let many: Vec<_> = (0..5000).map(|n| json!({ "value": n.to_string(), "name": "x" })).collect();
    let offers = offers(json!({ "configOptions": [
        {}, 7, { "id": "x" }, { "id": "y", "options": [] }, { "id": "", "currentValue": "a", "options": [] },
        { "id": "many", "currentValue": "0", "options": many },
        select("one", Value::Null), select("one", Value::Null), select(&"z".repeat(1000), Value::Null),
    ] }));
    let specs = offers.specs();
    assert_eq!(specs.iter().map(|spec| spec.id.as_ref()).collect::<Vec<_>>(), ["many", "one"]);
    assert_eq!(specs[0].choices.len(), 1024);
}

#[test]
fn each_is_set_in_the_way_of_its_kind() {
    let offers = offers(json!({
        "modes": modes(), "models": models(),
        "configOptions": [
            select("effort", json!("thought_level")),
            { "id": "web", "name": "Web", "type": "boolean", "currentValue": false },
        ],
    }));
    let request = |id: &str, value: &str| {
        let (method, params) = setting_request(&offers, "s", id, value).unwrap();
        format!("{method} {params}\n")
    };
    let told =
        [request("mode", "yolo"), request("model", "auto"), request("effort", "b"), request("web", "true")];
    expect![[r#"
        session/set_mode {"sessionId":"s","modeId":"yolo"}
        session/set_model {"sessionId":"s","modelId":"auto"}
        session/set_config_option {"sessionId":"s","configId":"effort","value":"b"}
        session/set_config_option {"sessionId":"s","configId":"web","type":"boolean","value":true}
    "#]]
    .assert_eq(&told.concat());
    assert_eq!(setting_request(&offers, "s", "approval", "full"), None);
    assert_eq!(offers.method("mode"), Some(&SettingMethod::Mode));
}

#[test]
fn the_answer_to_a_choice_tells_what_else_it_changed() {
    let first = json!({ "configOptions": [select("mode", json!("mode")), select("model", json!("model"))] });
    let mut translator = UpdateTranslator::new(offers(first.clone()));
    translator.note_choice("mode", &"b".into());
    let mut answer = first;
    answer["configOptions"][0]["currentValue"] = json!("b");
    answer["configOptions"][1]["currentValue"] = json!("b");
    let heard = translator.translate_options(&raw(&answer));
    assert_eq!(heard.len(), 1);
    assert_eq!(super::brief(&heard[0].said.body), "set model b");
    assert_eq!(heard[0].said.relayed, None);
}
