//! Environment variables whose names say that their values are secret.

const SECRET_WORDS: [&str; 5] = ["KEY", "SECRET", "TOKEN", "PASSW", "CREDENTIAL"];
/// With these words the value is always a secret; the others also occur in the names of files and switches.
const ALWAYS: [&str; 2] = ["SECRET", "PASSW"];

/// Whether a variable with this name holds a secret, as far as its name tells.
pub fn is_secret_name(name: &str) -> bool {
    contains_any(name, &SECRET_WORDS)
}

/// The values that must not be shown, of the variables whose names say that they are secret.
pub fn known_secrets(variables: impl IntoIterator<Item = (String, String)>) -> Vec<String> {
    variables.into_iter().filter(|(name, value)| is_known(name, value)).map(|(_, value)| value).collect()
}

fn is_known(name: &str, value: &str) -> bool {
    is_secret_name(name) && (contains_any(name, &ALWAYS) || !is_ordinary(value))
}

fn contains_any(name: &str, words: &[&str]) -> bool {
    let name = name.to_ascii_uppercase();
    words.iter().any(|word| name.contains(word))
}

/// A path, an address or a plain word: replacing it everywhere would only make texts unreadable.
fn is_ordinary(value: &str) -> bool {
    value.starts_with(['/', '~'])
        || value.contains("://")
        || value.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'-' | b'_' | b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_secret_by_its_name() {
        for name in
            ["OPENAI_API_KEY", "github_token", "DB_PASSWORD", "PGPASSWD", "AWS_SECRET", "X_CREDENTIALS"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["PATH", "HOME", "LC_ALL", "EDITOR"] {
            assert!(!is_secret_name(name), "{name}");
        }
        let known = |name: &str, value: &str| !known_secrets([(name.into(), value.into())]).is_empty();
        assert!(known("DB_PASSWORD", "correcthorse") && known("API_KEY", "k1-abcdef"));
        assert!(
            !known("SSH_KEY", "/home/me/.ssh/id")
                && !known("TOKENIZER", "wordpiece")
                && !known("PATH", "/bin")
        );
    }
}
