//! The known providers, in order of preference.

use agent::Wire;

pub struct KnownProvider {
    pub name: &'static str,
    pub wire: Wire,
    pub base_url: &'static str,
    /// Variables that may hold the key; messages name the first.
    pub keys: &'static [&'static str],
    /// The variable that overrides the base URL.
    pub base_env: Option<&'static str>,
}

pub const KNOWN: [KnownProvider; 9] = [
    KnownProvider {
        name: "openai",
        wire: Wire::Responses,
        base_url: "https://api.openai.com/v1",
        keys: &["OPENAI_API_KEY"],
        base_env: Some("OPENAI_BASE_URL"),
    },
    KnownProvider {
        name: "anthropic",
        wire: Wire::Anthropic,
        base_url: "https://api.anthropic.com/v1",
        keys: &["ANTHROPIC_API_KEY"],
        base_env: Some("ANTHROPIC_BASE_URL"),
    },
    KnownProvider {
        name: "openrouter",
        wire: Wire::Chat,
        base_url: "https://openrouter.ai/api/v1",
        keys: &["OPENROUTER_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "xai",
        wire: Wire::Chat,
        base_url: "https://api.x.ai/v1",
        keys: &["XAI_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "gemini",
        wire: Wire::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "deepseek",
        wire: Wire::Chat,
        base_url: "https://api.deepseek.com/v1",
        keys: &["DEEPSEEK_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "mistral",
        wire: Wire::Chat,
        base_url: "https://api.mistral.ai/v1",
        keys: &["MISTRAL_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "groq",
        wire: Wire::Chat,
        base_url: "https://api.groq.com/openai/v1",
        keys: &["GROQ_API_KEY"],
        base_env: None,
    },
    KnownProvider {
        name: "moonshot",
        wire: Wire::Chat,
        base_url: "https://api.moonshot.ai/v1",
        keys: &["MOONSHOT_API_KEY"],
        base_env: None,
    },
];

pub fn known(name: &str) -> Option<&'static KnownProvider> {
    KNOWN.iter().find(|known| known.name == name)
}
