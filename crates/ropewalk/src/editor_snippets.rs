//! Configuration snippets for editors.

use std::process::ExitCode;

use crate::cli::EditorOptions;

pub const NAMES: [&str; 5] = ["zed", "jetbrains", "neovim", "emacs", "vscode"];

/// The default command for editors.
const SERVE: &str = "serve";

pub fn run(options: &EditorOptions) -> anyhow::Result<ExitCode> {
    match &options.editor {
        Some(name) => println!("{}", snippet(name, &program(), &[SERVE.to_owned()])),
        None => println!("{}", all(&[SERVE.to_owned()])),
    }
    Ok(ExitCode::SUCCESS)
}

/// The snippets for all editors, to start this program with these arguments.
pub fn all(words: &[String]) -> String {
    let program = program();
    NAMES.iter().map(|name| snippet(name, &program, words)).collect::<Vec<_>>().join("\n")
}

/// The path of this program.
fn program() -> String {
    let path = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
    path.unwrap_or_else(|| "ropewalk".into())
}

fn snippet(editor: &str, program: &str, words: &[String]) -> String {
    let quoted = format!("{program:?}");
    let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
    let (listed, spaced) = (words.join(", "), words.join(" "));
    match editor {
        "zed" => format!(
            "Zed, in settings.json:\n\n  \"agent_servers\": {{\n    \"Ropewalk\": {{ \"type\": \"custom\", \"command\": {quoted}, \"args\": [{listed}] }}\n  }}\n"
        ),
        "jetbrains" => format!(
            "JetBrains, in ~/.jetbrains/acp.json:\n\n  {{ \"agent_servers\": {{ \"Ropewalk\": {{ \"command\": {quoted}, \"args\": [{listed}] }} }} }}\n"
        ),
        "neovim" => format!(
            "Neovim with CodeCompanion, in your setup:\n\n  adapters = {{ acp = {{ ropewalk = function()\n    return require(\"codecompanion.adapters\").extend(\"goose\", {{\n      name = \"ropewalk\", formatted_name = \"Ropewalk\",\n      commands = {{ default = {{ {quoted}, {listed} }} }},\n    }})\n  end }} }},\n  interactions = {{ chat = {{ adapter = \"ropewalk\" }} }},\n"
        ),
        "emacs" => format!(
            "Emacs with agent-shell, in your init file:\n\n  (with-eval-after-load 'agent-shell\n    (add-to-list 'agent-shell-agent-configs\n      (agent-shell-make-agent-config\n        :identifier 'ropewalk :mode-line-name \"Ropewalk\" :buffer-name \"Ropewalk\"\n        :shell-prompt \"Ropewalk> \" :shell-prompt-regexp \"Ropewalk> \"\n        :client-maker (lambda (buffer)\n          (acp-make-client :command {quoted} :command-params '({spaced}) :context-buffer buffer)))))\n  ;; then: M-x agent-shell\n"
        ),
        _ => format!(
            "VS Code with the ACP Client extension, in settings.json:\n\n  \"acp.agents\": {{ \"Ropewalk\": {{ \"command\": {quoted}, \"args\": [{listed}] }} }}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_editor_is_given_an_agent_of_its_own() {
        for name in NAMES {
            let words = ["ferret", "serve"].map(str::to_owned);
            let text = snippet(name, "/opt/my tools/ropewalk", &words);
            assert!(text.contains(r#""/opt/my tools/ropewalk""#), "{text}");
            let listed = if name == "emacs" { r#""ferret" "serve""# } else { r#""ferret", "serve""# };
            assert!(text.contains(listed), "{text}");
            for (open, close) in [('(', ')'), ('{', '}')] {
                assert_eq!(text.matches(open).count(), text.matches(close).count(), "{text}");
            }
        }
        assert!(snippet("emacs", "r", &[]).contains(":identifier 'ropewalk"));
        assert!(snippet("neovim", "r", &[]).contains(r#"chat = { adapter = "ropewalk" }"#));
    }
}
