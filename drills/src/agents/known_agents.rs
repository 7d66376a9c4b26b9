//! The known agents: packages, versions, and the settings that they need.
//!
//! Versions are pinned here and nowhere else. `MOCK` is the provider's address, `PROJECT` the folder an agent
//! works in, `MODULES` where its packages are.

use super::{Agent, Source};

/// Those that are measured beside the product.
pub const AGENTS: [Agent; 6] = [
    Agent {
        name: "opencode",
        source: Source::Npm(&["opencode-ai@1.18.33"]),
        program: "opencode-linux-x64/bin/opencode",
        arguments: &["acp"],
        environment: &[
            ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ],
        settings: &[(
            ".config/opencode/opencode.json",
            r#"{"autoupdate":false,"share":"disabled","model":"mock/mock-model","small_model":"mock/mock-model",
 "provider":{"mock":{"npm":"@ai-sdk/openai-compatible","name":"mock","options":{"baseURL":"http://MOCK/v1","apiKey":"mock"},"models":{"mock-model":{"name":"mock-model","tool_call":true,"limit":{"context":1000000,"output":100000}}}}}}"#,
        )],
    },
    Agent {
        name: "codex-acp (Zed's)",
        source: Source::Npm(&["@zed-industries/codex-acp@0.16.0"]),
        program: "@zed-industries/codex-acp-linux-x64/bin/codex-acp",
        arguments: &[],
        environment: &[("OPENAI_API_KEY", "sk-mock"), ("TMPDIR", "/var/tmp")],
        settings: &[(".codex/config.toml", CODEX)],
    },
    Agent {
        name: "codex-acp",
        source: Source::Npm(&["@agentclientprotocol/codex-acp@2.6.0"]),
        program: "@agentclientprotocol/codex-acp/dist/index.js",
        arguments: &[],
        environment: &[("OPENAI_API_KEY", "sk-mock"), ("TMPDIR", "/var/tmp")],
        settings: &[(".codex/config.toml", CODEX)],
    },
    Agent {
        name: "goose",
        source: Source::Npm(&["@aaif/goose-binary-linux-x64@1.52.0"]),
        program: "@aaif/goose-binary-linux-x64/bin/goose",
        arguments: &["acp", "--with-builtin", "developer"],
        environment: &[
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "mock-model"),
            ("OPENAI_HOST", "http://MOCK"),
            ("OPENAI_API_KEY", "mock"),
            ("GOOSE_MODE", "auto"),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("GOOSE_TELEMETRY_ENABLED", "false"),
        ],
        settings: &[],
    },
    Agent {
        name: "claude-agent-acp",
        source: Source::Npm(&["@agentclientprotocol/claude-agent-acp@0.99.1"]),
        program: "@agentclientprotocol/claude-agent-acp/dist/index.js",
        arguments: &[],
        environment: &[
            ("ANTHROPIC_BASE_URL", "http://MOCK"),
            ("ANTHROPIC_API_KEY", "sk-mock"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ],
        settings: &[(
            ".claude.json",
            r#"{"hasCompletedOnboarding":true,"customApiKeyResponses":{"approved":["sk-mock"],"rejected":[]}}"#,
        )],
    },
    Agent {
        name: "pi-acp",
        source: Source::Npm(&["@earendil-works/pi-coding-agent@0.87.1", "pi-acp@0.0.34"]),
        program: "pi-acp/dist/index.js",
        arguments: &[],
        environment: &[("PI_ACP_PI_COMMAND", "MODULES/.bin/pi"), ("PI_OFFLINE", "1")],
        settings: &[
            (
                ".pi/agent/models.json",
                r#"{"providers":{"mock":{"baseUrl":"http://MOCK/v1","api":"openai-completions","apiKey":"mock","models":[{"id":"mock-model","name":"mock-model","contextWindow":1000000,"maxTokens":100000}]}}}"#,
            ),
            (".pi/agent/settings.json", r#"{"defaultProvider":"mock","defaultModel":"mock-model"}"#),
        ],
    },
];

/// Those that are only driven: `cargo xtask agents`.
pub const OTHERS: [Agent; 6] = [
    Agent {
        name: "gemini",
        source: Source::Npm(&["@google/gemini-cli@0.61.0"]),
        program: "@google/gemini-cli/bundle/gemini.js",
        arguments: &["--acp"],
        environment: &[
            ("GOOGLE_GEMINI_BASE_URL", "http://MOCK"),
            ("GEMINI_API_KEY", "mock"),
            ("NO_BROWSER", "1"),
        ],
        settings: &[(
            ".gemini/settings.json",
            r#"{"security":{"auth":{"selectedType":"gemini-api-key"}},"telemetry":{"enabled":false},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true,"enableAutoUpdate":false},"model":{"name":"gemini-2.5-pro"}}"#,
        )],
    },
    Agent {
        name: "qwen",
        source: Source::Npm(&["@qwen-code/qwen-code@0.24.4"]),
        program: "@qwen-code/qwen-code/cli.js",
        arguments: &["--acp"],
        environment: &[
            ("OPENAI_BASE_URL", "http://MOCK/v1"),
            ("OPENAI_API_KEY", "mock"),
            ("OPENAI_MODEL", "mock-model"),
        ],
        settings: &[(
            ".qwen/settings.json",
            r#"{"security":{"auth":{"selectedType":"openai","apiKey":"mock","baseUrl":"http://MOCK/v1"}},"model":{"name":"mock-model"},"telemetry":{"enabled":false},"privacy":{"usageStatisticsEnabled":false},"general":{"disableAutoUpdate":true}}"#,
        )],
    },
    Agent {
        name: "kimi",
        source: Source::Npm(&["@moonshot-ai/kimi-code@2.1.0"]),
        program: "@moonshot-ai/kimi-code/dist/main.mjs",
        arguments: &["acp"],
        environment: &[("KIMI_CODE_NO_AUTO_UPDATE", "1")],
        settings: &[(".kimi-code/config.toml", KIMI)],
    },
    Agent {
        // The last version whose package brings the example.
        name: "typescript-sdk",
        source: Source::Npm(&["@agentclientprotocol/sdk@1.9.0", "zod@4.6.7"]),
        program: "@agentclientprotocol/sdk/dist/examples/agent.js",
        arguments: &[],
        environment: &[],
        settings: &[],
    },
    Agent {
        name: "python-sdk",
        source: Source::Python("agent-client-protocol==0.12.1"),
        program: "examples/agent.py",
        arguments: &[],
        environment: &[],
        settings: &[],
    },
    Agent {
        name: "python-sdk-echo",
        source: Source::Python("agent-client-protocol==0.12.1"),
        program: "examples/echo_agent.py",
        arguments: &[],
        environment: &[],
        settings: &[],
    },
];

const KIMI: &str = r#"default_model = "mock"
[models.mock]
provider = "mock"
model = "mock-model"
max_context_size = 1000000
[providers.mock]
type = "openai"
base_url = "http://MOCK/v1"
api_key = "mock"
"#;

const CODEX: &str = r#"model = "gpt-5.3-codex"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.mock]
name = "mock"
base_url = "http://MOCK/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[projects."PROJECT"]
trust_level = "trusted"
[analytics]
enabled = false
"#;
