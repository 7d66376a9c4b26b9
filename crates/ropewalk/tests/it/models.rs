//! Models and costs with the real binary, a mock provider on loopback, and a separate environment.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use engine::Usage;
use tempfile::TempDir;
use testkit::mock_provider::{Mock, ProviderApi};
use testkit::{Line, call, say};
use tokio::runtime::Runtime;

use crate::command_output::CommandOutput;

const KEY: &str = "sk-mock-0123456789abcdef";

/// A home, a project and a provider.
struct World {
    directory: TempDir,
    runtime: Runtime,
    mock: Mock,
}

impl World {
    fn new(answers: Vec<Vec<Line>>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mock = runtime.block_on(Mock::start(answers));
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("project")).unwrap();
        fs::create_dir(directory.path().join("home")).unwrap();
        Self { directory, runtime, mock }
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn settings(&self, text: &str) {
        fs::write(self.home().join("config.toml"), text).unwrap();
    }

    /// The mock as a provider of the settings, with a price of a dollar a thousand tokens.
    fn priced(&self, more: &str) {
        let url = self.mock.base_url(ProviderApi::Chat);
        self.settings(&format!(
            "probe_local_models = false\n{more}\n[[providers]]\nname = \"work\"\nwire = \"chat\"\nbase_url = \"{url}\"\n\
             models = [\"big\", \"small\"]\nkey_env = \"WORK_SECRET\"\n[[models]]\nid = \"work:big\"\n\
             price = {{ input = 1000, output = 1000, cache_read = 0.001 }}\n"
        ));
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is what this starts")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.args(arguments).current_dir(self.directory.path().join("project")).env_clear();
        command.env("ROPEWALK_HOME", self.home()).env("PATH", "/usr/bin:/bin").env("WORK_SECRET", KEY);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).spawn().unwrap())
    }
}

fn used(tokens: u64) -> Line {
    Line::Usage(Usage { input: tokens, output: 0, ..Usage::default() })
}

#[test]
fn models_list_says_what_was_found_and_why_not_and_shows_no_key() {
    let world = World::new(Vec::new());
    world.settings("probe_local_models = false\n");
    let list = |variables: &[(&str, &str)]| {
        let mut command = world.command(&["models", "list", "--json"]);
        command.envs(variables.iter().copied());
        CommandOutput::of(command.spawn().unwrap()).with(0)
    };
    let nothing = list(&[]).json();
    assert_eq!(nothing["default"], "offline:plain");
    let missing = nothing["not_found"].as_array().unwrap();
    let anthropic = missing.iter().find(|row| row["provider"] == "anthropic").unwrap();
    assert_eq!(anthropic["reason"], "ANTHROPIC_API_KEY is not set");
    assert!(missing.iter().any(|row| row["provider"] == "ollama"));

    let ended = list(&[("ANTHROPIC_API_KEY", KEY), ("ROPEWALK_MODEL", "claude-opus-5")]);
    assert!(!ended.out.contains(KEY) && !ended.err.contains(KEY));
    let found = ended.json();
    assert_eq!(
        (&found["default"], &found["providers"][0]["from"]),
        (&"anthropic:claude-opus-5".into(), &"ANTHROPIC_API_KEY".into())
    );
    let opus = found["providers"][0]["models"].as_array().unwrap();
    let opus = opus.iter().find(|model| model["id"] == "anthropic:claude-opus-5").unwrap();
    assert_eq!(opus["usd_per_million_tokens"]["input"], 5.0);

    let text = world.run(&["models", "list"]).with(0).out;
    assert!(text.contains("* offline:plain") && text.contains("export OPENAI_API_KEY=..."), "{text}");
}

#[test]
fn a_prompt_goes_to_the_provider_of_the_environment_and_is_remembered_as_unpriced() {
    let world = World::new(vec![vec![say("hello from afar"), used(7)]]);
    world.settings("probe_local_models = false\n");
    let mut command = world.command(&["run", "hi", "--json"]);
    command.env("OPENAI_BASE_URL", world.mock.base_url(ProviderApi::Chat)).env("OPENAI_API_KEY", KEY);
    command.env("OTTER_MODEL", "openai:my-own");
    let answer = CommandOutput::of(command.spawn().unwrap()).with(0);
    assert!(!answer.out.contains(KEY) && !answer.err.contains(KEY));
    assert!(answer.out.contains("hello from afar"), "{}", answer.out);
    let usage = answer.json()["usage"].clone();
    assert_eq!((&usage["cost_usd"], &usage["cost_unknown"]), (&serde_json::Value::Null, &true.into()));
    let seen = world.mock.requests();
    assert_eq!((seen.len(), &seen[0].body["model"]), (1, &"my-own".into()));
    let cost = world.run(&["sessions", "cost"]).with(0).out;
    assert!(cost.contains("cost unknown") && !cost.contains('$'), "{cost}");
}

#[test]
fn a_model_that_is_not_there_is_an_error_that_says_what_to_do() {
    let world = World::new(Vec::new());
    world.settings("probe_local_models = false\n");
    let refused = world.run(&["run", "hi", "--model", "anthropic:claude-opus-5"]).with(2);
    assert!(refused.err.contains("ANTHROPIC_API_KEY is not set"), "{}", refused.err);
    world.settings("available_models = [\"offline:terse\"]\nprobe_local_models = false\n");
    let list = world.run(&["models", "list", "--json"]).with(0).json();
    assert!(list["providers"].as_array().unwrap().is_empty());
}

#[test]
fn max_cost_stops_before_the_next_call_and_the_session_can_go_on() {
    let look = || vec![call("list", "{}"), used(300)];
    let world = World::new(vec![look(), look(), vec![say("done"), used(1)]]);
    world.priced("");
    // 30 cents a call: the second is made, the third is not.
    let stopped = world.run(&["run", "go", "--max-cost", "0.5"]);
    let stopped = stopped.with(2);
    assert!(
        stopped.err.contains("the budget of this prompt is used up: $0.6000 of $0.5000"),
        "{}",
        stopped.err
    );
    assert_eq!(world.mock.requests().len(), 2);
    let gone_on = world.run(&["run", "go on", "--continue"]).with(0);
    assert!(gone_on.out.contains("done"), "{}", gone_on.out);
    let refused = world.run(&["run", "again", "--max-cost", "0"]).with(2);
    assert!(refused.err.contains("the next call costs at least"), "{}", refused.err);
    assert_eq!(world.mock.requests().len(), 3);
}

#[test]
fn sessions_and_days_have_budgets_and_costs_are_told() {
    let world = World::new(vec![vec![say("one"), used(300)], vec![say("two"), used(300)]]);
    world.priced("[budget]\nday_usd = 0.5\n");
    world.run(&["run", "one"]).with(0);
    world.run(&["run", "two", "--continue"]).with(0);
    let spent = world.run(&["run", "three"]).with(2);
    assert!(spent.err.contains("the budget of today is used up: $0.6000"), "{}", spent.err);
    world.priced("[budget]\nsession_usd = 0.5\n");
    let listed = world.run(&["sessions", "cost", "--json"]).with(0).json();
    assert_eq!(listed["total"]["cost_usd"], 0.6);
    let id = listed["sessions"][0]["session_id"].as_str().unwrap().to_owned();
    let spent = world.run(&["run", "four", "--resume", &id]).with(2);
    assert!(spent.err.contains("the budget of this session is used up"), "{}", spent.err);
    let turns = world.run(&["sessions", "cost", &id, "--json"]).with(0).json();
    assert_eq!(turns["turns"].as_array().unwrap().len(), 2);
    assert_eq!(turns["turns"][0]["cost_usd"], 0.3);
    let text = world.run(&["sessions", "cost", &id]).with(0).out;
    assert!(text.contains("$0.3000") && text.contains("$0.6000"), "{text}");
    assert_eq!(world.mock.requests().len(), 2);
}

#[test]
fn an_unpriced_model_with_a_budget_is_told_of_or_refused() {
    let world = World::new(vec![vec![say("one")]]);
    world.priced("[budget]\nsession_usd = 1\n");
    let told = world.run(&["run", "one", "--model", "work:small"]).with(0);
    assert!(told.err.contains("the price of work:small is not known"), "{}", told.err);
    world.priced("[budget]\nsession_usd = 1\nunknown = \"refuse\"\n");
    world.run(&["run", "two", "--model", "small"]).with(2);
    assert_eq!(world.mock.requests().len(), 1);
}

#[test]
fn turns_are_limited_and_an_estimate_asks_nobody_and_leaves_nothing() {
    let look = || vec![call("list", "{}")];
    let world = World::new(vec![look(), look(), look()]);
    world.priced("");
    world.run(&["run", "go", "--max-turns", "2"]).with(2);
    assert_eq!(world.mock.requests().len(), 2);
    let estimate = world.run(&["run", "how much?", "--estimate-cost"]).with(0);
    assert!(estimate.err.contains("tokens would be sent to work:big: $"), "{}", estimate.err);
    assert_eq!(world.mock.requests().len(), 2);
    let listed = world.run(&["sessions", "list", "--json"]).with(0).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn every_provider_can_be_asked_one_short_question() {
    let world = World::new(vec![vec![say("ok")]]);
    world.priced("");
    let checked = world.run(&["models", "check", "--json"]).with(0).json();
    assert_eq!((&checked["ok"], &checked["providers"][0]["model"]), (&true.into(), &"work:big".into()));
    // Whoever ends the provider sees it said.
    let World { mock, runtime, .. } = &world;
    let _inside = runtime.enter();
    mock.then(testkit::mock_provider::ScriptedReply::faulty(
        testkit::mock_provider::Fault::refuse(401),
        vec![],
    ));
    let checked = world.run(&["models", "check"]).with(1);
    assert!(checked.out.contains("WORK_SECRET") && !checked.out.contains(KEY), "{}", checked.out);
}

#[test]
fn a_server_on_this_machine_is_found_where_there_is_nothing_else() {
    let world = World::new(vec![vec![say("local words")]]);
    world.mock.offer(&["llama-tiny", "nomic-embed-text"]);
    let mut command = world.command(&["run", "hi", "--json"]);
    command.env("OLLAMA_HOST", world.mock.address().to_string());
    let answer = CommandOutput::of(command.spawn().unwrap()).with(0);
    assert!(answer.out.contains("local words"), "{}", answer.out);
    assert_eq!(answer.json()["usage"]["cost_usd"], 0.0);
    assert_eq!(world.mock.requests()[0].body["model"], "llama-tiny");
}
