//! What the offline model understands: short requests, one per line or joined by ` && then `.

/// A single request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Read(String),
    List(Option<String>),
    Search(String),
    Run(String),
    Write { path: String, text: String },
    Edit { path: String, old: String, new: String },
    Plan,
    Think,
    Stream { count: u64, chunk_bytes: usize },
    Sleep(u64),
    Recall,
    Fail,
    Review(Option<String>),
    Unknown(String),
}

const CHUNK_BYTES: usize = 100;
const CHUNK_BYTES_MAX: usize = 65_536;

/// All requests in one message of the user, in order. Attached resources are not requests.
pub(super) fn parse(text: &str) -> Vec<Request> {
    let text = without_resources(text);
    if let Some(review) = parse_review(&text) {
        return vec![review];
    }
    let mut requests: Vec<Request> = Vec::new();
    for line in text.split('\n').flat_map(|line| line.split(" && then ")) {
        match (parse_one(line.trim()), requests.last_mut()) {
            (Some(request), _) => requests.push(request),
            // Lines after a text to write that are not requests belong to the text.
            (None, Some(Request::Write { text: more, .. } | Request::Edit { new: more, .. })) => {
                more.push('\n');
                more.push_str(line);
            }
            (None, _) if line.trim().is_empty() => {}
            (None, _) => requests.push(Request::Unknown(line.trim().to_owned())),
        }
    }
    for request in &mut requests {
        if let Request::Write { text, .. } = request
            && !text.ends_with('\n')
        {
            text.push('\n');
        }
    }
    requests
}

fn parse_one(line: &str) -> Option<Request> {
    let lower = line.to_lowercase();
    if lower.trim_end_matches(['?', '.', '!']) == "what did i say" {
        return Some(Request::Recall);
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let given = !rest.is_empty();
    match word.to_lowercase().as_str() {
        "read" if given => Some(Request::Read(rest.to_owned())),
        "list" => Some(Request::List(given.then(|| rest.to_owned()))),
        "search" if given => Some(Request::Search(rest.to_owned())),
        "run" if given => Some(Request::Run(rest.to_owned())),
        "write" => {
            let (path, text) = rest.split_once(':')?;
            Some(Request::Write { path: path.trim().to_owned(), text: after_blank(text).to_owned() })
        }
        "edit" => {
            let (path, change) = rest.split_once(':')?;
            let (old, new) = after_blank(change).split_once("=>")?;
            let path = path.trim().to_owned();
            Some(Request::Edit { path, old: old.trim_end().to_owned(), new: after_blank(new).to_owned() })
        }
        "plan" if !given => Some(Request::Plan),
        "think" if !given => Some(Request::Think),
        "fail" if !given => Some(Request::Fail),
        "sleep" => rest.parse().ok().map(Request::Sleep),
        "stream" => parse_stream(rest),
        _ => None,
    }
}

fn parse_stream(rest: &str) -> Option<Request> {
    let mut numbers = rest.split_whitespace();
    let count = numbers.next()?.parse().ok().filter(|count| *count > 0)?;
    let chunk_bytes = numbers.next().map_or(Ok(CHUNK_BYTES), str::parse).ok()?.min(CHUNK_BYTES_MAX);
    numbers.next().is_none().then_some(Request::Stream { count, chunk_bytes })
}

/// A review comes with instructions of our own on the lines below it.
fn parse_review(text: &str) -> Option<Request> {
    let rest = text.lines().next()?.trim().strip_prefix("review ")?.trim();
    Some(Request::Review((rest != "the project").then(|| rest.to_owned())))
}

fn after_blank(text: &str) -> &str {
    text.strip_prefix(' ').unwrap_or(text)
}

/// The text without its `<resource>` blocks. Their contents are escaped, so they cannot nest.
fn without_resources(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("<resource ") {
        let Some(length) = rest[start..].find("</resource>") else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + length + "</resource>".len()..];
    }
    kept + rest
}

/// The addresses of the resources in a text.
pub(super) fn resources(text: &str) -> Vec<String> {
    let after = text.split("<resource ").skip(1);
    after.filter_map(|block| block.split('"').nth(1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_requests_are_understood() {
        let write = |path: &str, text: &str| Request::Write { path: path.into(), text: text.into() };
        for (text, expected) in [
            ("read a.txt", vec![Request::Read("a.txt".into())]),
            ("Read a b.txt", vec![Request::Read("a b.txt".into())]),
            ("list", vec![Request::List(None)]),
            (
                "list src && then run ls -l && echo x",
                vec![Request::List(Some("src".into())), Request::Run("ls -l && echo x".into())],
            ),
            (
                "write a.txt: one\ntwo\n\nread a.txt",
                vec![write("a.txt", "one\ntwo\n"), Request::Read("a.txt".into())],
            ),
            (
                "edit a: x = 1 => x = 2",
                vec![Request::Edit { path: "a".into(), old: "x = 1".into(), new: "x = 2".into() }],
            ),
            ("stream 5", vec![Request::Stream { count: 5, chunk_bytes: 100 }]),
            ("stream 5 7", vec![Request::Stream { count: 5, chunk_bytes: 7 }]),
            ("stream 5 999999999", vec![Request::Stream { count: 5, chunk_bytes: 65_536 }]),
            ("what did I say?", vec![Request::Recall]),
            ("review src/a.rs\nOnly read.", vec![Request::Review(Some("src/a.rs".into()))]),
            ("hello there", vec![Request::Unknown("hello there".into())]),
            ("read a\n<resource uri=\"u\">read b\n</resource>", vec![Request::Read("a".into())]),
            ("", vec![]),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert_eq!(resources("a <resource uri=\"u\">x</resource>"), ["u"]);
    }
}
