//! Commands for an external agent. Each runs in what the protocol calls a terminal: it runs on its own, and
//! the agent can read its output, wait for it and end it.
//!
//! A command in a terminal of the editor runs with the editor's rights and outside of our sandbox. So that is
//! done only where there is no sandbox anyway, or where the person has enabled it and the owner at the
//! machine has allowed this very command.
//!
//! **Invariant:** whether a command goes to the editor is decided before permission is asked. An editor that
//! connects later does not get it.

mod running_command;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    Exit, HostError, HostLink, NewTerminal, Opaque, Risk, Seq, TerminalId, TerminalOutput, ToolClass,
    ToolKind, TurnContext,
};
use sandbox::{ChildCommand, CommandLimits, EntryKind, Fence, Mode, PathAccess, Program};
use wire::acp::{HostRequestError, SERVER_TERMINAL};

use super::action_permission::HostAction;
use super::{Shared, until_cancelled};
use running_command::RunningCommand;

const TERMINALS_MAX: usize = 64;
/// The most output that is stored, whatever the agent asks for.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
pub(super) struct Terminals {
    open: Mutex<OpenTerminals>,
    last_number: AtomicU64,
}

#[derive(Default)]
struct OpenTerminals {
    by_id: HashMap<TerminalId, TerminalEntry>,
    /// No more can be created.
    closed: bool,
}

#[derive(Clone)]
enum TerminalEntry {
    /// It is being created.
    Reserved,
    Ours(Arc<RunningCommand>),
    Editors(Arc<EditorTerminal>),
}

/// A terminal in the editor. When dropped, its command is ended.
struct EditorTerminal {
    editor: HostLink,
    id: TerminalId,
    /// The editor was told to release it.
    given_back: AtomicBool,
}

impl EditorTerminal {
    /// Ends the command and releases the terminal, even while somebody waits for the command.
    fn give_back(&self, after: Seq) {
        if !self.given_back.swap(true, Ordering::AcqRel) {
            self.editor.kill_now(&self.id);
            self.editor.release(&self.id, after.max(self.editor.after()));
        }
    }
}

impl Drop for EditorTerminal {
    fn drop(&mut self) {
        self.give_back(Seq::START);
    }
}

impl TerminalEntry {
    /// A terminal of the editor is released once the editor has been sent everything up to `after`.
    fn end(&self, after: Seq) {
        match self {
            Self::Reserved => {}
            Self::Ours(running_command) => running_command.kill(),
            Self::Editors(editor_terminal) => editor_terminal.give_back(after),
        }
    }
}

pub(super) async fn create(
    services: &Arc<Shared>,
    turn: &TurnContext,
    new: NewTerminal,
) -> Result<TerminalId, HostRequestError> {
    refuse_malformed(&new)?;
    let folder = if new.cwd.as_os_str().is_empty() { Path::new(".") } else { &new.cwd };
    let spot = services.find(turn, folder, PathAccess::Read).await?;
    if spot.kind() != Some(EntryKind::Folder) {
        return Err(HostRequestError::Missing(format!("{} is not a folder", spot.real().display())));
    }
    let line = assessed_line(&new);
    let lines = std::iter::once(line.clone()).chain(allowed_lines(&new, &services.spec.cwd)).collect();
    let input = serde_json::json!({ "command": line, "cwd": spot.real() });
    let mut action = HostAction {
        tool: "shell",
        title: command_line(&new),
        kind: ToolKind::Execute,
        class: ToolClass::Execute,
        paths: None,
        lines,
        input: Opaque(input.to_string().into()),
        default_assessment: (Risk::Low, "runs a command"),
        preview: Vec::new(),
        outside_digest: None,
    };
    let slot = services.terminals.reserve()?;
    let only_looks = services.assess(&action).await?.risk == Risk::Low;
    let new = if only_looks { with_read_only_git(new) } else { new };
    let editor = editor(services, turn).map(|editor| (editor, for_editor(spot.real(), &new)));
    let leaves = editor.as_ref().filter(|_| services.mode() != Mode::Off);
    action.outside_digest = leaves.map(|(_, new)| guard::editor_terminal_digest(new));
    if action.outside_digest.is_some() {
        // With its variables: everything that would run outside of the sandbox.
        action.title.clone_from(&line);
    }
    services.permit(turn, action).await?;
    if let Some((editor, new)) = editor
        && let Some(editor_terminal) = open_editor_terminal(turn, editor, new).await?
    {
        let id = editor_terminal.id.clone();
        services.terminals.put(slot, id.clone(), TerminalEntry::Editors(Arc::new(editor_terminal)))?;
        return Ok(id);
    }
    let output_bytes_max = new.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let command = command(services, spot.real(), new)?;
    let running_command = RunningCommand::start(command, output_bytes_max, &services.tasks);
    let id = slot.id.clone();
    services.terminals.put(slot, id.clone(), TerminalEntry::Ours(running_command))?;
    Ok(id)
}

/// The editor in whose terminal commands run, if that is enabled and offered.
fn editor(services: &Shared, turn: &TurnContext) -> Option<HostLink> {
    let wanted = match services.mode() {
        Mode::Off => true,
        Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => services.spec.editor_terminal,
        // A read-only sandbox is kept whatever the settings say.
        Mode::ReadOnly => false,
    };
    wanted.then(|| turn.host(|can| can.terminal)).flatten()
}

/// The command with variables that keep git from running programs that a repository names.
fn with_read_only_git(mut new: NewTerminal) -> NewTerminal {
    let switched_off = sandbox::git_read_only_environment();
    new.environment.retain(|(name, _)| !switched_off.iter().any(|(known, _)| name == known));
    new.environment.extend(switched_off);
    new
}

/// The command for the editor, in the resolved folder: a link in the path may lead elsewhere later.
fn for_editor(cwd: &Path, new: &NewTerminal) -> NewTerminal {
    let output_bytes_max = new.output_bytes_max.min(OUTPUT_BYTES_MAX);
    NewTerminal { cwd: cwd.to_owned(), output_bytes_max, ..new.clone() }
}

/// Opens a terminal in the editor. `None`: the editor is not connected, and was not asked.
async fn open_editor_terminal(
    turn: &TurnContext,
    editor: HostLink,
    new: NewTerminal,
) -> Result<Option<EditorTerminal>, HostRequestError> {
    match until_cancelled(turn, editor.create_terminal(new)).await {
        Ok(id) => Ok(Some(EditorTerminal { editor, id, given_back: AtomicBool::new(false) })),
        Err(HostError::Away) => Ok(None),
        Err(error) => Err(HostRequestError::Failed(format!("the editor opened no terminal: {error}"))),
    }
}

fn command(services: &Shared, cwd: &Path, new: NewTerminal) -> Result<ChildCommand, HostRequestError> {
    let policy = services.files()?.policy();
    let program = match is_line(&new) {
        true => Program::Shell(new.program),
        false => Program::Exec {
            program: new.program.into(),
            arguments: new.arguments.into_iter().map(Into::into).collect(),
        },
    };
    let mut environment = services.spec.environment.clone();
    for (name, value) in new.environment {
        environment.retain(|(known, _)| known != name.as_str());
        environment.push((name.into(), value.into()));
    }
    let fence = services.spec.helper.as_ref();
    Ok(ChildCommand {
        program,
        cwd: cwd.to_owned(),
        environment,
        limits: CommandLimits {
            wall: std::time::Duration::ZERO,
            forward_bytes_max: u64::MAX,
            ..services.spec.limits
        },
        fence: fence.map(|helper| Fence { policy: policy.clone(), helper: helper.clone() }),
    })
}

fn refuse_malformed(new: &NewTerminal) -> Result<(), HostRequestError> {
    let texts = std::iter::once(&new.program).chain(&new.arguments);
    let variables = new.environment.iter().flat_map(|(name, value)| [name, value]);
    let nul = texts.chain(variables).any(|text| text.contains('\0'));
    let unnamed = new.environment.iter().any(|(name, _)| !is_name(name));
    if new.program.trim().is_empty() || nul || unnamed {
        return Err(HostRequestError::Invalid("the command is empty or malformed".into()));
    }
    Ok(())
}

/// Any other name could be read as a command when the line is assessed.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Whether the variables cannot change what a command does.
fn is_plain(environment: &[(String, String)]) -> bool {
    environment.iter().all(|(name, value)| match name.as_str() {
        "NO_COLOR" | "FORCE_COLOR" | "TERM" | "GIT_TERMINAL_PROMPT" | "AGENT_SESSION_ID" => true,
        "SHELL" => is_shell(value),
        _ => false,
    })
}

fn is_shell(program: &str) -> bool {
    let program = program.strip_prefix("/bin/").or(program.strip_prefix("/usr/bin/")).unwrap_or(program);
    matches!(program, "sh" | "bash" | "dash" | "zsh")
}

/// The lines under which the agent may have been allowed this command: what agents show of a command that
/// runs in the session's folder and that is not changed by its variables.
fn allowed_lines(new: &NewTerminal, folder: &Path) -> Vec<String> {
    let elsewhere = !new.cwd.as_os_str().is_empty() && new.cwd != folder;
    if elsewhere || !is_plain(&new.environment) {
        return Vec::new();
    }
    [Some(command_line(new)), script(new), inner_script(new)].into_iter().flatten().collect()
}

/// Some agents give a whole command line as the program and expect a shell to run it.
fn is_line(new: &NewTerminal) -> bool {
    new.arguments.is_empty() && new.program.contains(char::is_whitespace)
}

/// An equivalent shell line with variables, by which the command is assessed.
fn assessed_line(new: &NewTerminal) -> String {
    let variable = |(name, value): &(String, String)| format!("{name}={} ", quoted(value));
    let variables: String = new.environment.iter().map(variable).collect();
    variables + &command_line(new)
}

/// The same without the variables.
fn command_line(new: &NewTerminal) -> String {
    if is_line(new) {
        return new.program.clone();
    }
    let words = std::iter::once(&new.program).chain(&new.arguments);
    words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The script of a `sh -c` command, which is what agents show of it.
fn script(new: &NewTerminal) -> Option<String> {
    match new.arguments.as_slice() {
        [option, script] if is_shell(&new.program) && matches!(option.as_str(), "-c" | "-lc" | "-ic") => {
            Some(script.clone())
        }
        _ => None,
    }
}

/// The same without the `cd` to the folder, which is not shown.
fn inner_script(new: &NewTerminal) -> Option<String> {
    let (folder, script) = (new.cwd.to_str()?, script(new)?);
    let always_quoted = format!("'{}'", folder.replace('\'', r"'\''"));
    [quoted(folder), always_quoted]
        .iter()
        .find_map(|folder| script.strip_prefix(&format!("cd {folder} && ")).map(str::to_owned))
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A reserved place among the terminals, released again when dropped unused.
struct TerminalSlot<'a> {
    terminals: &'a Terminals,
    id: TerminalId,
}

impl Drop for TerminalSlot<'_> {
    fn drop(&mut self) {
        let mut open = self.terminals.lock();
        if matches!(open.by_id.get(&self.id), Some(TerminalEntry::Reserved)) {
            open.by_id.remove(&self.id);
        }
    }
}

impl Terminals {
    fn reserve(&self) -> Result<TerminalSlot<'_>, HostRequestError> {
        let mut open = self.lock();
        if open.closed {
            return Err(closed());
        }
        if open.by_id.len() >= TERMINALS_MAX {
            let told = format!("there are {TERMINALS_MAX} terminals already; release some of them first");
            return Err(HostRequestError::Failed(told));
        }
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let id = TerminalId(format!("{SERVER_TERMINAL}{number}").into());
        open.by_id.insert(id.clone(), TerminalEntry::Reserved);
        Ok(TerminalSlot { terminals: self, id })
    }

    /// Fills a reserved slot. Fails if the session was closed meanwhile.
    fn put(
        &self,
        slot: TerminalSlot<'_>,
        id: TerminalId,
        terminal: TerminalEntry,
    ) -> Result<(), HostRequestError> {
        let mut open = self.lock();
        if open.closed {
            return Err(closed());
        }
        open.by_id.remove(&slot.id);
        let replaced = open.by_id.insert(id, terminal);
        drop(open);
        // An editor that uses an id twice has ended the first terminal.
        drop(replaced);
        Ok(())
    }

    fn find(&self, id: &TerminalId) -> Result<TerminalEntry, HostRequestError> {
        let open = self.lock();
        let found =
            open.by_id.get(id).filter(|terminal| !matches!(terminal, TerminalEntry::Reserved)).cloned();
        found.ok_or_else(|| HostRequestError::Missing(format!("there is no terminal {:?}", id.0)))
    }

    pub(super) fn own_output(&self, id: &TerminalId) -> Option<TerminalOutput> {
        match self.find(id) {
            Ok(TerminalEntry::Ours(running_command)) => Some(running_command.output()),
            Ok(TerminalEntry::Editors(_) | TerminalEntry::Reserved) | Err(_) => None,
        }
    }

    pub(super) fn command_ended(&self, id: &TerminalId) -> Option<impl Future<Output = ()> + use<>> {
        match self.find(id) {
            Ok(TerminalEntry::Ours(running_command)) => Some(running_command.ended()),
            Ok(TerminalEntry::Editors(_) | TerminalEntry::Reserved) | Err(_) => None,
        }
    }

    pub(super) async fn output(
        &self,
        id: &TerminalId,
        turn: Option<&TurnContext>,
    ) -> Result<TerminalOutput, HostRequestError> {
        match self.find(id)? {
            TerminalEntry::Ours(running_command) => {
                running_command.log_refusals(turn).await;
                Ok(running_command.output())
            }
            TerminalEntry::Editors(editor_terminal) => {
                editor_terminal.editor.output(&editor_terminal.id).await.map_err(failed)
            }
            TerminalEntry::Reserved => {
                Err(HostRequestError::Missing("the terminal does not exist yet".into()))
            }
        }
    }

    /// Waits for the end of the command, without a time limit.
    pub(super) async fn exit(
        &self,
        id: &TerminalId,
        turn: Option<&TurnContext>,
    ) -> Result<Exit, HostRequestError> {
        match self.find(id)? {
            TerminalEntry::Ours(running_command) => {
                let exit = running_command.exit().await;
                running_command.log_refusals(turn).await;
                Ok(exit)
            }
            TerminalEntry::Editors(editor_terminal) => {
                editor_terminal.editor.wait_for_exit(&editor_terminal.id).await.map_err(failed)
            }
            TerminalEntry::Reserved => {
                Err(HostRequestError::Missing("the terminal does not exist yet".into()))
            }
        }
    }

    /// Ends the command; its output can still be read.
    pub(super) async fn kill(&self, id: &TerminalId) -> Result<(), HostRequestError> {
        match self.find(id)? {
            TerminalEntry::Ours(running_command) => {
                running_command.kill();
                running_command.exit().await;
                Ok(())
            }
            TerminalEntry::Editors(editor_terminal) => {
                editor_terminal.editor.kill(&editor_terminal.id).await.map_err(failed)
            }
            TerminalEntry::Reserved => Ok(()),
        }
    }

    /// Ends the command and forgets the terminal. The editor releases it after earlier updates that may show
    /// it.
    pub(super) async fn release(
        &self,
        id: &TerminalId,
        turn: Option<&TurnContext>,
    ) -> Result<(), HostRequestError> {
        let found = self.find(id)?;
        let told = match turn {
            Some(turn) => turn.mark().await.unwrap_or(Seq::START),
            None => Seq::START,
        };
        self.lock().by_id.remove(id);
        found.end(told);
        Ok(())
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.end_all();
    }

    /// Ends all terminals. More can be created.
    pub(super) fn end_all(&self) {
        let all: Vec<_> = self.lock().by_id.drain().collect();
        all.iter().for_each(|(_, terminal)| terminal.end(Seq::START));
    }

    fn lock(&self) -> MutexGuard<'_, OpenTerminals> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> HostRequestError {
    HostRequestError::Failed("the session is closed".into())
}

fn failed(error: HostError) -> HostRequestError {
    HostRequestError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use sandbox::{Helper, Policy};

    use super::super::{HostServices, HostServicesSpec};
    use super::*;

    #[test]
    fn a_command_runs_behind_the_sessions_fence_with_what_the_agent_adds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let helper = Helper { program: "/helper".into(), arguments: Vec::new() };
        let policy = Policy { mode: Mode::ReadOnly, roots: vec![root.clone()], ..Policy::default() };
        let spec = HostServicesSpec {
            cwd: root.clone(),
            policy: policy.clone(),
            helper: Some(helper.clone()),
            environment: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            limits: CommandLimits::default(),
            editor_terminal: false,
        };
        let services = HostServices::open(spec, Arc::new(|_| Box::pin(async { Ok(()) })));
        let command = command(&services.shared, &root, new("make", &["x"], &[("B", "3")])).unwrap();
        assert_eq!(command.environment, [("A".into(), "1".into()), ("B".into(), "3".into())]);
        let policy = Policy { locked: vec![root.join("HEAD")], ..policy };
        assert_eq!(command.fence, Some(Fence { policy, helper }));
        assert_eq!(command.cwd, root);
    }

    fn new(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> NewTerminal {
        NewTerminal {
            program: program.into(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect(),
            cwd: "/w".into(),
            output_bytes_max: 1,
        }
    }

    #[test]
    fn a_command_is_judged_by_a_line_that_means_the_same() {
        for (new, expected) in [
            (new("ls", &["-la", "a b"], &[]), "ls -la 'a b'"),
            (new("npm run build && rm x", &[], &[]), "npm run build && rm x"),
            (new("sh", &["-c", "echo 'x' > y"], &[]), r"sh -c 'echo '\''x'\'' > y'"),
            (new("make", &[""], &[("LD_PRELOAD", "./x y")]), "LD_PRELOAD='./x y' make ''"),
        ] {
            assert_eq!(assessed_line(&new), expected);
        }
        assert_eq!(script(&new("bash", &["-lc", "make"], &[])).as_deref(), Some("make"));
        for bad in [new(" ", &[], &[]), new("a\0", &[], &[]), new("a", &[], &[("A=B", "")])] {
            assert!(refuse_malformed(&bad).is_err());
        }
    }

    #[test]
    fn what_was_allowed_is_not_something_else_in_other_words() {
        let new = |program: &str, arguments: &[&str], environment: &[(&str, &str)], cwd: &str| NewTerminal {
            program: program.into(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            environment: environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            cwd: cwd.into(),
            output_bytes_max: 1,
        };
        let covered = |new: &NewTerminal, line: &str| {
            allowed_lines(new, Path::new("/w")).iter().any(|known| known == line)
        };
        assert!(covered(&new("ls", &[], &[("TERM", "dumb"), ("SHELL", "/bin/bash")], "/w"), "ls"));
        assert!(covered(&new("/bin/bash", &["-c", "ls"], &[], ""), "ls"));
        assert!(covered(&new("/bin/bash", &["-c", "cd '/w' && ls"], &[], "/w"), "ls"));
        assert!(!covered(&new("/w/evil", &["-c", "ls"], &[], "/w"), "ls"));
        assert!(!covered(&new("ls", &[], &[("LD_PRELOAD", "/w/evil.so")], "/w"), "ls"));
        assert!(!covered(&new("ls", &[], &[("SHELL", "/w/evil")], "/w"), "ls"));
        assert!(!covered(&new("ls", &[], &[], "/elsewhere"), "ls"));
        for name in ["", "ls #", "A=B", "1A", "A B"] {
            assert!(refuse_malformed(&new("git", &["push"], &[(name, "1")], "/w")).is_err(), "{name}");
        }
    }
}
