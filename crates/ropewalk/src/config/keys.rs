//! The keys of a settings file. The parsers look every key up here first, so none can be read that is not listed;
//! `docs/reference/config.md` is compared with this list.

/// The keys of each table, under the table's path; the file itself has the empty path. Tables whose keys are names of
/// the person's own choice (`[agents.NAME]`, `[mcp.servers.NAME]`) stand here without the name.
pub const KEYS: [(&str, &[&str]); 14] = [
    (
        "",
        &[
            "model",
            "available_models",
            "probe_local_models",
            "max_turns",
            "sandbox",
            "approval",
            "approval_max",
            "ask_timeout",
            "command_timeout",
            "add_dirs",
            "terminal",
            "environment",
            "agent",
            "discovery_enabled",
            "push_contact",
            "store",
            "bridge",
            "clients",
            "mcp",
            "agents",
            "providers",
            "models",
            "budget",
            "limits",
            "acp",
            "profiles",
        ],
    ),
    ("store", &["url", "file"]),
    ("bridge", &["remote_url", "replay_window", "answers", "e2e", "auth_token", "bridge_token", "token"]),
    ("clients", &["id", "token_sha256", "token"]),
    ("mcp", &["start_timeout", "call_timeout", "servers"]),
    ("mcp.servers", &["command", "args", "env", "url", "headers", "enabled", "type", "transport"]),
    ("agents", &["command", "args", "env", "pass", "own_folders", "own_settings", "sandbox"]),
    ("providers", &["name", "wire", "base_url", "models", "key_env", "headers_env", "key", "api_key"]),
    ("models", &["id", "context", "output", "images", "price"]),
    ("models.price", &["input", "output", "cache_read", "cache_write"]),
    ("budget", &["session_usd", "day_usd", "unknown"]),
    (
        "limits",
        &[
            "first_byte_timeout",
            "idle_timeout",
            "give_up_after",
            "retry_after_max",
            "answer_bytes_max",
            "turn_bytes_max",
        ],
    ),
    (
        "acp",
        &[
            "max_sessions",
            "session_idle_timeout_secs",
            "permission_file",
            "agent_name",
            "transport",
            "http_bind",
            "additional_directories",
            "disable",
            "terminal_timeout_secs",
            "available_models",
            "discovery_enabled",
            "timeouts",
            "auth_token",
        ],
    ),
    ("acp.timeouts", &["terminal_secs", "elicitation_secs", "mcp_secs"]),
];

/// The key as it is listed for this table, if it is.
pub fn known(table: &str, key: &str) -> Option<&'static str> {
    let (_, keys) = KEYS.iter().find(|(path, _)| *path == table)?;
    keys.iter().copied().find(|known| *known == key)
}
