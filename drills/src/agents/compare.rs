//! Compares two records, apart from a written list of allowed differences.
//!
//! The list is `tests/agents/differences.json`: each entry is one of a few rules, with its reason. Whatever no
//! rule allows is a difference, and is named by its step, its frame and the place in it.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::normalize::NormalizedFrame;
use super::scenario;

/// How long a value may be in a report.
const SHOWN_CHARS: usize = 160;

/// The list, and what is known to vary from run to run of one agent.
#[derive(Default)]
pub struct Rules {
    apart: Vec<String>,
    same_name: Vec<String>,
    ignore: Vec<Vec<String>>,
    /// The same in frames of these kinds only.
    ignore_in: Vec<(Vec<String>, Vec<String>)>,
    merge: Vec<String>,
    more: Vec<String>,
    any_time: Vec<String>,
    last_counts: Vec<String>,
    ended: Vec<String>,
    extra: Vec<String>,
    absent: Vec<String>,
    /// Texts that a number of the moment stands after.
    numbers: Vec<String>,
}

impl Rules {
    pub fn read(varies: &[(String, String)]) -> anyhow::Result<Self> {
        Self::of(&scenario::read("differences.json")?, varies)
    }

    fn of(list: &Value, varies: &[(String, String)]) -> anyhow::Result<Self> {
        let mut rules = Self::default();
        for entry in list.as_array().context("the differences are a list")? {
            entry["reason"].as_str().with_context(|| format!("a difference needs its reason: {entry}"))?;
            let names = |key: &str| -> anyhow::Result<Vec<String>> {
                let names = entry[key].as_array().with_context(|| format!("{key} is missing: {entry}"))?;
                Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
            };
            match entry["rule"].as_str() {
                Some("apart") => rules.apart.extend(names("steps")?),
                Some("same name") => rules.same_name.extend(names("fields")?),
                Some("ignore") if entry["frames"].is_array() => {
                    let frames = names("frames")?;
                    let fields = names("fields")?;
                    rules.ignore_in.extend(fields.iter().map(|field| (frames.clone(), path(field))));
                }
                Some("ignore") => rules.ignore.extend(names("fields")?.iter().map(|field| path(field))),
                Some("merge") => rules.merge.extend(names("frames")?),
                Some("more") => rules.more.extend(names("frames")?),
                Some("any time") => rules.any_time.extend(names("frames")?),
                Some("last counts") => rules.last_counts.extend(names("frames")?),
                Some("ended") => rules.ended.extend(names("frames")?),
                Some("extra") => rules.extra.extend(names("frames")?),
                Some("absent") => rules.absent.extend(names("frames")?),
                _ => bail!("no rule is known as {}", entry["rule"]),
            }
        }
        for (what, _) in varies {
            match what.split_once(' ') {
                Some(("frame", kind)) => rules.any_time.push(kind.to_owned()),
                Some(("text", before)) => rules.numbers.push(before.to_owned()),
                _ => rules.ignore.push(path(what)),
            }
        }
        Ok(rules)
    }

    pub fn apart(&self, step: &str) -> bool {
        self.apart.iter().any(|apart| apart == step)
    }

    pub fn same_name(&self, field: &str) -> bool {
        self.same_name.iter().any(|name| name == field)
    }

    /// Takes out what does not count.
    pub fn ignored(&self, kind: &str, frame: &mut Value) {
        self.ignore.iter().for_each(|path| take_out(frame, path));
        let of_kind = self.ignore_in.iter().filter(|(kinds, _)| kinds.iter().any(|known| known == kind));
        of_kind.for_each(|(_, path)| take_out(frame, path));
    }

    /// A text without the numbers of the moment.
    pub fn unnumbered(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for before in &self.numbers {
            let parts = text.split(before.as_str()).enumerate();
            let parts = parts.map(|(at, part)| match at {
                0 => part.to_owned(),
                _ => format!("{before}N{}", part.trim_start_matches(|first: char| first.is_ascii_digit())),
            });
            text = parts.collect();
        }
        text
    }

    fn has(list: &[String], said: &NormalizedFrame) -> bool {
        list.contains(&said.kind)
    }
}

fn path(field: &str) -> Vec<String> {
    field.split('.').map(str::to_owned).collect()
}

/// `*` is every entry of a list or an object, `**` any depth.
fn take_out(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    if first == "**" {
        take_out(value, rest);
        each(value, |inner| take_out(inner, path));
    } else if first == "*" {
        each(value, |inner| take_out(inner, rest));
    } else if let Value::Object(values) = value {
        if rest.is_empty() {
            values.remove(first);
        } else if let Some(inner) = values.get_mut(first) {
            take_out(inner, rest);
        }
    }
}

fn each(value: &mut Value, work: impl FnMut(&mut Value)) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(work),
        Value::Object(values) => values.values_mut().for_each(work),
        _ => {}
    }
}

/// What is different, in words. Nothing is as it should be.
pub fn differences(direct: &[NormalizedFrame], through: &[NormalizedFrame], rules: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    let mut steps: Vec<&String> = Vec::new();
    for said in direct.iter().chain(through) {
        if !steps.contains(&&said.step) {
            steps.push(&said.step);
        }
    }
    let through: Vec<NormalizedFrame> =
        through.iter().filter(|said| !is_ended_for(said, direct, rules)).cloned().collect();
    let (direct, through) = (&in_whole(direct, rules)[..], &in_whole(&through, rules)[..]);
    for step in steps {
        let of = |all: &[NormalizedFrame]| {
            folded(all.iter().filter(|said| said.step == *step && !Rules::has(&rules.any_time, said)), rules)
        };
        in_order(step, &of(direct), &of(through), rules, &mut found);
    }
    let kinds: BTreeSet<&String> = direct
        .iter()
        .chain(through)
        .filter(|said| Rules::has(&rules.any_time, said))
        .map(|said| &said.kind)
        .collect();
    for kind in kinds {
        let of = |all: &[NormalizedFrame]| {
            let mut all = folded(all.iter().filter(|said| said.kind == *kind), rules);
            all.dedup_by(|next, last| next.frame == last.frame);
            all
        };
        in_order("any", &of(direct), &of(through), rules, &mut found);
    }
    found
}

/// Each update of a call as all that is known of the call then; one that says nothing new is left out.
fn in_whole(all: &[NormalizedFrame], rules: &Rules) -> Vec<NormalizedFrame> {
    let mut calls: HashMap<String, Value> = HashMap::new();
    let mut whole = Vec::new();
    for said in all {
        let update = &said.frame["params"]["update"];
        let call = format!("{} {}", said.frame["params"]["sessionId"], update["toolCallId"]);
        if said.kind == "update tool_call" {
            // A new call, also if an earlier one had its name.
            let mut begun = update.clone();
            overlay(&mut begun, &json!({"sessionUpdate": "tool_call_update"}));
            calls.insert(call, begun);
        } else if Rules::has(&rules.last_counts, said) {
            let known = calls.entry(call).or_insert_with(|| json!({}));
            let before = known.clone();
            overlay(known, update);
            if before != *known {
                let mut said = said.clone();
                said.frame["params"]["update"] = known.clone();
                whole.push(said);
            }
            continue;
        }
        whole.push(said.clone());
    }
    whole
}

/// Neighbours that amount to one frame.
fn folded<'a>(all: impl Iterator<Item = &'a NormalizedFrame>, rules: &Rules) -> Vec<NormalizedFrame> {
    let mut folded: Vec<NormalizedFrame> = Vec::new();
    for said in all {
        let Some(last) = folded.last_mut().filter(|last| last.kind == said.kind) else {
            folded.push(said.clone());
            continue;
        };
        if Rules::has(&rules.merge, said) && without_text(&last.frame) == without_text(&said.frame) {
            let text = [&last.frame, &said.frame].map(text_of).concat();
            last.frame["params"]["update"]["content"]["text"] = text.into();
        } else if Rules::has(&rules.last_counts, said)
            && running(&last.frame)
            && same_call(&last.frame, &said.frame)
        {
            *last = said.clone();
        } else {
            folded.push(said.clone());
        }
    }
    folded
}

/// Whether a frame ends a call that the agent alone has left open.
fn is_ended_for(said: &NormalizedFrame, direct: &[NormalizedFrame], rules: &Rules) -> bool {
    Rules::has(&rules.ended, said)
        && said.frame["params"]["update"]["status"] == "failed"
        && !direct.iter().any(|other| {
            other.step == said.step && same_call(&other.frame, &said.frame) && !running(&other.frame)
        })
}

fn overlay(whole: &mut Value, update: &Value) {
    if let (Value::Object(whole), Value::Object(update)) = (whole, update) {
        whole.extend(update.clone());
    }
}

fn running(frame: &Value) -> bool {
    matches!(frame["params"]["update"]["status"].as_str(), None | Some("in_progress" | "pending"))
}

fn same_call(one: &Value, other: &Value) -> bool {
    one["params"]["update"]["toolCallId"] == other["params"]["update"]["toolCallId"]
}

fn text_of(frame: &Value) -> &str {
    frame["params"]["update"]["content"]["text"].as_str().unwrap_or_default()
}

fn without_text(frame: &Value) -> Value {
    let mut frame = frame.clone();
    if let Some(content) = frame["params"]["update"]["content"].as_object_mut() {
        content.remove("text");
    }
    frame
}

/// Compares two lists in order; what is only in one of them, or differs, is told.
fn in_order(
    step: &str,
    direct: &[NormalizedFrame],
    through: &[NormalizedFrame],
    rules: &Rules,
    found: &mut Vec<String>,
) {
    let equal = |a: &NormalizedFrame, b: &NormalizedFrame| a.kind == b.kind && told(a, b, rules).is_none();
    let (mut at, mut beside) = (0, 0);
    for (one, other) in longest(direct, through, equal).into_iter().chain([(direct.len(), through.len())]) {
        unequal(step, &direct[at..one], &through[beside..other], rules, found);
        (at, beside) = (one + 1, other + 1);
    }
}

/// What stands between two frames that are equal: of one kind they are compared, else they are lost or new.
fn unequal(
    step: &str,
    lost: &[NormalizedFrame],
    new: &[NormalizedFrame],
    rules: &Rules,
    found: &mut Vec<String>,
) {
    let (mut at, mut beside) = (0, 0);
    let alike = longest(lost, new, |a, b| a.kind == b.kind);
    for (one, other) in alike.into_iter().chain([(lost.len(), new.len())]) {
        let told_of = |word: &str, said: &NormalizedFrame| {
            format!("step {step}, {} is {word}: {}", said.kind, shown(&said.frame))
        };
        let lost_here = lost[at..one].iter().filter(|said| !Rules::has(&rules.absent, said));
        found.extend(lost_here.map(|said| told_of("missing", said)));
        let new_here = new[beside..other].iter().filter(|said| !Rules::has(&rules.extra, said));
        found.extend(new_here.map(|said| told_of("new", said)));
        if let (Some(a), Some(b)) = (lost.get(one), new.get(other)) {
            found.push(format!("step {step}, {}: {}", a.kind, told(a, b, rules).unwrap_or_default()));
        }
        (at, beside) = (one + 1, other + 1);
    }
}

/// The longest list of pairs that are equal, in order.
fn longest(
    a: &[NormalizedFrame],
    b: &[NormalizedFrame],
    equal: impl Fn(&NormalizedFrame, &NormalizedFrame) -> bool,
) -> Vec<(usize, usize)> {
    let mut lengths = vec![vec![0_usize; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i][j] = if equal(&a[i], &b[j]) {
                lengths[i + 1][j + 1] + 1
            } else {
                lengths[i + 1][j].max(lengths[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    while i < a.len() && j < b.len() {
        if equal(&a[i], &b[j]) {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[i + 1][j] >= lengths[i][j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs
}

/// Where two frames of a kind differ, and how.
fn told(direct: &NormalizedFrame, through: &NormalizedFrame, rules: &Rules) -> Option<String> {
    differs(&direct.frame, &through.frame, Rules::has(&rules.more, direct), &mut Vec::new())
}

fn differs(a: &Value, b: &Value, more: bool, at: &mut Vec<String>) -> Option<String> {
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            for (name, value) in one {
                at.push(name.clone());
                let found = match other.get(name) {
                    Some(inner) => differs(value, inner, more, at),
                    None => Some(format!("{} is missing, it was {}", at.join("."), shown(value))),
                };
                at.pop();
                if found.is_some() {
                    return found;
                }
            }
            let new = other.iter().find(|(name, _)| !more && !one.contains_key(*name));
            new.map(|(name, value)| format!("{}.{name} is new: {}", at.join("."), shown(value)))
        }
        (Value::Array(one), Value::Array(other)) if more => {
            let missing = one.iter().find(|value| {
                !other.iter().any(|inner| differs(value, inner, true, &mut Vec::new()).is_none())
            });
            missing.map(|value| format!("{} lacks {}", at.join("."), shown(value)))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).enumerate().find_map(|(index, (value, inner))| {
                at.push(index.to_string());
                let found = differs(value, inner, more, at);
                at.pop();
                found
            })
        }
        (Value::Bool(false), Value::Bool(true)) if more => None,
        _ if a == b => None,
        _ => Some(format!("{} was {}, is {}", at.join("."), shown(a), shown(b))),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= SHOWN_CHARS {
        text
    } else {
        text.chars().take(SHOWN_CHARS).chain("...".chars()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Rules {
        Rules::read(&[("params.update.took".into(), "a duration".into())]).unwrap()
    }

    fn update(kind: &str, update: Value) -> NormalizedFrame {
        let mut frame = json!({"method": "session/update", "params": {"update": update}});
        frame["params"]["update"]["sessionUpdate"] = kind.into();
        let kind = format!("update {kind}");
        rules().ignored(&kind, &mut frame);
        NormalizedFrame { step: "write".into(), kind, frame }
    }

    fn text(text: &str) -> NormalizedFrame {
        update("agent_message_chunk", json!({"messageId": text, "content": {"type": "text", "text": text}}))
    }

    fn call(status: &str, content: &str) -> NormalizedFrame {
        update("tool_call_update", json!({"toolCallId": "1", "status": status, "content": content}))
    }

    fn check(direct: &[NormalizedFrame], through: &[NormalizedFrame]) -> Vec<String> {
        differences(direct, through, &rules())
    }

    #[test]
    fn what_the_list_allows_is_no_difference() {
        let usage = update("usage_update", json!({"used": 1}));
        let direct = [
            usage.clone(),
            text("one "),
            text("two"),
            call("in_progress", "a"),
            call("in_progress", "ab"),
            call("completed", "ab"),
        ];
        let through = [text("one two"), call("in_progress", "b"), call("completed", "ab"), usage];
        assert_eq!(check(&direct, &through), Vec::<String>::new());
        let timed = |took| update("plan", json!({"took": took}));
        assert!(check(&[timed(1)], &[timed(2)]).is_empty());
        let of_agent = Rules::of(
            &json!([]),
            &[("text pid: ".into(), String::new()), ("frame update plan".into(), String::new())],
        )
        .unwrap();
        assert_eq!(of_agent.unnumbered("pid: 12, pid: 345"), "pid: N, pid: N");
        assert!(differences(&[timed(1), text("a")], &[text("a"), timed(1)], &of_agent).is_empty());
    }

    #[test]
    fn what_is_known_of_a_call_is_compared_and_not_how_often_it_was_said() {
        let asks = || update("plan", json!({}));
        let named =
            || update("tool_call_update", json!({"toolCallId": "1", "status": "in_progress", "title": "ls"}));
        let direct = [named(), asks(), named(), call("completed", "a")];
        assert_eq!(check(&direct, &[named(), asks(), call("completed", "a")]), Vec::<String>::new());
        let begun =
            || update("tool_call", json!({"toolCallId": "1", "status": "in_progress", "title": "ls"}));
        let again = [begun(), named(), call("completed", "a"), begun(), call("completed", "a")];
        let once = [begun(), call("completed", "a"), begun(), call("completed", "a")];
        assert_eq!(check(&again, &once), Vec::<String>::new());
        let lost = check(&direct, &[asks(), call("completed", "a")]);
        assert!(lost.iter().any(|told| told.contains("title is missing")), "{lost:?}");
    }

    #[test]
    fn only_a_call_that_was_left_open_may_be_ended() {
        let open = [call("in_progress", "a")];
        let ended = [call("in_progress", "a"), call("failed", "the turn was cancelled")];
        assert!(check(&open, &ended).is_empty());
        assert_eq!(check(&[], &[call("completed", "a")]).len(), 1);
        assert_eq!(check(&[call("completed", "a")], &[call("completed", "a"), call("failed", "b")]).len(), 1);
    }

    #[test]
    fn a_lost_a_new_and_a_changed_frame_are_named() {
        let found = check(
            &[text("one"), call("completed", "a")],
            &[call("completed", "b"), update("plan", json!({}))],
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("step write, update agent_message_chunk is missing"), "{found:?}");
        let changed = check(&[call("completed", "a")], &[call("completed", "b")]);
        assert_eq!(
            changed,
            [r#"step write, update tool_call_update: params.update.content was "a", is "b""#]
        );
        let other_text = check(&[text("one"), text("two")], &[text("one"), text("too")]);
        assert_eq!(other_text.len(), 1, "{other_text:?}");
    }

    #[test]
    fn only_where_it_is_allowed_more_may_be_said() {
        let result = |kind: &str, result: Value| NormalizedFrame {
            step: "open".into(),
            kind: kind.into(),
            frame: json!({"result": result}),
        };
        let (one, other) = (
            json!({"load": false, "modes": [{"id": 1}]}),
            json!({"load": true, "modes": [{"id": 0}, {"id": 1, "more": 2}]}),
        );
        let more = |kind: &str| check(&[result(kind, one.clone())], &[result(kind, other.clone())]).len();
        assert_eq!((more("result of session/new"), more("result of session/close")), (0, 1));
        let less = check(&[result("result of session/new", other)], &[result("result of session/new", one)]);
        assert_eq!(less.len(), 1, "{less:?}");
    }

    #[test]
    fn every_entry_of_the_list_has_a_rule_and_a_reason() {
        assert!(Rules::read(&[]).is_ok());
        assert!(Rules::of(&json!([{"rule": "ignore", "fields": []}]), &[]).is_err());
        assert!(Rules::of(&json!([{"rule": "unknown", "reason": "x"}]), &[]).is_err());
    }
}
