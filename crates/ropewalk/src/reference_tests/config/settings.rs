//! What `config::KEYS` does not say about each key: its type, its default and a sentence.

/// A key of the settings file.
pub struct Setting {
    /// With its table: `acp.max_sessions`.
    pub key: &'static str,
    pub kind: &'static str,
    /// In words, or as in the file. Where the program has a constant for it, a test compares the two.
    pub default: &'static str,
    pub meaning: &'static str,
    /// Variables with the same meaning, the first one that is set counts.
    pub variables: &'static [&'static str],
    /// Options with the same meaning, all of them of `ropewalk serve` unless the sentence says otherwise.
    pub flags: &'static [&'static str],
    /// What a project's file may do with it.
    pub project: &'static str,
}

const fn setting(
    key: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { key, kind, default, meaning, variables: &[], flags: &[], project: "no" }
}

impl Setting {
    const fn variables(self, variables: &'static [&'static str]) -> Self {
        Self { variables, ..self }
    }

    const fn flags(self, flags: &'static [&'static str]) -> Self {
        Self { flags, ..self }
    }

    const fn project(self, project: &'static str) -> Self {
        Self { project, ..self }
    }
}

/// A part of the page: a heading, what to know, and the settings of these tables.
pub struct Section {
    pub heading: &'static str,
    pub intro: &'static str,
    pub settings: &'static [Setting],
}

pub const SECTIONS: [Section; 10] = [
    Section {
        heading: "Agent and permissions",
        intro: "How far the agent may go: [permissions](../permissions.md) and the [sandbox](../sandbox.md).",
        settings: &AGENT,
    },
    Section {
        heading: "Models",
        intro: "[Models, providers and budgets](../models.md) has an example of each.",
        settings: &MODELS,
    },
    Section {
        heading: "`[[providers]]` and `[[models]]`",
        intro: "One `[[providers]]` for each provider, one `[[models]]` for each model whose price, context size or name you override.",
        settings: &PROVIDERS,
    },
    Section {
        heading: "`[mcp]`",
        intro: "MCP servers, whose tools the agent gets. `${NAME}` in `args`, `env`, `url` and `headers` is replaced by that \
                variable, in your own file only.",
        settings: &MCP,
    },
    Section {
        heading: "`[agents.NAME]`",
        intro: "Other agents that speak the Agent Client Protocol: [agents](../agents.md#your-own-entries). Folders and files \
                may begin with `~/`.",
        settings: &AGENTS,
    },
    Section {
        heading: "`[store]`",
        intro: "Where sessions are kept; set one of the two: [PostgreSQL](../operations-postgres.md).",
        settings: &STORE,
    },
    Section { heading: "`[bridge]`", intro: "The connection to a [hub](../bridge.md).", settings: &BRIDGE },
    Section {
        heading: "HTTP",
        intro: "Access over HTTP: [operations](../operations.md). One `[[clients]]` for each program with a token of its own.",
        settings: &HTTP,
    },
    Section {
        heading: "`[acp]`",
        intro: "How editors connect and what they are offered. The names are [zeph's](../guide/coming-from.md), so that its \
                settings keep working. If a key at the top of the file means the same, that one counts.",
        settings: &ACP,
    },
    Section {
        heading: "`[profiles.NAME]`",
        intro: "Several sets of settings in one file.",
        settings: &PROFILES,
    },
];

const AGENT: [Setting; 10] = [
    setting("agent", "name", "`ropewalk`, the built-in agent", "The agent that does the work.")
        .flags(&["--agent"]),
    setting(
        "sandbox",
        "`read-only`, `workspace-write`, `workspace-write-network` or `off`",
        "`workspace-write`",
        "What the kernel lets tools and commands do. The file wins over the variables.",
    )
    .variables(&["ROPEWALK_SANDBOX", "FERRET_SANDBOX"])
    .flags(&["--sandbox"])
    .project("stricter only"),
    setting(
        "approval",
        "`read-only`, `strict`, `suggest`, `auto` or `full`",
        "`auto`",
        "What the agent may do without asking, in new sessions. The file wins over the variables.",
    )
    .variables(&["ROPEWALK_APPROVAL", "FERRET_APPROVAL"])
    .flags(&["--approval"]),
    setting(
        "approval_max",
        "as `approval`",
        "`full`",
        "The loosest approval that anyone may choose for a session. The file wins over the variable.",
    )
    .variables(&["ROPEWALK_APPROVAL_MAX"])
    .flags(&["--approval-max"]),
    setting(
        "ask_timeout",
        "seconds",
        "no limit",
        "How long a permission request waits before it is refused.",
    )
    .flags(&["--ask-timeout"]),
    setting("command_timeout", "seconds", "`120`", "How long a command may run; 0 means no limit.")
        .variables(&["ZEPH_ACP_TERMINAL_TIMEOUT_SECS"]),
    setting("add_dirs", "list of folders", "`[]`", "Further folders that the agent may write to.")
        .flags(&["--add-dir"]),
    setting(
        "environment",
        "list of variables",
        "`[]`",
        "Further environment variables that commands get: [secrets](../secrets.md).",
    ),
    setting(
        "terminal",
        "`own` or `editor`",
        "`own`",
        "`editor` runs commands in the editor's terminal, outside the sandbox; each one is asked for at the machine.",
    ),
    setting(
        "push_contact",
        "`mailto:` or `https:` address",
        "a placeholder address",
        "Whom push services may write to about [notifications on your devices](../guide/phone.md).",
    ),
];

const MODELS: [Setting; 13] = [
    setting(
        "model",
        "`provider:model`, or the model's name",
        "the first one that is found",
        "The model of new sessions. The variables win over the file.",
    )
    .variables(&["ROPEWALK_MODEL", "FERRET_MODEL", "OTTER_MODEL"])
    .flags(&["--model"]),
    setting("available_models", "list of models", "`[]`, all of them", "The only models that are offered."),
    setting(
        "probe_local_models",
        "true or false",
        "`true`",
        "Whether to look for model servers on this machine. `ROPEWALK_OFFLINE` turns it off too.",
    ),
    setting("max_turns", "number, at least 1", "`50`", "Maximum number of model calls in one turn.")
        .flags(&["--max-turns"]),
    setting(
        "budget.session_usd",
        "US dollars",
        "no limit",
        "No more models are called once a session has cost this much.",
    )
    .flags(&["--max-cost"]),
    setting(
        "budget.day_usd",
        "US dollars",
        "no limit",
        "No more models are called once all sessions of a day have cost this much.",
    ),
    setting(
        "budget.unknown",
        "`allow` or `refuse`",
        "`allow`",
        "Whether models without a known price may be used although there is a budget.",
    ),
    setting("limits.first_byte_timeout", "seconds", "`300`", "How long to wait until an answer begins."),
    setting("limits.idle_timeout", "seconds", "`120`", "How long to wait between two pieces of an answer."),
    setting(
        "limits.give_up_after",
        "seconds",
        "`600`",
        "When a turn fails because the model wrote nothing, all tries included.",
    ),
    setting(
        "limits.retry_after_max",
        "seconds",
        "`60`",
        "The longest pause that a provider may ask for (`Retry-After`); if it asks for more, the turn fails.",
    ),
    setting(
        "limits.answer_bytes_max",
        "bytes",
        "`8388608`",
        "The most text, thoughts and tool arguments of one answer, or of one message of an external agent.",
    ),
    setting(
        "limits.turn_bytes_max",
        "bytes",
        "`268435456`",
        "The most that one turn of an external agent may add to the log.",
    ),
];

const PROVIDERS: [Setting; 16] = [
    setting(
        "providers.name",
        "lowercase letters, digits, `-`, `_`",
        "required",
        "The part before the colon of its models' names.",
    ),
    setting(
        "providers.wire",
        "`anthropic`, `responses`, `chat`, `gemini` or `ollama`",
        "that of the known provider with this name, otherwise required",
        "The API that it speaks. `openai` is another word for `chat`.",
    ),
    setting(
        "providers.base_url",
        "`https:` or `http:` address",
        "that of the known provider, otherwise the official address of that API",
        "The provider's base URL.",
    ),
    setting("providers.models", "list of names", "`[]`", "The models that it has."),
    setting("providers.key_env", "variable", "none", "The environment variable that holds the key."),
    setting(
        "providers.headers_env",
        "table: header to variable",
        "`{}`",
        "Further headers, and the variables that hold their values.",
    ),
    setting("providers.key", "-", "-", "Refused: a key does not belong in a file. Use `key_env`."),
    setting("providers.api_key", "-", "-", "Refused like `key`."),
    setting("models.id", "`provider:model`", "required", "The model that the other keys are about."),
    setting("models.context", "tokens", "from the built-in table", "The size of its context window."),
    setting("models.output", "tokens", "from the built-in table", "The longest answer to ask it for."),
    setting("models.images", "true or false", "from the built-in table", "Whether it takes pictures."),
    setting("models.price.input", "US dollars per million tokens", "required in `price`", "Price of input."),
    setting(
        "models.price.output",
        "US dollars per million tokens",
        "required in `price`",
        "Price of output.",
    ),
    setting(
        "models.price.cache_read",
        "US dollars per million tokens",
        "as `input`",
        "Price of input that is read from the cache.",
    ),
    setting(
        "models.price.cache_write",
        "US dollars per million tokens",
        "as `input`",
        "Price of input that is written to the cache.",
    ),
];

const MCP: [Setting; 10] = [
    setting(
        "mcp.start_timeout",
        "seconds, at least 1",
        "`30`",
        "How long a server may take until its tools are known.",
    ),
    setting("mcp.call_timeout", "seconds, at least 1", "`300`", "How long one call of a tool may take."),
    server("mcp.servers.NAME.command", "program", "required without `url`", "The program to start."),
    server("mcp.servers.NAME.args", "list of words", "`[]`", "Its arguments."),
    server("mcp.servers.NAME.env", "table of strings", "`{}`", "Environment variables that are set for it."),
    server("mcp.servers.NAME.url", "address", "required without `command`", "A server to reach over HTTP."),
    server("mcp.servers.NAME.headers", "table of strings", "`{}`", "Headers that are sent to it."),
    server("mcp.servers.NAME.enabled", "true or false", "`true`", "Whether it is used."),
    server("mcp.servers.NAME.type", "text", "-", "Ignored: it follows from the other keys."),
    server("mcp.servers.NAME.transport", "text", "-", "Ignored like `type`."),
];

const fn server(
    key: &'static str,
    kind: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    setting(key, kind, default, meaning).project("yes, if you trust it")
}

const AGENTS: [Setting; 7] = [
    setting("agents.NAME.command", "program", "that of the known agent", "A path, or a name on your `PATH`."),
    setting("agents.NAME.args", "list of words", "those of the known agent", "Its arguments."),
    setting("agents.NAME.env", "table of strings", "`{}`", "Environment variables that are set for it."),
    setting("agents.NAME.pass", "list of variables", "`[]`", "Environment variables of yours that it gets.")
        .flags(&["--agent-env"]),
    setting("agents.NAME.own_folders", "list of folders", "`[]`", "Its own folders: it may write to them."),
    setting(
        "agents.NAME.own_settings",
        "list of files",
        "`[]`",
        "Files in them that it may not change, because they make it run something.",
    ),
    setting("agents.NAME.sandbox", "as `sandbox`", "`sandbox`", "The sandbox mode of its sessions.")
        .flags(&["--sandbox"]),
];

const STORE: [Setting; 2] = [
    setting(
        "store.url",
        "`postgres://` address",
        "none",
        "PostgreSQL, without a password. The file wins over the variable.",
    )
    .variables(&["ROPEWALK_STORE_URL"])
    .flags(&["--store"]),
    setting(
        "store.file",
        "file",
        "none",
        "A file with the address of the PostgreSQL database, with its password.",
    )
    .flags(&["--store-file"]),
];

const BRIDGE: [Setting; 7] = [
    setting(
        "bridge.remote_url",
        "address",
        "none",
        "The hub. With `ropewalk bridge` the option is `--remote-url`.",
    )
    .flags(&["--bridge"]),
    setting(
        "bridge.replay_window",
        "number",
        "`50`",
        "How many updates are sent again after a reconnect to a receiver that keeps no copy.",
    )
    .flags(&["--replay-window"]),
    setting(
        "bridge.answers",
        "`anyone`, `approver` or `local-only`",
        "`anyone`",
        "Who may answer permission requests.",
    )
    .flags(&["--answers"]),
    setting(
        "bridge.e2e",
        "true or false",
        "`false`",
        "Encrypt everything end to end for your paired devices.",
    )
    .flags(&["--e2e"]),
    setting(
        "bridge.auth_token",
        "-",
        "-",
        "Ignored with a warning: files get copied and shared. Set the variable instead.",
    )
    .variables(&["ROPEWALK_BRIDGE_TOKEN", "FERRET_BRIDGE_TOKEN"])
    .flags(&["--bridge-token"]),
    setting("bridge.bridge_token", "-", "-", "Ignored like `auth_token`."),
    setting("bridge.token", "-", "-", "Ignored like `auth_token`."),
];

const HTTP: [Setting; 4] = [
    setting(
        "discovery_enabled",
        "true or false",
        "`true`",
        "Whether anybody may read what this server is, without a token.",
    )
    .variables(&["ZEPH_ACP_DISCOVERY_ENABLED"]),
    setting("clients.id", "name", "required", "The client's name. It has sessions of its own."),
    setting(
        "clients.token_sha256",
        "64 hexadecimal digits",
        "required without `token`",
        "The SHA-256 digest of its token.",
    ),
    setting("clients.token", "text", "none", "The token itself. It works with a warning; prefer the digest."),
];

const ACP: [Setting; 15] = [
    setting(
        "acp.max_sessions",
        "number, at least 1",
        "`16`",
        "The most sessions in memory; the one idle longest makes room.",
    )
    .variables(&["ZEPH_ACP_MAX_SESSIONS"])
    .flags(&["--max-sessions"]),
    setting(
        "acp.session_idle_timeout_secs",
        "seconds",
        "`1800`",
        "When an idle session leaves memory; 0 means never. It stays in the store.",
    )
    .variables(&["ZEPH_ACP_SESSION_IDLE_TIMEOUT_SECS"])
    .flags(&["--idle-timeout"]),
    setting(
        "acp.permission_file",
        "file",
        "`~/.config/zeph/acp-permissions.toml`",
        "Permission rules that zeph wrote. They are read and never changed.",
    )
    .variables(&["ZEPH_ACP_PERMISSION_FILE"]),
    setting("acp.agent_name", "text", "`ropewalk`", "The name that the agent gives editors.")
        .flags(&["--agent-name"]),
    setting(
        "acp.transport",
        "`stdio`, `http` or `both`",
        "`stdio`",
        "How clients connect if the command line does not say.",
    )
    .flags(&["--stdio", "--http"]),
    setting("acp.http_bind", "`HOST:PORT`", "`127.0.0.1:5173`", "The address of `--http` without a value.")
        .flags(&["--http"]),
    setting(
        "acp.additional_directories",
        "list of folders",
        "`[]`",
        "Further folders that sessions may work in.",
    )
    .flags(&["--allow-dir"]),
    setting("acp.disable", "list of methods", "`[]`", "Optional methods that editors are not offered."),
    setting("acp.available_models", "list of models", "`[]`", "Another name of `available_models`."),
    setting("acp.discovery_enabled", "true or false", "`true`", "Another name of `discovery_enabled`."),
    setting("acp.terminal_timeout_secs", "seconds", "`120`", "Another name of `command_timeout`."),
    setting("acp.timeouts.terminal_secs", "seconds", "`120`", "Another name of `command_timeout`."),
    setting("acp.timeouts.elicitation_secs", "seconds", "no limit", "Another name of `ask_timeout`."),
    setting("acp.timeouts.mcp_secs", "seconds", "`300`", "Another name of `mcp.call_timeout`."),
    setting(
        "acp.auth_token",
        "-",
        "-",
        "Ignored with a warning: files get copied and shared. Set the variable instead.",
    )
    .variables(&["ROPEWALK_SERVER_TOKEN", "FERRET_SERVER_TOKEN", "OTTER_SERVER_TOKEN", "ZEPH_ACP_AUTH_TOKEN"])
    .flags(&["--auth-token"]),
];

const PROFILES: [Setting; 1] = [setting(
    "profiles.NAME",
    "any of the settings above",
    "none",
    "`--profile NAME` applies these over the rest of the file.",
)
.flags(&["--profile"])];

/// Variables that are no other name of a setting: the name, and a sentence.
pub const VARIABLES: [(&str, &str); 23] = [
    (
        "ROPEWALK_HOME",
        "Folder for all state and settings (default: `ropewalk` in `$XDG_STATE_HOME` or `~/.local/state`; settings: `ropewalk` in `$XDG_CONFIG_HOME` or `~/.config`).",
    ),
    (
        "ROPEWALK_PERMISSIONS",
        "File with your permission rules (default: `permissions.toml` beside the settings).",
    ),
    ("ROPEWALK_AUDIT_KEY_PATH", "File with the audit key (default: `audit.key` in the state folder)."),
    ("ROPEWALK_OFFLINE", "Set to any value to offer only the offline models."),
    ("ROPEWALK_SHARE_URL", "Where `ropewalk sessions share` uploads to."),
    ("ROPEWALK_SHARE_TOKEN", "The token for it."),
    ("ROPEWALK_PUSH_LOOPBACK", "Set to any value to allow push services on this machine; for tests."),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OpenTelemetry collector for [traces](../operations-metrics.md#traces); `--otlp` takes precedence.",
    ),
    ("OLLAMA_HOST", "Where Ollama listens (default: port 11434 of this machine)."),
    ("NO_COLOR", "Set to any value to turn colours off; `TERM=dumb` does so too."),
    ("HOME", "Your home folder."),
    ("PATH", "Where programs are looked for."),
    ("XDG_STATE_HOME", "Folder for state, unless `ROPEWALK_HOME` is set."),
    ("XDG_CONFIG_HOME", "Folder for settings, unless `ROPEWALK_HOME` is set."),
    ("TERM", "The terminal; `dumb` has no colours."),
    ("BERNSTEIN_AUDIT_KEY_PATH", "As `ROPEWALK_AUDIT_KEY_PATH`."),
    ("CHIMERA_HOME", "Folder of chimera's rules and event logs."),
    ("CHIMERA_PERMISSIONS_FILE", "File with chimera's rules. It is read and never changed."),
    ("CHIMERA_SNAPSHOT_ROOT", "Copies of files for undo are kept in `ropewalk` in this folder."),
    ("OTTER_ACP_DEFAULT_HISTORY_SIZE", "How many updates otter's clients can be sent again."),
    ("OTTER_LOG", "Set to 1 to log every JSON-RPC message, as `-v` does."),
    ("OTTER_SHARE_URL", "As `ROPEWALK_SHARE_URL`."),
    ("OTTER_SHARE_TOKEN", "As `ROPEWALK_SHARE_TOKEN`."),
];

/// Keys of Codex's file that are read, and how.
pub const CODEX: [(&str, &str); 5] = [
    ("model", "As `model`; your own file only."),
    (
        "sandbox_mode",
        "As `sandbox`: `read-only` or `workspace-write`. Anything looser is ignored with a warning.",
    ),
    (
        "approval_policy",
        "As `approval`: `untrusted` is `suggest`, `on-request` and `on-failure` are `auto`. Anything looser is ignored with a warning.",
    ),
    ("bridge.remote_url", "As `bridge.remote_url`; your own file only."),
    ("bridge.replay_window", "As `bridge.replay_window`; your own file only."),
];
