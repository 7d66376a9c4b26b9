//! `[mcp]` in a settings file: tool servers and how long to wait for them.

use engine::{ServerWay, ToolServer};
use toml_edit::Item;

use super::wrong::{Wrong, each};
use super::{list_of, pairs_of, seconds_of, text_of};

/// What `[mcp]` says, as it stands there: `${VARIABLE}` is not looked up yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpSettings {
    pub start_timeout: Option<u64>,
    pub call_timeout: Option<u64>,
    pub servers: Vec<ServerEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEntry {
    pub server: ToolServer,
    pub enabled: bool,
}

impl ServerEntry {
    /// The whole entry on one line, for a person to judge.
    pub fn shown(&self) -> String {
        let mut line = format!("{}:", self.server.name);
        let pairs = match &self.server.way {
            ServerWay::Child { command, arguments, environment } => {
                line.push_str(&format!(" {}", command.display()));
                for argument in arguments {
                    let plain = !argument.is_empty() && !argument.contains([' ', '"', '\\', '\n', '\t']);
                    line.push_str(&if plain { format!(" {argument}") } else { format!(" {argument:?}") });
                }
                environment
            }
            ServerWay::Http { url, headers } => {
                line.push_str(&format!(" {url}"));
                headers
            }
        };
        for (name, value) in pairs {
            line.push_str(&format!(", {name} = {value:?}"));
        }
        line
    }

    /// The same without the values of variables and headers, for lists.
    pub fn without_values(&self) -> String {
        let mut entry = self.clone();
        match &mut entry.server.way {
            ServerWay::Child { environment: pairs, .. } | ServerWay::Http { headers: pairs, .. } => {
                pairs.clear();
            }
        }
        let shown = entry.shown();
        shown.split_once(": ").map_or(shown.clone(), |(_, way)| way.to_owned())
    }

    /// Whether something in it looks as if a variable were meant.
    pub fn has_variables(&self) -> bool {
        self.shown().contains("${")
    }

    /// The server with `${VARIABLE}` and `${VARIABLE:-otherwise}` looked up.
    pub fn expanded(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ToolServer, String> {
        let text = |text: &str| expand(text, variable);
        let pairs = |pairs: &[(String, String)]| -> Result<Vec<_>, String> {
            pairs.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect()
        };
        let way = match &self.server.way {
            ServerWay::Child { command, arguments, environment } => ServerWay::Child {
                command: text(&command.to_string_lossy())?.into(),
                arguments: arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
                environment: pairs(environment)?,
            },
            ServerWay::Http { url, headers } => {
                ServerWay::Http { url: text(url)?.into(), headers: pairs(headers)? }
            }
        };
        Ok(ToolServer { name: self.server.name.clone(), way })
    }
}

fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let (inside, after) =
            after.split_once('}').ok_or_else(|| format!("${{ is not closed in {before}${{.."))?;
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise.to_owned())),
            None => (inside, None),
        };
        let value = variable(name).or(otherwise);
        out.push_str(&value.ok_or_else(|| format!("the variable {name} is not set"))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

pub(super) fn parse(item: &Item) -> Result<McpSettings, Wrong> {
    let table = item.as_table_like().ok_or("mcp is a table: [mcp.servers.NAME]")?;
    let mut settings = McpSettings::default();
    each(table, |key, item| {
        match key {
            "start_timeout" => settings.start_timeout = Some(seconds_of(key, item)?),
            "call_timeout" => settings.call_timeout = Some(seconds_of(key, item)?),
            "servers" => {
                let servers = item.as_table_like().ok_or("mcp.servers is a table: [mcp.servers.NAME]")?;
                each(servers, |name, item| {
                    settings.servers.push(entry(name, item)?);
                    Ok(())
                })?;
            }
            _ => return Err(format!("mcp has start_timeout, call_timeout and servers, not {key}").into()),
        }
        Ok(())
    })?;
    Ok(settings)
}

fn entry(name: &str, item: &Item) -> Result<ServerEntry, Wrong> {
    let table = item.as_table_like().ok_or("it is a table with command or url")?;
    let (mut command, mut url, mut enabled) = (None, None, true);
    let (mut arguments, mut environment, mut headers) = (Vec::new(), Vec::new(), Vec::new());
    each(table, |key, item| {
        match key {
            "command" => command = Some(text_of(key, item)?.to_owned()),
            "args" => arguments = list_of(key, item)?,
            "env" => environment = pairs_of(key, item)?,
            "url" => url = Some(text_of(key, item)?.to_owned()),
            "headers" => headers = pairs_of(key, item)?,
            "enabled" => enabled = item.as_bool().ok_or("enabled must be true or false")?,
            // Other agents write how it is reached; here that is seen from the rest.
            "type" | "transport" => drop(text_of(key, item)?),
            _ => {
                return Err(
                    format!("a server has command, args, env, url, headers and enabled, not {key}").into()
                );
            }
        }
        Ok(())
    })?;
    let way = match (command, url) {
        (Some(command), None) if !command.is_empty() && headers.is_empty() => {
            ServerWay::Child { command: command.into(), arguments, environment }
        }
        (None, Some(url)) if arguments.is_empty() && environment.is_empty() => {
            ServerWay::Http { url: url.into(), headers }
        }
        _ => return Err("it needs command (with args, env) or url (with headers)".into()),
    };
    Ok(ServerEntry { server: ToolServer { name: name.into(), way }, enabled })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<McpSettings, String> {
        let document: toml_edit::DocumentMut = text.parse().unwrap();
        parse(&document["mcp"]).map_err(|wrong| wrong.to_string())
    }

    const TWO: &str = r#"
        [mcp]
        call_timeout = 60
        [mcp.servers.git]
        command = "uvx"
        args = ["mcp-server-git", "--repository", "${WHERE:-a b}"]
        env = { TOKEN = "${SECRET}" }
        [mcp.servers.web]
        url = "https://${HOST}/mcp"
        headers = { Authorization = "Bearer ${SECRET}" }
        enabled = false
    "#;

    /// X5.
    #[test]
    fn servers_are_read_shown_and_their_variables_looked_up() {
        let settings = settings(TWO).unwrap();
        assert_eq!((settings.start_timeout, settings.call_timeout), (None, Some(60)));
        let [git, web] = &settings.servers[..] else { panic!("{settings:?}") };
        assert!(git.enabled && !web.enabled);
        assert_eq!(
            git.shown(),
            r#"git: uvx mcp-server-git --repository "${WHERE:-a b}", TOKEN = "${SECRET}""#
        );
        assert_eq!(web.without_values(), "https://${HOST}/mcp");
        let variable = |name: &str| (name == "SECRET").then(|| "hush".to_owned());
        let expanded = ServerEntry { server: git.expanded(&variable).unwrap(), enabled: true };
        assert_eq!(expanded.shown(), r#"git: uvx mcp-server-git --repository "a b", TOKEN = "hush""#);
        assert_eq!(web.expanded(&variable).unwrap_err(), "the variable HOST is not set");
        assert!(!format!("{expanded:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, said) in [
            ("mcp = 1", "mcp is a table"),
            ("[mcp]\nserver = 1", "not server"),
            ("[mcp.servers]\na = 1", "a table with command or url"),
            ("[mcp.servers.a]", "it needs command"),
            ("[mcp.servers.a]\ncommand = \"x\"\nurl = \"y\"", "it needs command"),
            ("[mcp.servers.a]\nurl = \"y\"\nargs = [\"z\"]", "it needs command"),
            ("[mcp.servers.a]\ncomand = \"x\"", "not comand"),
            ("[mcp.servers.a]\ncommand = \"x\"\nenv = [\"A=b\"]", "a table of texts"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(expand("a ${B", &|_| None).unwrap_err().contains("not closed"));
    }
}
