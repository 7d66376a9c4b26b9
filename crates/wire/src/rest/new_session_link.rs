//! Links that open a new session: `ropewalk://new-session?cwd=..&prompt=..&model=..`.
//!
//! Anybody can put such a link in a page or a mail, so its contents are only ever shown to a person.

/// Longer links are refused without being parsed.
const LINK_BYTES_MAX: usize = 65_536;
const PROMPT_BYTES_MAX: usize = 8192;
/// Our scheme, and the one that the pages of other agents use.
const SCHEMES: [&str; 2] = ["ropewalk://", "zeph://"];

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeepLink {
    pub cwd: Option<String>,
    pub prompt: Option<String>,
    pub model: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeepLinkError {
    #[error("a link can have at most {LINK_BYTES_MAX} bytes")]
    TooLong,
    #[error("a link must start with ropewalk:// or zeph://")]
    Scheme,
    #[error("the action of a link must be new-session")]
    Action,
    #[error("a value is not percent-encoded UTF-8")]
    Encoding,
    #[error("a parameter is given twice")]
    Twice,
    #[error("cwd has a control character")]
    Control,
    #[error("a prompt can have at most {PROMPT_BYTES_MAX} bytes")]
    PromptTooLong,
}

impl DeepLink {
    pub fn parse(text: &str) -> Result<Self, DeepLinkError> {
        if text.len() > LINK_BYTES_MAX {
            return Err(DeepLinkError::TooLong);
        }
        let rest =
            SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).ok_or(DeepLinkError::Scheme)?;
        let (action, query) = rest.split_once('?').unwrap_or((rest, ""));
        if action.trim_end_matches('/') != "new-session" {
            return Err(DeepLinkError::Action);
        }
        let mut link = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let field = match name {
                "cwd" => &mut link.cwd,
                "prompt" => &mut link.prompt,
                "model" => &mut link.model,
                // A parameter of a later version.
                _ => continue,
            };
            if field.replace(decoded(value)?).is_some() {
                return Err(DeepLinkError::Twice);
            }
        }
        if link.cwd.as_ref().is_some_and(|cwd| cwd.chars().any(char::is_control)) {
            return Err(DeepLinkError::Control);
        }
        if link.prompt.as_ref().is_some_and(|prompt| prompt.len() > PROMPT_BYTES_MAX) {
            return Err(DeepLinkError::PromptTooLong);
        }
        Ok(link)
    }
}

fn decoded(text: &str) -> Result<String, DeepLinkError> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex = tail.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
                let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
                let byte =
                    hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).ok_or(DeepLinkError::Encoding)?;
                bytes.push(byte);
                rest = &tail[2..];
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| DeepLinkError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_and_nothing_else_is() {
        let link =
            DeepLink::parse("zeph://new-session?cwd=%2Ftmp%2Fa+b&prompt=h%C3%A9&model=m&later=1").unwrap();
        assert_eq!(link.cwd.as_deref(), Some("/tmp/a b"));
        assert_eq!(link.prompt.as_deref(), Some("hé"));
        assert_eq!(link.model.as_deref(), Some("m"));
        assert_eq!(DeepLink::parse("ropewalk://new-session"), Ok(DeepLink::default()));
        for (bad, why) in [
            ("http://new-session", DeepLinkError::Scheme),
            ("zeph:new-session", DeepLinkError::Scheme),
            ("zeph://unknown-action", DeepLinkError::Action),
            ("zeph://", DeepLinkError::Action),
            ("zeph://new-session?cwd=%2", DeepLinkError::Encoding),
            ("zeph://new-session?cwd=%zz", DeepLinkError::Encoding),
            ("zeph://new-session?prompt=%ff", DeepLinkError::Encoding),
            ("zeph://new-session?cwd=a&cwd=b", DeepLinkError::Twice),
            ("zeph://new-session?cwd=%2F%00evil", DeepLinkError::Control),
        ] {
            assert_eq!(DeepLink::parse(bad), Err(why), "{bad}");
        }
        let long = format!("zeph://new-session?prompt={}", "a".repeat(PROMPT_BYTES_MAX + 1));
        assert_eq!(DeepLink::parse(&long), Err(DeepLinkError::PromptTooLong));
        let huge = format!("zeph://new-session?cwd=/{}", "a".repeat(LINK_BYTES_MAX));
        assert_eq!(DeepLink::parse(&huge), Err(DeepLinkError::TooLong));
    }
}
