//! The error for an agent that calls a tool it does not have: it names the tools there are.
//!
//! It is stored in the log as text, with our names of the tools. A dialect whose clients know the tools by other names
//! parses the names out of it again.

use std::fmt;

const BEGINNING: &str = "there is no tool ";
const BETWEEN: &str = "; the tools are ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSuchTool {
    pub name: String,
    pub tools: Vec<String>,
}

impl NoSuchTool {
    /// Nothing, if the text says something else.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, tools) = text.strip_prefix(BEGINNING)?.rsplit_once(BETWEEN)?;
        let name = name.strip_prefix('"')?.strip_suffix('"')?;
        let tools = tools.split(", ").map(str::to_owned).collect();
        let read = Self { name: name.to_owned(), tools };
        // A name with quotes or line breaks in it is written otherwise, and is no tool's anywhere.
        (read.to_string() == text).then_some(read)
    }
}

impl fmt::Display for NoSuchTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGINNING}{:?}{BETWEEN}{}", self.name, self.tools.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        let written = NoSuchTool { name: "write".into(), tools: vec!["read".into(), "shell".into()] };
        assert_eq!(written.to_string(), "there is no tool \"write\"; the tools are read, shell");
        assert_eq!(NoSuchTool::parse(&written.to_string()), Some(written));
        for other in ["", "there is no tool", "there is no tool write; the tools are read", "no file"] {
            assert_eq!(NoSuchTool::parse(other), None, "{other}");
        }
        let odd = NoSuchTool { name: "a \"b\"\n".into(), tools: vec!["read".into()] };
        assert_eq!(NoSuchTool::parse(&odd.to_string()), None);
    }
}
