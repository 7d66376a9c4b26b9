//! `[mcp]` in a settings file: MCP servers and their timeouts.

use engine::{ServerTransport, ToolServer};
use toml_edit::Item;

use super::error::{ConfigError, each_entry};
use super::{keys, list_of, pairs_of, seconds_of, text_of};

/// The content of `[mcp]`, with `${VARIABLE}` not expanded yet.
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
    /// The whole entry on one line, for a person to review.
    pub fn one_line(&self) -> String {
        let mut line = format!("{}:", self.server.name);
        let pairs = match &self.server.transport {
            ServerTransport::Child { command, arguments, environment } => {
                line.push_str(&format!(" {}", command.display()));
                for argument in arguments {
                    let plain = !argument.is_empty() && !argument.contains([' ', '"', '\\', '\n', '\t']);
                    line.push_str(&if plain { format!(" {argument}") } else { format!(" {argument:?}") });
                }
                environment
            }
            ServerTransport::Http { url, headers } => {
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
        match &mut entry.server.transport {
            ServerTransport::Child { environment: pairs, .. }
            | ServerTransport::Http { headers: pairs, .. } => {
                pairs.clear();
            }
        }
        let one_line = entry.one_line();
        one_line.split_once(": ").map_or(one_line.clone(), |(_, way)| way.to_owned())
    }

    /// Whether it contains `${`.
    pub fn has_variables(&self) -> bool {
        self.one_line().contains("${")
    }

    /// The server with `${VARIABLE}` and `${VARIABLE:-default}` expanded.
    pub fn expanded(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ToolServer, String> {
        let text = |text: &str| expand(text, variable);
        let pairs = |pairs: &[(String, String)]| -> Result<Vec<_>, String> {
            pairs.iter().map(|(name, value)| Ok((name.clone(), text(value)?))).collect()
        };
        let transport = match &self.server.transport {
            ServerTransport::Child { command, arguments, environment } => ServerTransport::Child {
                command: text(&command.to_string_lossy())?.into(),
                arguments: arguments.iter().map(|argument| text(argument)).collect::<Result<_, _>>()?,
                environment: pairs(environment)?,
            },
            ServerTransport::Http { url, headers } => {
                ServerTransport::Http { url: text(url)?.into(), headers: pairs(headers)? }
            }
        };
        Ok(ToolServer { name: self.server.name.clone(), transport })
    }
}

fn expand(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let (inside, after) =
            after.split_once('}').ok_or_else(|| format!("missing }} after ${{ in {before}${{.."))?;
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

pub(super) fn parse(item: &Item) -> Result<McpSettings, ConfigError> {
    let table = item.as_table_like().ok_or("mcp must be a table: [mcp.servers.NAME]")?;
    let mut settings = McpSettings::default();
    each_entry(table, |key, item| {
        match keys::known("mcp", key) {
            Some("start_timeout") => settings.start_timeout = Some(seconds_of(key, item)?),
            Some("call_timeout") => settings.call_timeout = Some(seconds_of(key, item)?),
            Some("servers") => {
                let servers =
                    item.as_table_like().ok_or("mcp.servers must be a table: [mcp.servers.NAME]")?;
                each_entry(servers, |name, item| {
                    settings.servers.push(entry(name, item)?);
                    Ok(())
                })?;
            }
            _ => {
                return Err(
                    format!("unknown key {key}; mcp has start_timeout, call_timeout and servers").into()
                );
            }
        }
        Ok(())
    })?;
    Ok(settings)
}

fn entry(name: &str, item: &Item) -> Result<ServerEntry, ConfigError> {
    let table = item.as_table_like().ok_or("it must be a table with command or url")?;
    let (mut command, mut url, mut enabled) = (None, None, true);
    let (mut arguments, mut environment, mut headers) = (Vec::new(), Vec::new(), Vec::new());
    each_entry(table, |key, item| {
        match keys::known("mcp.servers", key) {
            Some("command") => command = Some(text_of(key, item)?.to_owned()),
            Some("args") => arguments = list_of(key, item)?,
            Some("env") => environment = pairs_of(key, item)?,
            Some("url") => url = Some(text_of(key, item)?.to_owned()),
            Some("headers") => headers = pairs_of(key, item)?,
            Some("enabled") => enabled = item.as_bool().ok_or("enabled must be true or false")?,
            // Other programs write the transport; here it follows from the other keys.
            Some("type" | "transport") => drop(text_of(key, item)?),
            _ => {
                return Err(format!(
                    "unknown key {key}; a server has command, args, env, url, headers and enabled"
                )
                .into());
            }
        }
        Ok(())
    })?;
    let transport = match (command, url) {
        (Some(command), None) if !command.is_empty() && headers.is_empty() => {
            ServerTransport::Child { command: command.into(), arguments, environment }
        }
        (None, Some(url)) if arguments.is_empty() && environment.is_empty() => {
            ServerTransport::Http { url: url.into(), headers }
        }
        _ => return Err("it needs command (with args, env) or url (with headers)".into()),
    };
    Ok(ServerEntry { server: ToolServer { name: name.into(), transport }, enabled })
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
            git.one_line(),
            r#"git: uvx mcp-server-git --repository "${WHERE:-a b}", TOKEN = "${SECRET}""#
        );
        assert_eq!(web.without_values(), "https://${HOST}/mcp");
        let variable = |name: &str| (name == "SECRET").then(|| "hush".to_owned());
        let expanded = ServerEntry { server: git.expanded(&variable).unwrap(), enabled: true };
        assert_eq!(expanded.one_line(), r#"git: uvx mcp-server-git --repository "a b", TOKEN = "hush""#);
        assert_eq!(web.expanded(&variable).unwrap_err(), "the variable HOST is not set");
        assert!(!format!("{expanded:?}").contains("hush"));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (text, said) in [
            ("mcp = 1", "mcp must be a table"),
            ("[mcp]\nserver = 1", "unknown key server"),
            ("[mcp.servers]\na = 1", "a table with command or url"),
            ("[mcp.servers.a]", "it needs command"),
            ("[mcp.servers.a]\ncommand = \"x\"\nurl = \"y\"", "it needs command"),
            ("[mcp.servers.a]\nurl = \"y\"\nargs = [\"z\"]", "it needs command"),
            ("[mcp.servers.a]\ncomand = \"x\"", "unknown key comand"),
            ("[mcp.servers.a]\ncommand = \"x\"\nenv = [\"A=b\"]", "a table of strings"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(expand("a ${B", &|_| None).unwrap_err().contains("missing }"));
    }
}
