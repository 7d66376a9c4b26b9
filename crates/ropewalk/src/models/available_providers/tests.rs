use agent::Price;

use super::*;

/// Each provider with where it comes from and its first models.
fn check(
    settings: &ModelSettings,
    variables: &[(&str, &str)],
    local: &[LocalServer],
    wish: Option<&str>,
) -> AvailableModels {
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    find(settings, &variable, local, wish, false)
}

fn names(found: &AvailableModels) -> Vec<(&str, &str)> {
    found.providers.iter().map(|provider| (&*provider.config.name, provider.from.as_str())).collect()
}

fn ids(found: &AvailableModels, name: &str) -> Vec<String> {
    let provider = found.providers.iter().find(|provider| *provider.config.name == *name).unwrap();
    provider.config.models.iter().map(|model| model.id.to_string()).collect()
}

fn ollama() -> LocalServer {
    let models = vec!["qwen3:4b".into(), "big-cloud".into()];
    LocalServer { name: "ollama", base_url: "http://127.0.0.1:11434".into(), models }
}

fn entry(name: &str) -> ProviderEntry {
    ProviderEntry { name: name.into(), ..ProviderEntry::default() }
}

#[test]
fn keys_are_preferred_in_the_usual_order_and_what_is_local_comes_last() {
    let keys = ["GOOGLE_API_KEY", "XAI_API_KEY", "OPENROUTER_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"];
    let variables = keys.map(|name| (name, "a-secret-key"));
    let found = check(&ModelSettings::default(), &variables, &[ollama()], None);
    assert_eq!(
        names(&found),
        [
            ("openai", "OPENAI_API_KEY"),
            ("anthropic", "ANTHROPIC_API_KEY"),
            ("openrouter", "OPENROUTER_API_KEY"),
            ("xai", "XAI_API_KEY"),
            ("gemini", "GOOGLE_API_KEY"),
            ("ollama", "server at 127.0.0.1:11434"),
        ]
    );
    assert!(found.missing.iter().any(|missing| missing.fix == "export GROQ_API_KEY=..."));
    assert!(!format!("{found:?}").contains("a-secret-key"));
}

#[test]
fn nothing_at_all_leaves_the_offline_model_and_says_what_to_do() {
    let found = check(&ModelSettings::default(), &[], &[], None);
    assert!(!found.offline.is_empty() && found.providers.is_empty());
    let ollama = found.missing.iter().find(|missing| missing.name == "ollama").unwrap();
    assert!(ollama.why.contains("127.0.0.1:11434"), "{ollama:?}");
    assert_eq!(&*found.resolve("offline:terse").unwrap(), "offline:terse");
    assert!(found.resolve("anthropic:claude-opus-5").is_err());
}

#[test]
fn settings_go_first_and_a_local_server_tells_its_own_models() {
    let settings = ModelSettings {
        providers: vec![
            ProviderEntry {
                base_url: Some("http://127.0.0.1:11434/".into()),
                wire: Some(Wire::Ollama),
                ..entry("mine")
            },
            ProviderEntry { key_env: Some("WORK".into()), ..entry("anthropic") },
            entry("nobody"),
        ],
        ..ModelSettings::default()
    };
    let found = check(&settings, &[("WORK", "k"), ("OPENAI_API_KEY", "k")], &[ollama()], None);
    let all = names(&found);
    assert_eq!(
        all[..3],
        [("mine", "the settings"), ("anthropic", "the settings"), ("openai", "OPENAI_API_KEY")]
    );
    assert_eq!(ids(&found, "mine"), ["mine:qwen3:4b", "mine:big-cloud"]);
    let prices: Vec<_> = found.providers[0].config.models.iter().map(|model| model.price).collect();
    assert_eq!(prices, [Some(Price::FREE), None]);
    assert!(found.missing.iter().any(|missing| missing.name == "nobody" && missing.why.contains("wire")));
    let unset = check(&settings, &[], &[], None);
    assert!(
        unset.missing.iter().any(|missing| missing.name == "anthropic" && missing.why == "WORK is not set")
    );
}

#[test]
fn another_address_is_honoured_and_its_prices_are_not_known() {
    let variables = [
        ("ANTHROPIC_BASE_URL", "http://gateway/"),
        ("ANTHROPIC_API_KEY", "k"),
        ("OPENAI_BASE_URL", "http://other/v1"),
    ];
    let found = check(&ModelSettings::default(), &variables, &[], Some("openai:my-model"));
    let [openai, anthropic] = &found.providers[..] else { panic!("{found:?}") };
    assert_eq!((openai.config.wire, openai.config.base_url.as_str()), (Wire::Chat, "http://other/v1"));
    assert_eq!(anthropic.config.base_url, "http://gateway/v1");
    assert!(openai.config.models.iter().chain(&anthropic.config.models).all(|model| model.price.is_none()));
    assert_eq!(&*found.resolve("openai:my-model").unwrap(), "openai:my-model");
}

#[test]
fn a_model_is_named_whole_or_without_its_provider_or_is_new() {
    let key = [("ANTHROPIC_API_KEY", "k")];
    let resolve = |wish: &str| {
        let found = check(&ModelSettings::default(), &key, &[], Some(wish));
        found.resolve(wish).map(|id| id.to_string()).map_err(|error| format!("{error:?}"))
    };
    assert_eq!(resolve("claude-opus-5").unwrap(), "anthropic:claude-opus-5");
    assert_eq!(resolve("anthropic:claude-opus-5").unwrap(), "anthropic:claude-opus-5");
    assert_eq!(resolve("claude-brand-new").unwrap(), "anthropic:claude-brand-new");
    let error = resolve("openai:gpt-5").unwrap_err();
    assert!(error.contains("OPENAI_API_KEY is not set"), "{error}");
}

#[test]
fn the_settings_narrow_the_list_and_know_better() {
    let settings = ModelSettings {
        available: vec!["anthropic:claude-opus-5".into(), "claude-sonnet-5".into()],
        models: vec![
            ModelEntry {
                id: "anthropic:claude-opus-5".into(),
                price: Some(Price { input: 9.0, ..Price::FREE }),
                context: Some(7000),
                ..ModelEntry::default()
            },
            ModelEntry { id: "x:y".into(), ..ModelEntry::default() },
        ],
        ..ModelSettings::default()
    };
    let found = check(&settings, &[("ANTHROPIC_API_KEY", "k")], &[], None);
    let mut kept = ids(&found, "anthropic");
    kept.sort();
    assert_eq!(kept, ["anthropic:claude-opus-5", "anthropic:claude-sonnet-5"]);
    assert!(found.offline.is_empty());
    let opus = found.providers[0].config.models.iter().find(|model| model.id.ends_with("opus-5")).unwrap();
    assert_eq!((opus.context_tokens, opus.price.unwrap().input), (7000, 9.0));
    assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
    let none = ModelSettings { available: vec!["a:b".into()], ..ModelSettings::default() };
    let found = check(&none, &[("ANTHROPIC_API_KEY", "k")], &[], None);
    assert!(found.offline.len() == 2 && !found.warnings.is_empty());
}

#[test]
fn the_settings_narrow_the_offline_models_too() {
    let settings = |available: &[&str]| ModelSettings {
        available: available.iter().map(|id| (*id).to_owned()).collect(),
        ..ModelSettings::default()
    };
    let offline =
        |found: &AvailableModels| found.offline.iter().map(|model| model.id.to_string()).collect::<Vec<_>>();
    for offline_only in [false, true] {
        let none = |_: &str| None;
        let found = find(&settings(&["offline:terse"]), &none, &[], None, offline_only);
        assert_eq!(offline(&found), ["offline:terse"]);
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        assert!(found.resolve("offline:plain").is_err());
        assert!(found.resolve("plain").is_err());
        assert_eq!(found.resolve("terse").unwrap().as_ref(), "offline:terse");
        assert_eq!(found.resolve("offline:terse").unwrap().as_ref(), "offline:terse");
        let found = find(&settings(&["terse", "offline:plain"]), &none, &[], None, offline_only);
        assert_eq!(offline(&found), ["offline:terse", "offline:plain"], "in the order of the list");
    }
}
