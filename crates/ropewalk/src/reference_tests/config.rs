//! `config.md`: every key of the settings file, and every variable.

mod settings;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command, CommandFactory, Parser};

use super::{cell, check_page};
use crate::cli::{Cli, ServeOptions};
use crate::config::{self, KEYS};
use settings::{CODEX, SECTIONS, Setting, VARIABLES};

const HEAD: &str = "\
# Settings

Every key of the settings file and every environment variable that Ropewalk reads. Made from the program's own list of
keys (`crates/ropewalk/src/config/keys.rs`).

The file is `config.toml` in `$ROPEWALK_HOME`, `$XDG_CONFIG_HOME/ropewalk` or `~/.config/ropewalk`; `--config FILE` reads
another one instead. An option of the command line wins over the file. A variable wins over the file too, unless its
setting says otherwise here. `ropewalk config show` prints the effective values and where each comes from.

A project's `.ropewalk/config.toml` can only set what its column allows; \"stricter only\" means that it can lower a limit and never raise it. Its other keys are ignored: a project
must not choose who reads your code, which programs start, or what they may do.
";

const VARIABLES_HEAD: &str = "
## Other variables

They have no key in the settings file. An empty variable counts as unset. The variables that hold the keys of model providers are listed
under [models](../models.md); those of a hub are in the next table.

| variable | meaning |
|---|---|
";

const HUB_HEAD: &str = "
## Variables of options

These set an option of the command line.

| variable | option |
|---|---|
";

const CODEX_HEAD: &str = "
## `.codex/config.toml`

Read as defaults, from your home folder and from the folder that Ropewalk is started in. These files can make Ropewalk stricter,
never looser. Other keys are ignored.

| key | meaning |
|---|---|
";

fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.iter().flat_map(|section| section.settings)
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for section in &SECTIONS {
        write!(page, "\n## {}\n\n{}\n\n", section.heading, section.intro).unwrap();
        page.push_str("| setting | type | default | variable | option | project's file | meaning |\n");
        page.push_str("|---|---|---|---|---|---|---|\n");
        for setting in section.settings {
            write_setting(&mut page, setting);
        }
    }
    page.push_str(VARIABLES_HEAD);
    for (name, meaning) in VARIABLES {
        writeln!(page, "| `{name}` | {} |", cell(meaning)).unwrap();
    }
    page.push_str(HUB_HEAD);
    let mut options = BTreeSet::new();
    variables_of(&<Cli as CommandFactory>::command(), "", &mut options);
    for (name, option) in options {
        writeln!(page, "| `{name}` | `{option}` |").unwrap();
    }
    page.push_str(CODEX_HEAD);
    for (key, meaning) in CODEX {
        writeln!(page, "| `{key}` | {} |", cell(meaning)).unwrap();
    }
    page
}

fn write_setting(page: &mut String, setting: &Setting) {
    let Setting { key, kind, default, meaning, variables, flags, project } = setting;
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let (variables, flags) = (quoted(variables), quoted(flags));
    let [kind, default, meaning] = [kind, default, meaning].map(|text| cell(text));
    writeln!(page, "| `{key}` | {kind} | {default} | {variables} | {flags} | {project} | {meaning} |")
        .unwrap();
}

/// The variables that clap reads for options, with the first command that has the option.
fn variables_of(command: &Command, parents: &str, found: &mut BTreeSet<(String, String)>) {
    let path = format!("{parents} {}", command.get_name()).trim().to_owned();
    for argument in command.get_arguments() {
        if let (Some(name), Some(long)) = (argument.get_env(), argument.get_long()) {
            let name = name.to_string_lossy().into_owned();
            if found.iter().all(|(known, _)| *known != name) {
                found.insert((name, format!("{path} --{long}")));
            }
        }
    }
    for inner in command.get_subcommands() {
        variables_of(inner, &path, found);
    }
}

#[test]
fn the_reference_has_every_setting() {
    check_page("config.md", &page());
}

/// The page's keys and those that the parsers know.
#[test]
fn the_reference_and_the_parsers_know_the_same_settings() {
    // A table's own key is a heading there.
    let is_table = |table: &str, key: &str| {
        let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        KEYS.iter().any(|(other, _)| *other == path)
    };
    let keys = KEYS.iter().flat_map(|(table, keys)| keys.iter().map(move |key| (*table, *key)));
    let read = keys.filter(|(table, key)| !is_table(table, key)).map(|(table, key)| match table {
        "" => key.to_owned(),
        "agents" | "mcp.servers" => format!("{table}.NAME.{key}"),
        _ => format!("{table}.{key}"),
    });
    let read: BTreeSet<String> = read.collect();
    let told = settings().map(|setting| setting.key.strip_suffix(".NAME").unwrap_or(setting.key).to_owned());
    assert_eq!(told.collect::<BTreeSet<_>>(), read);
}

/// What the list has, the parsers read: nothing of it is reported as unknown.
#[test]
fn every_setting_of_the_reference_is_read() {
    let text = "model = 'a:b'\navailable_models = []\nprobe_local_models = true\nmax_turns = 1\nsandbox = 'off'\n\
        approval = 'auto'\napproval_max = 'auto'\nask_timeout = 1\ncommand_timeout = 1\nadd_dirs = []\nterminal = 'own'\n\
        environment = []\nagent = 'a'\ndiscovery_enabled = true\npush_contact = 'mailto:a@b'\n\
        [store]\nurl = 'a'\nfile = 'b'\n\
        [bridge]\nremote_url = 'a'\nreplay_window = 1\nanswers = 'anyone'\ne2e = true\nauth_token = 'a'\nbridge_token = 'a'\ntoken = 'a'\n\
        [[clients]]\nid = 'a'\ntoken_sha256 = 'a'\ntoken = 'b'\n\
        [mcp]\nstart_timeout = 1\ncall_timeout = 1\n[mcp.servers.a]\ncommand = 'a'\nargs = []\nenv = {}\nenabled = true\ntype = 'a'\ntransport = 'a'\n\
        [mcp.servers.b]\nurl = 'a'\nheaders = {}\n\
        [agents.a]\ncommand = 'a'\nargs = []\nenv = {}\npass = []\nown_folders = []\nown_settings = []\nsandbox = 'off'\n\
        [[providers]]\nname = 'a'\nwire = 'chat'\nbase_url = 'https://a'\nmodels = []\nkey_env = 'A'\nheaders_env = {}\n\
        [[models]]\nid = 'a:b'\ncontext = 1\noutput = 1\nimages = true\nprice = { input = 1, output = 1, cache_read = 1, cache_write = 1 }\n\
        [budget]\nsession_usd = 1\nday_usd = 1\nunknown = 'allow'\n\
        [limits]\nfirst_byte_timeout = 1\nidle_timeout = 1\ngive_up_after = 1\nretry_after_max = 1\nanswer_bytes_max = 1\nturn_bytes_max = 1\n\
        [acp]\nmax_sessions = 1\nsession_idle_timeout_secs = 1\npermission_file = '/a'\nagent_name = 'a'\ntransport = 'both'\nhttp_bind = 'a'\n\
        additional_directories = []\ndisable = []\nterminal_timeout_secs = 1\navailable_models = []\ndiscovery_enabled = true\nauth_token = 'a'\n\
        timeouts = { terminal_secs = 1, elicitation_secs = 1, mcp_secs = 1 }\n\
        [profiles.a]\nmodel = 'a'\n";
    let written: BTreeSet<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    // Both are refused, with a hint at the right key.
    let refused = ["providers.key", "providers.api_key"];
    for setting in settings().filter(|setting| !refused.contains(&setting.key)) {
        let last = setting.key.rsplit('.').find(|part| *part != "NAME").unwrap();
        assert!(written.contains(last), "{} is not tried", setting.key);
    }
    assert_eq!(config::unknown_keys(text), Ok(Vec::new()));
}

/// The defaults that the program computes are those of the page.
#[test]
fn the_references_defaults_are_those_of_the_program() {
    #[derive(Parser)]
    struct Serve {
        #[command(flatten)]
        options: ServeOptions,
    }
    let serve = Serve::parse_from(["serve"]);
    let told = |name: &str| settings().find(|setting| setting.key == name).map(|setting| setting.default);
    let mut compared = 0;
    for (name, default) in config::defaults(&serve.options) {
        // Paths differ from machine to machine, and two rows are no keys of their own.
        if ["permissions", "acp.permission_file", "store"].contains(&name) {
            continue;
        }
        let written = told(name).unwrap_or_else(|| panic!("{name} is not on the page"));
        let same = match default.as_str() {
            "-" => !written.starts_with('`') || written.starts_with("`[]`"),
            value => written == format!("`{value}`"),
        };
        assert!(same, "{name}: {default} and not {written}");
        compared += 1;
    }
    assert!(compared >= 8, "the defaults of {compared} settings were compared");
    let model = agent::Timeouts::default();
    let answers = agent::ProviderConfig::new("a", agent::Wire::Chat).answer_bytes_max;
    let mcp = agent::McpConfig::default();
    let output = external::OutputLimits::default();
    assert_eq!(answers, output.message_bytes_max, "one setting is both");
    for (name, number) in [
        ("max_turns", agent::AgentConfig::offline().steps_max as u64),
        ("limits.first_byte_timeout", model.answer.as_secs()),
        ("limits.idle_timeout", model.idle.as_secs()),
        ("limits.give_up_after", model.give_up.as_secs()),
        ("limits.retry_after_max", model.retry_after_max.as_secs()),
        ("limits.answer_bytes_max", answers as u64),
        ("limits.turn_bytes_max", output.turn_bytes_max as u64),
        ("mcp.start_timeout", mcp.start_timeout.as_secs()),
        ("mcp.call_timeout", mcp.call_timeout.as_secs()),
    ] {
        assert_eq!(told(name), Some(format!("`{number}`").as_str()), "{name}");
    }
}

/// Every option that the page names is one.
#[test]
fn the_references_options_are_those_of_the_command_line() {
    let mut cli = <Cli as CommandFactory>::command();
    cli.build();
    let serve = cli.find_subcommand("serve").unwrap();
    let known: BTreeSet<String> =
        serve.get_arguments().filter_map(Arg::get_long).map(|long| format!("--{long}")).collect();
    for setting in settings() {
        for flag in setting.flags {
            assert!(known.contains(*flag), "{}: {flag}", setting.key);
        }
    }
}

/// Every variable that the program's source names is on the page, and every one on the page is in the source.
#[test]
fn the_reference_has_every_variable() {
    let mut read = BTreeSet::new();
    collect_variables(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut read);
    let mut options = BTreeSet::new();
    variables_of(&<Cli as CommandFactory>::command(), "", &mut options);
    let told: BTreeSet<String> = VARIABLES
        .iter()
        .map(|(name, _)| *name)
        .chain(settings().flat_map(|setting| setting.variables.iter().copied()))
        .map(str::to_owned)
        .chain(options.into_iter().map(|(name, _)| name))
        .collect();
    let missing: Vec<_> = read.iter().filter(|name| is_ours(name) && !told.contains(*name)).collect();
    assert!(missing.is_empty(), "variables that are read and not on the page: {missing:?}");
    let stale: Vec<_> = told.iter().filter(|name| !read.contains(*name)).collect();
    assert!(stale.is_empty(), "variables that nothing reads: {stale:?}");
}

/// A variable by which somebody tells Ropewalk, or a program that it stands in for, what to do.
fn is_ours(name: &str) -> bool {
    let prefixes = ["ROPEWALK_", "FERRET_", "OTTER_", "ZEPH_", "BERNSTEIN_", "CHIMERA_", "OTEL_"];
    prefixes.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix))
}

/// The string literals of the sources that are written like variables.
fn collect_variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "reference_tests") {
                collect_variables(&path, found);
            }
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let quoted = text.split('"').filter(|part| {
            part.starts_with(|c: char| c.is_ascii_uppercase())
                && part.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        });
        found.extend(quoted.map(str::to_owned));
    }
}
