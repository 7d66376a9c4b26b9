//! `--journal` and `ropewalk agents replay`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agents::world::World;

/// An agent that calls its session what stands in one file, and says what stands in another.
const SCRIPT: &str = r#"
session=$(cat named.txt)
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\).*/\1/')
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case "$line" in
    *'"method":"initialize"'*) echo "not for you"; answer '{"protocolVersion":1,"agentCapabilities":{}}' ;;
    *'"method":"session/new"'*) answer '{"sessionId":"'$session'"}' ;;
    *'"method":"session/prompt"'*)
      printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":%s}}\n' "$session" \
        '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$(cat says.txt)"'"}}'
      answer '{"stopReason":"end_turn"}' ;;
  esac
done"#;

impl World {
    /// The journal of one prompt to an agent that says this.
    fn journal_of(&self, name: &str, says: &str) -> String {
        self.program("scripted", SCRIPT);
        fs::write(self.path("project/named.txt"), format!("of-{name}")).unwrap();
        fs::write(self.path("project/says.txt"), says).unwrap();
        let file = self.path(name).display().to_string();
        self.run(&["run", "--command", "scripted", "--journal", &file, "hello"]).with(0);
        file
    }
}

fn lines(file: &str) -> Vec<String> {
    fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

/// AA5: mutate one event, and its step is named.
#[test]
fn one_changed_frame_of_a_journal_is_named_by_its_step() {
    let world = World::new();
    let file = world.path("one.jsonl").display().to_string();
    let arguments = ["run", "--agent", "inner", "--approval", "full", "--journal", &file];
    world.run(&[&arguments[..], &["write a.txt: hello"]].concat()).with(0);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let sound = world.run(&["agents", "replay", &file, "--json"]).with(0).json();
    let steps = sound["steps"].as_u64().unwrap();
    assert_eq!(
        (&sound["same"], &sound["ended"], &sound["agent"]),
        (&json!(true), &json!(true), &json!("inner"))
    );
    assert_eq!(sound["faults"], 0, "{sound}");
    let shown = world.run(&["agents", "replay", &file]).with(0).out;
    assert!(shown.starts_with(&format!("{steps} steps of inner match the recording\nchain ")), "{shown}");
    let whole = lines(&file);
    assert_eq!(whole.len() as u64, steps + 2);
    let asks = whole.iter().position(|line| line.contains("session/request_permission")).unwrap();
    for at in [1, asks, whole.len() - 2] {
        let mut changed = whole.clone();
        let mut step: Value = serde_json::from_str(&changed[at]).unwrap();
        step["frame"] = Value::from(step["frame"].as_str().unwrap().replace("2.0", "2.1"));
        changed[at] = step.to_string();
        fs::write(&file, changed.join("\n")).unwrap();
        let differs = world.run(&["agents", "replay", &file]).with(1).out;
        assert!(differs.contains(&format!("one.jsonl: step {at}: its frame was changed")), "{differs}");
        let differs = world.run(&["agents", "replay", &file, "--json"]).with(1).json();
        assert_eq!((&differs["same"], &differs["step"]), (&json!(false), &json!(at)), "{differs}");
        let mut missing = whole.clone();
        missing.remove(at);
        fs::write(&file, missing.join("\n")).unwrap();
        let differs = world.run(&["agents", "replay", &file]).with(1).out;
        assert!(differs.contains(&format!("step {at}: it is missing")), "{differs}");
    }
}

#[test]
fn two_journals_of_one_prompt_are_compared_and_have_no_secrets() {
    let world = World::new();
    let one = world.journal_of("one.jsonl", "the same");
    let same = world.journal_of("same.jsonl", "the same");
    let other = world.journal_of("other.jsonl", "hush-hush-hush");
    assert_ne!(lines(&one)[3], lines(&same)[3], "the sessions have other names");
    let told = world.run(&["agents", "replay", &one, "--against", &same]).with(0).out;
    assert!(told.starts_with("5 steps of scripted are equal in both journals\n"), "{told}");
    assert!(told.contains("step 1 violates the protocol: not valid JSON"), "{told}");
    let told = world.run(&["agents", "replay", &one, "--against", &other]).with(1).out;
    assert!(told.contains("step 4: params.update.content.text is \"the same\" here and "), "{told}");
    assert!(!fs::read_to_string(&other).unwrap().contains("hush"), "a secret is in the journal");
    world.run(&["agents", "replay", &other]).with(0);
    let mut shorter = lines(&one);
    shorter.truncate(4);
    fs::write(&same, shorter.join("\n")).unwrap();
    let told = world.run(&["agents", "replay", &same]).with(0).out;
    assert!(told.contains("the journal is incomplete"), "{told}");
    let told = world.run(&["agents", "replay", &one, "--against", &same]).with(1).out;
    assert!(told.contains("step 4: missing in "), "{told}");
}

#[test]
fn each_server_has_its_own_journal_in_a_folder() {
    let world = World::new();
    fs::create_dir(world.path("journals")).unwrap();
    let folder = world.path("journals").display().to_string();
    for number in [1, 2] {
        let (mut client, session) = world.session(&["--journal", &folder]);
        client.said(&session, "hello");
        client.finish();
        let file = world.path(&format!("journals/inner-{number}.jsonl")).display().to_string();
        let sound = world.run(&["agents", "replay", &file, "--json"]).with(0).json();
        assert!(sound["steps"].as_u64() > Some(3) && sound["ended"] == true, "{sound}");
    }
}

#[test]
fn a_journal_that_cannot_be_is_refused_at_once() {
    let world = World::new();
    let taken = world.path("outer/config.toml").display().to_string();
    let refused = world.run(&["run", "--agent", "inner", "--journal", &taken, "x"]).with(1).err;
    assert!(refused.contains("the file already exists"), "{refused}");
    let nowhere = world.path("nowhere/one.jsonl").display().to_string();
    world.run(&["run", "--agent", "inner", "--journal", &nowhere, "x"]).with(1);
    let ours = world.run(&["run", "--journal", &nowhere, "x"]).with(2).err;
    assert!(ours.contains("--journal works only with an external agent"), "{ours}");
    world.run(&["agents", "replay", &nowhere]).with(5);
    let none = world.run(&["agents", "replay", &taken]).with(1).out;
    assert!(none.contains("the head of the journal: the file does not start with one"), "{none}");
}
