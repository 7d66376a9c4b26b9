//! Programs that run other programs (`sudo`, `env`, `bash -c`): what they run is assessed too.

use engine::Risk;

use super::command_options::texts;
use super::{CommandContext, Finding, LAUNCHED_MAX, LineAssessor, command_targets, dangerous_programs};
use crate::program_launchers;
pub(super) use crate::program_launchers::is_assignment;
use crate::shell::{RedirectKind, SimpleCommand, Word};

const SHELLS: [&str; 13] =
    ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash", "mksh", "csh", "tcsh", "yash", "elvish"];

pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Shells whose scripts the parser reads as they do; other shells quote and expand differently.
fn is_posix_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash")
}

/// Options of a wrapper that take the next word as their value, for wrappers whose options come first.
fn valued(name: &str) -> &'static [&'static str] {
    match name {
        "env" => &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"],
        "nice" => &["-n", "--adjustment"],
        "timeout" | "gtimeout" => &["-s", "--signal", "-k", "--kill-after"],
        "stdbuf" => &["-i", "-o", "-e", "--input", "--output", "--error"],
        "xargs" => &[
            "-n",
            "-P",
            "-I",
            "-L",
            "-s",
            "-d",
            "-E",
            "-a",
            "-J",
            "-R",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--replace",
        ],
        "sudo" | "doas" => &["-u", "-g", "-p", "-C", "-h", "-U", "-r", "-t", "-T", "-D", "--user", "--group"],
        "exec" => &["-a"],
        "time" => &["-f", "-o", "--format", "--output"],
        "watch" => &["-n", "--interval"],
        "strace" | "ltrace" => &["-o", "-e", "-p", "-s", "-u", "-E"],
        "parallel" => &["-j", "--jobs", "-a", "--arg-file", "-I", "-n", "-N", "--delay", "--timeout"],
        "ionice" => &["-c", "-n", "-p"],
        "su" | "runuser" => &["-s", "-g", "-G"],
        "docker" | "podman" => &["-e", "-u", "-w", "--env", "--user", "--workdir", "--env-file", "--index"],
        "ssh" => &["-p", "-i", "-l", "-o", "-F", "-L", "-R", "-D", "-J", "-b", "-c", "-m", "-W", "-E", "-S"],
        _ => &[],
    }
}

/// What follows the options of a wrapper.
fn after_options<'w>(name: &str, arguments: &'w [Word]) -> &'w [Word] {
    let mut rest = arguments;
    while let Some((first, after)) = rest.split_first() {
        let text = first.text();
        if text == "--" {
            return after;
        }
        if !text.starts_with('-') || text == "-" {
            return rest;
        }
        rest = if valued(name).contains(&text) { after.get(1..).unwrap_or_default() } else { after };
    }
    rest
}

/// The command behind wrappers that do not change what it does, for rules.
pub(super) fn unwrapped_command(words: &[Word]) -> &[Word] {
    let mut rest = words;
    while let Some((first, arguments)) = rest.split_first() {
        let name = first.text().rsplit('/').next().unwrap_or_default();
        rest = match name {
            "env" => after_options(name, arguments),
            "command" | "exec" | "nohup" | "time" | "nice" | "setsid" | "builtin" => {
                after_options(name, arguments)
            }
            "timeout" | "gtimeout" => after_options(name, arguments).get(1..).unwrap_or_default(),
            "stdbuf" | "ionice" | "caffeinate" | "sudo" | "doas" => after_options(name, arguments),
            _ => return rest,
        };
        while rest.first().is_some_and(|word| is_assignment(word.text())) {
            rest = &rest[1..];
        }
    }
    rest
}

impl LineAssessor<'_> {
    /// Assesses what a wrapper runs. Returns whether this is a wrapper that was assessed completely.
    pub(super) fn wrapper(
        &mut self,
        name: &str,
        words: &[Word],
        arguments: &[Word],
        context: CommandContext,
    ) -> bool {
        let floor = |risk, what| Finding::new(risk, what, words);
        let rest = after_options(name, arguments);
        match name {
            "command" if matches!(arguments, [flag, _] if matches!(flag.text(), "-v" | "-V")) => {
                return false;
            }
            "command" | "builtin" | "time" if arguments.len() == rest.len() && !rest.is_empty() => {
                self.words(rest, context)
            }
            "exec" if rest.is_empty() => self.record(floor(Risk::Medium, "changes the shell itself")),
            "nice" | "timeout" | "gtimeout" | "command" | "builtin" | "time" => {
                self.plain(name, words, arguments, rest, context)
            }
            "env" => self.environment(words, arguments, rest, context),
            "xargs" => {
                self.record(floor(Risk::Medium, "runs a program on everything that its input names"));
                self.with_input_arguments(words, rest, context);
            }
            "sudo" | "doas" | "pkexec" | "su" | "runuser" => {
                self.elevated(name, words, arguments, rest, context)
            }
            "eval" => self.evaluated(words, arguments, context),
            "export" | "declare" | "typeset" | "readonly" | "local" => {
                self.record(floor(Risk::Medium, "changes the shell itself"));
                for (name, value) in texts(arguments).filter_map(|text| text.split_once('=')) {
                    self.record(command_targets::assignment(name, &Word::Unknown(value.into())));
                }
            }
            "trap" | "alias" => {
                self.record(floor(Risk::Medium, "changes the shell itself"));
                for text in texts(arguments).filter_map(|text| {
                    if name == "trap" { Some(text) } else { text.split_once('=').map(|(_, value)| value) }
                }) {
                    self.line(text);
                }
            }
            "ssh" | "mosh" => {
                self.remote_command(words, rest, context);
                self.launcher(name, words, arguments, context);
            }
            "source" | "." => {
                self.printed_inside(context);
                return false;
            }
            "docker" | "podman" | "kubectl" | "docker-compose" | "nerdctl" => {
                return self.container(name, arguments, context);
            }
            "find" => return self.find_command(words, arguments, context),
            _ if is_shell(name) => {
                if !is_posix_shell(name) {
                    self.record(floor(Risk::Medium, "runs a script"));
                }
                self.shell(words, arguments, context);
            }
            _ => {
                self.launcher(name, words, arguments, context);
                return false;
            }
        }
        true
    }

    /// Assesses everything that a launcher may start, in addition to the launcher itself.
    fn launcher(&mut self, name: &str, words: &[Word], arguments: &[Word], context: CommandContext) {
        let Some(launched) = program_launchers::launched(name, arguments) else { return };
        self.launched += launched.programs.len() + launched.lines.len();
        if self.launched > LAUNCHED_MAX {
            return self.record(Finding::new(Risk::High, "starts too many programs to be checked", words));
        }
        self.record(Finding::new(Risk::Medium, "runs another program", words));
        for program in &launched.programs {
            if launched.open {
                self.with_input_arguments(words, program, context)
            } else {
                self.words(program, context)
            }
        }
        for line in &launched.lines {
            self.line(line);
        }
    }

    /// Wrappers that leave a harmless command harmless.
    fn plain(
        &mut self,
        name: &str,
        words: &[Word],
        arguments: &[Word],
        rest: &[Word],
        context: CommandContext,
    ) {
        let inner = if name.ends_with("timeout") { rest.get(1..).unwrap_or_default() } else { rest };
        let known = ["-n", "-p", "-s", "-k", "-10", "-19", "-5", "-15", "-20"];
        let options = &arguments[..arguments.len() - rest.len()];
        let plain = texts(options).all(|text| !text.starts_with('-') || known.contains(&text));
        let duration =
            !name.ends_with("timeout") || rest.first().is_some_and(|word| word.literal().is_some());
        if inner.is_empty() || !plain || !duration {
            self.record(Finding::new(Risk::Medium, "runs another program", words));
        }
        self.words(inner, context);
    }

    fn environment(&mut self, words: &[Word], arguments: &[Word], rest: &[Word], context: CommandContext) {
        let count = rest.iter().take_while(|word| is_assignment(word.text())).count();
        for word in &rest[..count] {
            let (name, value) = word.text().split_once('=').unwrap_or_default();
            self.record(command_targets::assignment(name, &Word::Unknown(value.into())));
        }
        if arguments.len() != rest.len() {
            self.record(Finding::new(Risk::Medium, "changes the environment of a program", words));
        }
        for text in texts(arguments)
            .filter(|text| text.starts_with("-S") || text.starts_with("--split-string") || text.contains(' '))
        {
            self.line(
                text.trim_start_matches("-S").trim_start_matches("--split-string").trim_start_matches('='),
            );
        }
        for text in texts(arguments).filter_map(program_launchers::split_string) {
            self.line(text);
        }
        match rest.get(count..) {
            Some(inner) if !inner.is_empty() => self.words(inner, context),
            _ => self.record(Finding::new(
                Risk::Medium,
                "shows the environment, which may hold secrets",
                words,
            )),
        }
    }

    /// A program that gets its last arguments from its input.
    fn with_input_arguments(&mut self, words: &[Word], rest: &[Word], context: CommandContext) {
        let Some(first) = rest.first() else { return };
        let name = first.text().rsplit('/').next().unwrap_or_default();
        if matches!(name, "rm" | "unlink" | "shred") {
            self.record(Finding::new(Risk::High, "removes everything that its input names", words));
        }
        let given = rest.iter().any(|word| word.text().contains("{}") || word.text().contains('$'));
        if is_shell(name) && given {
            self.input(words, context);
        }
        if is_shell(name) && context.others().any(|other| dangerous_programs::is_source(other, context)) {
            self.record(Finding::new(Risk::Critical, "runs code from another machine", words));
        }
        self.words(rest, context);
    }

    fn elevated(
        &mut self,
        name: &str,
        words: &[Word],
        arguments: &[Word],
        rest: &[Word],
        context: CommandContext,
    ) {
        self.record(Finding::new(Risk::High, "runs as another user", words));
        let script = arguments.windows(2).find(|pair| matches!(pair[0].text(), "-c" | "--command"));
        match script {
            Some(pair) if matches!(name, "su" | "runuser") => self.line(pair[1].text()),
            _ if matches!(name, "su" | "runuser") => {}
            _ => {
                let count = rest.iter().take_while(|word| is_assignment(word.text())).count();
                self.words(&rest[count..], context);
            }
        }
    }

    fn evaluated(&mut self, words: &[Word], arguments: &[Word], context: CommandContext) {
        if context.others().any(|other| dangerous_programs::feeds_words(other, context)) {
            self.record(Finding::new(Risk::Critical, "runs code from another machine", words));
        }
        if arguments.iter().any(|word| word.literal().is_none()) {
            self.record(Finding::new(Risk::High, "runs a command that is computed at run time", words));
        }
        self.record(Finding::new(Risk::Medium, "runs a command that is put together at run time", words));
        let line: Vec<&str> = texts(arguments).collect();
        self.line(&line.join(" "));
    }

    /// `bash -c 'script'`, `bash file`, `bash` with its input.
    fn shell(&mut self, words: &[Word], arguments: &[Word], context: CommandContext) {
        let downloaded = context.others().any(|other| dangerous_programs::feeds_words(other, context));
        if downloaded {
            self.record(Finding::new(Risk::Critical, "runs code from another machine", words));
        }
        let flag = arguments.iter().position(|word| {
            word.literal()
                .is_some_and(|text| text.starts_with('-') && !text.starts_with("--") && text.ends_with('c'))
        });
        if let Some(at) = flag {
            let plain = at == 0 && matches!(arguments[0].text(), "-c" | "-lc");
            match arguments.get(at + 1) {
                Some(Word::Literal(script)) => {
                    if !plain || arguments.len() != 2 {
                        self.record(Finding::new(Risk::Medium, "runs a script", words));
                    }
                    self.line(script);
                }
                _ => {
                    self.record(Finding::new(
                        Risk::High,
                        "runs a command that is computed at run time",
                        words,
                    ));
                }
            }
            return;
        }
        if matches!(arguments, [only] if only.text() == "--version") {
            return;
        }
        self.record(Finding::new(Risk::Medium, "runs a script", words));
        self.printed_inside(context);
        if super::command_options::operands(arguments).next().is_none_or(|first| first.text() == "-")
            || super::command_options::has(arguments, "s", &[])
        {
            self.input(words, context);
        }
    }

    /// A shell that takes its script from its input.
    fn input(&mut self, words: &[Word], context: CommandContext) {
        for redirect in
            context.command.redirects.iter().filter(|redirect| redirect.kind == RedirectKind::InlineText)
        {
            self.line(redirect.target.text());
        }
        let Some(pipe) = context.command.position.pipe.filter(|pipe| pipe.stage > 0) else { return };
        let before = |other: &&crate::shell::SimpleCommand| {
            other.position.pipe.is_some_and(|its| its.number == pipe.number && its.stage < pipe.stage)
        };
        if context.others().filter(before).any(dangerous_programs::is_download) {
            return self.record(Finding::new(Risk::Critical, "runs code from another machine", words));
        }
        if context.others().filter(before).any(dangerous_programs::decodes) {
            return self.record(Finding::new(
                Risk::Critical,
                "runs a script that is encoded or hidden",
                words,
            ));
        }
        self.record(Finding::new(Risk::High, "runs the output of another command", words));
        for other in context.others().filter(before) {
            self.printed(other);
        }
    }

    /// The output of commands inside the words of this one, if it is run: `source <(echo ls)`.
    fn printed_inside(&mut self, context: CommandContext) {
        for other in context.others().filter(|other| super::inside(other, context.index)) {
            self.printed(other);
        }
    }

    /// Assesses the text that `echo` or `printf` prints: it is known.
    fn printed(&mut self, other: &SimpleCommand) {
        if let [name, printed @ ..] = other.argv.as_slice()
            && matches!(name.text(), "echo" | "printf")
        {
            let text: Vec<&str> = texts(printed).collect();
            self.line(&text.join(" "));
        }
    }

    fn remote_command(&mut self, words: &[Word], rest: &[Word], context: CommandContext) {
        self.record(Finding::new(Risk::Medium, "reaches another machine", words));
        let steered = texts(words).any(|text| {
            let text = text.to_lowercase();
            text.contains("proxycommand")
                || text.contains("localcommand")
                || text.contains("permitlocalcommand")
        });
        if steered {
            self.record(Finding::new(Risk::High, "makes ssh run another program", words));
        }
        match rest.get(1..) {
            Some([only]) => self.line(only.text()),
            Some(inner) if !inner.is_empty() => self.words(inner, context),
            _ => {}
        }
    }

    /// `docker exec box command`, `kubectl exec pod -- command`, `docker compose run service command`
    fn container(&mut self, name: &str, arguments: &[Word], context: CommandContext) -> bool {
        let skipped = usize::from(arguments.first().is_some_and(|first| first.text() == "compose"));
        let rest = arguments.get(skipped..).unwrap_or_default();
        let Some((verb, rest)) = rest.split_first() else { return false };
        if !matches!(verb.text(), "exec" | "run") {
            return false;
        }
        let inner = match rest.iter().position(|word| word.text() == "--") {
            Some(at) if name == "kubectl" => &rest[at + 1..],
            _ => after_options("docker", rest).get(1..).unwrap_or_default(),
        };
        self.words(inner, context);
        self.launcher(name, arguments, arguments, context);
        false
    }

    /// `find` with actions.
    fn find_command(&mut self, words: &[Word], arguments: &[Word], context: CommandContext) -> bool {
        let mut acts = false;
        for (at, word) in arguments.iter().enumerate() {
            match word.text() {
                "-exec" | "-execdir" | "-ok" | "-okdir" => {
                    acts = true;
                    let inner = &arguments[at + 1..];
                    let end = inner
                        .iter()
                        .position(|word| matches!(word.text(), ";" | "+" | "\\;"))
                        .unwrap_or(inner.len());
                    self.record(Finding::new(
                        Risk::Medium,
                        "runs a program on the files that it finds",
                        words,
                    ));
                    self.with_input_arguments(words, &inner[..end], context);
                }
                "-delete" => {
                    acts = true;
                    self.record(Finding::new(Risk::High, "removes the files that it finds", words));
                }
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
                    acts = true;
                    self.record(Finding::new(Risk::Medium, "writes a file", words));
                    if let Some(target) = arguments.get(at + 1)
                        && let Some(finding) =
                            command_targets::touched(super::FileAccess::Write, target, self.place)
                    {
                        self.record(finding);
                    }
                }
                _ => {}
            }
        }
        acts
    }
}
