//! Commands for an agent, each in what the protocol calls a terminal: it runs on its own, is looked at,
//! waited for and ended.
//!
//! In the terminal of an editor a command runs with the editor's rights and not behind our fence, so it
//! happens only where there is no fence anyway, or where the person wants it so and the owner at the machine
//! has allowed this very command.
//!
//! **Invariant:** a command goes to an editor only if that was decided before it was asked for: an editor that
//! comes later gets none.

mod running;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    Exit, HostError, HostLink, NewTerminal, Opaque, Risk, Seq, TerminalId, TerminalOutput, ToolClass,
    ToolKind, TurnContext,
};
use sandbox::{Command, Fence, Kind, Limits, Mode, Program, Want};
use wire::acp::{SERVER_TERMINAL, Unserved};

use super::permission::Wish;
use super::{Shared, within};
use running::Running;

const TERMINALS_MAX: usize = 64;
/// What is kept of an output at most, whatever the agent wants.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;

#[derive(Default)]
pub(super) struct Terminals {
    open: Mutex<Open>,
    last: AtomicU64,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<TerminalId, Terminal>,
    /// No more can be opened.
    closed: bool,
}

#[derive(Clone)]
enum Terminal {
    /// It is being made.
    Promised,
    Ours(Arc<Running>),
    Editors(Arc<Lent>),
}

/// A terminal that the editor keeps for the agent. Dropped, its command is ended.
struct Lent {
    editor: HostLink,
    id: TerminalId,
    /// The editor was told that nobody needs it any more.
    given_back: AtomicBool,
}

impl Lent {
    /// Ends the command and gives the terminal back, also while somebody waits for the command.
    fn give_back(&self, after: Seq) {
        if !self.given_back.swap(true, Ordering::AcqRel) {
            self.editor.kill_now(&self.id);
            self.editor.release(&self.id, after.max(self.editor.after()));
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_back(Seq::START);
    }
}

impl Terminal {
    /// The editor gets its own back once it has been told everything up to `after`.
    fn end(&self, after: Seq) {
        match self {
            Self::Promised => {}
            Self::Ours(running) => running.kill(),
            Self::Editors(lent) => lent.give_back(after),
        }
    }
}

pub(super) async fn create(
    desk: &Arc<Shared>,
    turn: &TurnContext,
    new: NewTerminal,
) -> Result<TerminalId, Unserved> {
    refuse_malformed(&new)?;
    let folder = if new.cwd.as_os_str().is_empty() { Path::new(".") } else { &new.cwd };
    let spot = desk.find(turn, folder, Want::Read).await?;
    if spot.kind() != Some(Kind::Folder) {
        return Err(Unserved::Missing(format!("{} is not a folder", spot.real().display())));
    }
    let line = judged_line(&new);
    let lines = std::iter::once(line.clone()).chain(allowed_lines(&new, &desk.spec.cwd)).collect();
    let input = serde_json::json!({ "command": line, "cwd": spot.real() });
    let mut wish = Wish {
        tool: "shell",
        title: said_line(&new),
        kind: ToolKind::Execute,
        class: ToolClass::Execute,
        paths: None,
        lines,
        input: Opaque(input.to_string().into()),
        usual: (Risk::Low, "runs a command"),
        preview: Vec::new(),
        outside: None,
    };
    let place = desk.terminals.promise()?;
    let only_looks = desk.assess(&wish).await?.risk == Risk::Low;
    let new = if only_looks { only_looking(new) } else { new };
    let editor = editor(desk, turn).map(|editor| (editor, at_editor(spot.real(), &new)));
    let leaves = editor.as_ref().filter(|_| desk.mode() != Mode::Off);
    wish.outside = leaves.map(|(_, new)| guard::outside_digest(new));
    if wish.outside.is_some() {
        // With its variables: all of what would leave the sandbox.
        wish.title.clone_from(&line);
    }
    desk.permit(turn, wish).await?;
    if let Some((editor, new)) = editor
        && let Some(lent) = lend(turn, editor, new).await?
    {
        let id = lent.id.clone();
        desk.terminals.put(place, id.clone(), Terminal::Editors(Arc::new(lent)))?;
        return Ok(id);
    }
    let output_bytes_max = new.output_bytes_max.min(OUTPUT_BYTES_MAX);
    let command = command(desk, spot.real(), new)?;
    let running = Running::start(command, output_bytes_max, &desk.tasks);
    let id = place.id.clone();
    desk.terminals.put(place, id.clone(), Terminal::Ours(running))?;
    Ok(id)
}

/// The editor in whose terminal commands run, if that is wanted and offered.
fn editor(desk: &Shared, turn: &TurnContext) -> Option<HostLink> {
    let wanted = match desk.mode() {
        Mode::Off => true,
        Mode::WorkspaceWrite | Mode::WorkspaceWriteNetwork => desk.spec.editor_terminal,
        // A fence that only lets read is kept whatever the person wants.
        Mode::ReadOnly => false,
    };
    wanted.then(|| turn.host(|can| can.terminal)).flatten()
}

/// The command with what keeps git from running what a repository names.
fn only_looking(mut new: NewTerminal) -> NewTerminal {
    let switched_off = sandbox::git_looks_only();
    new.environment.retain(|(name, _)| !switched_off.iter().any(|(known, _)| name == known));
    new.environment.extend(switched_off);
    new
}

/// The command as the editor is told it, in the folder that was looked at: a link there may lead elsewhere later.
fn at_editor(cwd: &Path, new: &NewTerminal) -> NewTerminal {
    let output_bytes_max = new.output_bytes_max.min(OUTPUT_BYTES_MAX);
    NewTerminal { cwd: cwd.to_owned(), output_bytes_max, ..new.clone() }
}

/// A terminal of the editor. `None`: it is away, and was not asked.
async fn lend(turn: &TurnContext, editor: HostLink, new: NewTerminal) -> Result<Option<Lent>, Unserved> {
    match within(turn, editor.create_terminal(new)).await {
        Ok(id) => Ok(Some(Lent { editor, id, given_back: AtomicBool::new(false) })),
        Err(HostError::Away) => Ok(None),
        Err(error) => Err(Unserved::Failed(format!("the editor opened no terminal: {error}"))),
    }
}

fn command(desk: &Shared, cwd: &Path, new: NewTerminal) -> Result<Command, Unserved> {
    let policy = desk.files()?.policy();
    let program = match is_line(&new) {
        true => Program::Shell(new.program),
        false => Program::Exec {
            program: new.program.into(),
            arguments: new.arguments.into_iter().map(Into::into).collect(),
        },
    };
    let mut environment = desk.spec.environment.clone();
    for (name, value) in new.environment {
        environment.retain(|(known, _)| known != name.as_str());
        environment.push((name.into(), value.into()));
    }
    let fence = desk.spec.helper.as_ref();
    Ok(Command {
        program,
        cwd: cwd.to_owned(),
        environment,
        limits: Limits { wall: std::time::Duration::ZERO, forward_bytes_max: u64::MAX, ..desk.spec.limits },
        fence: fence.map(|helper| Fence { policy: policy.clone(), helper: helper.clone() }),
    })
}

fn refuse_malformed(new: &NewTerminal) -> Result<(), Unserved> {
    let texts = std::iter::once(&new.program).chain(&new.arguments);
    let variables = new.environment.iter().flat_map(|(name, value)| [name, value]);
    let nul = texts.chain(variables).any(|text| text.contains('\0'));
    let unnamed = new.environment.iter().any(|(name, _)| !is_name(name));
    if new.program.trim().is_empty() || nul || unnamed {
        return Err(Unserved::Invalid("the command is empty or malformed".into()));
    }
    Ok(())
}

/// Anything else could be read as a command where the line is judged.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(plain) && name.starts_with(|first: char| !first.is_ascii_digit())
}

/// Whether the variables change nothing about what a command does.
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

/// The lines by which an agent may have been allowed this: what it shows of a command that works in the
/// session's folder, and that nothing else makes into another.
fn allowed_lines(new: &NewTerminal, folder: &Path) -> Vec<String> {
    let elsewhere = !new.cwd.as_os_str().is_empty() && new.cwd != folder;
    if elsewhere || !is_plain(&new.environment) {
        return Vec::new();
    }
    [Some(said_line(new)), script(new), inner_script(new)].into_iter().flatten().collect()
}

/// Some agents give a whole line as the program, and mean a shell to read it.
fn is_line(new: &NewTerminal) -> bool {
    new.arguments.is_empty() && new.program.contains(char::is_whitespace)
}

/// What runs, as a line of shell that means the same: what it is judged by.
fn judged_line(new: &NewTerminal) -> String {
    let variable = |(name, value): &(String, String)| format!("{name}={} ", quoted(value));
    let variables: String = new.environment.iter().map(variable).collect();
    variables + &said_line(new)
}

/// The same without the variables.
fn said_line(new: &NewTerminal) -> String {
    if is_line(new) {
        return new.program.clone();
    }
    let words = std::iter::once(&new.program).chain(&new.arguments);
    words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// What a shell is given to read, which is what an agent shows of such a command.
fn script(new: &NewTerminal) -> Option<String> {
    match new.arguments.as_slice() {
        [option, script] if is_shell(&new.program) && matches!(option.as_str(), "-c" | "-lc" | "-ic") => {
            Some(script.clone())
        }
        _ => None,
    }
}

/// The same without the way to the folder, which is not shown.
fn inner_script(new: &NewTerminal) -> Option<String> {
    let (folder, script) = (new.cwd.to_str()?, script(new)?);
    let always_quoted = format!("'{}'", folder.replace('\'', r"'\''"));
    [quoted(folder), always_quoted]
        .iter()
        .find_map(|folder| script.strip_prefix(&format!("cd {folder} && ")).map(str::to_owned))
}

/// A word as a shell takes it for what it is.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A place among the terminals, given back unless one is put there.
struct Place<'a> {
    terminals: &'a Terminals,
    id: TerminalId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut open = self.terminals.lock();
        if matches!(open.by_id.get(&self.id), Some(Terminal::Promised)) {
            open.by_id.remove(&self.id);
        }
    }
}

impl Terminals {
    fn promise(&self) -> Result<Place<'_>, Unserved> {
        let mut open = self.lock();
        if open.closed {
            return Err(closed());
        }
        if open.by_id.len() >= TERMINALS_MAX {
            let told = format!("there are {TERMINALS_MAX} terminals already; release some of them first");
            return Err(Unserved::Failed(told));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let id = TerminalId(format!("{SERVER_TERMINAL}{number}").into());
        open.by_id.insert(id.clone(), Terminal::Promised);
        Ok(Place { terminals: self, id })
    }

    /// Says whether there was still a place for it.
    fn put(&self, place: Place<'_>, id: TerminalId, terminal: Terminal) -> Result<(), Unserved> {
        let mut open = self.lock();
        if open.closed {
            return Err(closed());
        }
        open.by_id.remove(&place.id);
        let replaced = open.by_id.insert(id, terminal);
        drop(open);
        // An editor that gives the same name twice has ended the first one.
        drop(replaced);
        Ok(())
    }

    fn find(&self, id: &TerminalId) -> Result<Terminal, Unserved> {
        let open = self.lock();
        let found = open.by_id.get(id).filter(|terminal| !matches!(terminal, Terminal::Promised)).cloned();
        found.ok_or_else(|| Unserved::Missing(format!("there is no terminal {:?}", id.0)))
    }

    pub(super) fn look(&self, id: &TerminalId) -> Option<TerminalOutput> {
        match self.find(id) {
            Ok(Terminal::Ours(running)) => Some(running.output()),
            Ok(Terminal::Editors(_) | Terminal::Promised) | Err(_) => None,
        }
    }

    pub(super) fn ended(&self, id: &TerminalId) -> Option<impl Future<Output = ()> + use<>> {
        match self.find(id) {
            Ok(Terminal::Ours(running)) => Some(running.ended()),
            Ok(Terminal::Editors(_) | Terminal::Promised) | Err(_) => None,
        }
    }

    pub(super) async fn output(
        &self,
        id: &TerminalId,
        turn: Option<&TurnContext>,
    ) -> Result<TerminalOutput, Unserved> {
        match self.find(id)? {
            Terminal::Ours(running) => {
                running.tell_refusals(turn).await;
                Ok(running.output())
            }
            Terminal::Editors(lent) => lent.editor.output(&lent.id).await.map_err(failed),
            Terminal::Promised => Err(Unserved::Missing("the terminal is not there yet".into())),
        }
    }

    /// Waits for the end of the command, however long that takes.
    pub(super) async fn exit(&self, id: &TerminalId, turn: Option<&TurnContext>) -> Result<Exit, Unserved> {
        match self.find(id)? {
            Terminal::Ours(running) => {
                let exit = running.exit().await;
                running.tell_refusals(turn).await;
                Ok(exit)
            }
            Terminal::Editors(lent) => lent.editor.wait_for_exit(&lent.id).await.map_err(failed),
            Terminal::Promised => Err(Unserved::Missing("the terminal is not there yet".into())),
        }
    }

    /// Ends the command; what it wrote can still be looked at.
    pub(super) async fn kill(&self, id: &TerminalId) -> Result<(), Unserved> {
        match self.find(id)? {
            Terminal::Ours(running) => {
                running.kill();
                running.exit().await;
                Ok(())
            }
            Terminal::Editors(lent) => lent.editor.kill(&lent.id).await.map_err(failed),
            Terminal::Promised => Ok(()),
        }
    }

    /// Ends the command and forgets the terminal. What the agent said before may show it.
    pub(super) async fn release(&self, id: &TerminalId, turn: Option<&TurnContext>) -> Result<(), Unserved> {
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

    /// Ends what is there. More can be opened.
    pub(super) fn end_all(&self) {
        let all: Vec<_> = self.lock().by_id.drain().collect();
        all.iter().for_each(|(_, terminal)| terminal.end(Seq::START));
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Unserved {
    Unserved::Failed("the session is closed".into())
}

fn failed(error: HostError) -> Unserved {
    Unserved::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use sandbox::{Helper, Policy};

    use super::super::{Desk, DeskSpec};
    use super::*;

    #[test]
    fn a_command_runs_behind_the_sessions_fence_with_what_the_agent_adds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let helper = Helper { program: "/helper".into(), arguments: Vec::new() };
        let policy = Policy { mode: Mode::ReadOnly, roots: vec![root.clone()], ..Policy::default() };
        let spec = DeskSpec {
            cwd: root.clone(),
            policy: policy.clone(),
            helper: Some(helper.clone()),
            environment: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            limits: Limits::default(),
            editor_terminal: false,
        };
        let desk = Desk::open(spec, Arc::new(|_| Box::pin(async { Ok(()) })));
        let command = command(&desk.shared, &root, new("make", &["x"], &[("B", "3")])).unwrap();
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
            assert_eq!(judged_line(&new), expected);
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
