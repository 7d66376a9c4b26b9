//! Programs that run other programs: what they run is judged too.

use engine::Risk;

use super::options::texts;
use super::{Around, Finding, Judge, LAUNCHED_MAX, dangers, targets};
use crate::launch;
pub(super) use crate::launch::is_assignment;
use crate::shell::{Simple, Way, Word};

const SHELLS: [&str; 13] =
    ["sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash", "mksh", "csh", "tcsh", "yash", "elvish"];

pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name)
}

/// Shells whose scripts are read here as they read them; others quote and expand differently.
fn reads_as_we_do(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "dash")
}

/// Options of a wrapper that take the next word, for those wrappers whose options come first.
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

/// The program behind wrappers that change nothing about what it does, for rules.
pub(super) fn behind(words: &[Word]) -> &[Word] {
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

impl Judge<'_> {
    /// Judges what a wrapper runs. Says whether this is one and everything was said of it.
    pub(super) fn wrapper(&mut self, name: &str, words: &[Word], arguments: &[Word], around: Around) -> bool {
        let floor = |risk, what| Finding::new(risk, what, words);
        let rest = after_options(name, arguments);
        match name {
            "command" if matches!(arguments, [flag, _] if matches!(flag.text(), "-v" | "-V")) => {
                return false;
            }
            "command" | "builtin" | "time" if arguments.len() == rest.len() && !rest.is_empty() => {
                self.words(rest, around)
            }
            "exec" if rest.is_empty() => self.found(floor(Risk::Medium, "changes the shell itself")),
            "nice" | "timeout" | "gtimeout" | "command" | "builtin" | "time" => {
                self.plain(name, words, arguments, rest, around)
            }
            "env" => self.environment(words, arguments, rest, around),
            "xargs" => {
                self.found(floor(Risk::Medium, "runs a program on whatever its input names"));
                self.fed(words, rest, around);
            }
            "sudo" | "doas" | "pkexec" | "su" | "runuser" => {
                self.raised(name, words, arguments, rest, around)
            }
            "eval" => self.evaluated(words, arguments, around),
            "export" | "declare" | "typeset" | "readonly" | "local" => {
                self.found(floor(Risk::Medium, "changes the shell itself"));
                for (name, value) in texts(arguments).filter_map(|text| text.split_once('=')) {
                    self.found(targets::assignment(name, &Word::Unknown(value.into())));
                }
            }
            "trap" | "alias" => {
                self.found(floor(Risk::Medium, "changes the shell itself"));
                for text in texts(arguments).filter_map(|text| {
                    if name == "trap" { Some(text) } else { text.split_once('=').map(|(_, value)| value) }
                }) {
                    self.line(text);
                }
            }
            "ssh" | "mosh" => {
                self.remote(words, rest, around);
                self.launcher(name, words, arguments, around);
            }
            "source" | "." => {
                self.printed_inside(around);
                return false;
            }
            "docker" | "podman" | "kubectl" | "docker-compose" | "nerdctl" => {
                return self.container(name, arguments, around);
            }
            "find" => return self.found_files(words, arguments, around),
            _ if is_shell(name) => {
                if !reads_as_we_do(name) {
                    self.found(floor(Risk::Medium, "runs a script"));
                }
                self.shell(words, arguments, around);
            }
            _ => {
                self.launcher(name, words, arguments, around);
                return false;
            }
        }
        true
    }

    /// Judges whatever another launcher may start, besides the launcher itself.
    fn launcher(&mut self, name: &str, words: &[Word], arguments: &[Word], around: Around) {
        let Some(launched) = launch::launched(name, arguments) else { return };
        self.launched += launched.programs.len() + launched.lines.len();
        if self.launched > LAUNCHED_MAX {
            return self.found(Finding::new(
                Risk::High,
                "starts more programs than can be looked through",
                words,
            ));
        }
        self.found(Finding::new(Risk::Medium, "runs another program", words));
        for program in &launched.programs {
            if launched.open { self.fed(words, program, around) } else { self.words(program, around) }
        }
        for line in &launched.lines {
            self.line(line);
        }
    }

    /// Wrappers that leave a harmless command harmless.
    fn plain(&mut self, name: &str, words: &[Word], arguments: &[Word], rest: &[Word], around: Around) {
        let inner = if name.ends_with("timeout") { rest.get(1..).unwrap_or_default() } else { rest };
        let known = ["-n", "-p", "-s", "-k", "-10", "-19", "-5", "-15", "-20"];
        let options = &arguments[..arguments.len() - rest.len()];
        let plain = texts(options).all(|text| !text.starts_with('-') || known.contains(&text));
        let duration =
            !name.ends_with("timeout") || rest.first().is_some_and(|word| word.literal().is_some());
        if inner.is_empty() || !plain || !duration {
            self.found(Finding::new(Risk::Medium, "runs another program", words));
        }
        self.words(inner, around);
    }

    fn environment(&mut self, words: &[Word], arguments: &[Word], rest: &[Word], around: Around) {
        let count = rest.iter().take_while(|word| is_assignment(word.text())).count();
        for word in &rest[..count] {
            let (name, value) = word.text().split_once('=').unwrap_or_default();
            self.found(targets::assignment(name, &Word::Unknown(value.into())));
        }
        if arguments.len() != rest.len() {
            self.found(Finding::new(Risk::Medium, "changes the environment of a program", words));
        }
        for text in texts(arguments)
            .filter(|text| text.starts_with("-S") || text.starts_with("--split-string") || text.contains(' '))
        {
            self.line(
                text.trim_start_matches("-S").trim_start_matches("--split-string").trim_start_matches('='),
            );
        }
        for text in texts(arguments).filter_map(launch::split_string) {
            self.line(text);
        }
        match rest.get(count..) {
            Some(inner) if !inner.is_empty() => self.words(inner, around),
            _ => {
                self.found(Finding::new(Risk::Medium, "shows the environment, which may hold secrets", words))
            }
        }
    }

    /// A program whose last words come from its input.
    fn fed(&mut self, words: &[Word], rest: &[Word], around: Around) {
        let Some(first) = rest.first() else { return };
        let name = first.text().rsplit('/').next().unwrap_or_default();
        if matches!(name, "rm" | "unlink" | "shred") {
            self.found(Finding::new(Risk::High, "removes whatever its input names", words));
        }
        let given = rest.iter().any(|word| word.text().contains("{}") || word.text().contains('$'));
        if is_shell(name) && given {
            self.input(words, around);
        }
        if is_shell(name) && around.others().any(|other| dangers::is_source(other, around)) {
            self.found(Finding::new(Risk::Critical, "runs what another machine sends", words));
        }
        self.words(rest, around);
    }

    fn raised(&mut self, name: &str, words: &[Word], arguments: &[Word], rest: &[Word], around: Around) {
        self.found(Finding::new(Risk::High, "runs with the rights of another user", words));
        let script = arguments.windows(2).find(|pair| matches!(pair[0].text(), "-c" | "--command"));
        match script {
            Some(pair) if matches!(name, "su" | "runuser") => self.line(pair[1].text()),
            _ if matches!(name, "su" | "runuser") => {}
            _ => {
                let count = rest.iter().take_while(|word| is_assignment(word.text())).count();
                self.words(&rest[count..], around);
            }
        }
    }

    fn evaluated(&mut self, words: &[Word], arguments: &[Word], around: Around) {
        if around.others().any(|other| dangers::feeds_words(other, around)) {
            self.found(Finding::new(Risk::Critical, "runs what another machine sends", words));
        }
        if arguments.iter().any(|word| word.literal().is_none()) {
            self.found(Finding::new(Risk::High, "runs a command that is computed", words));
        }
        self.found(Finding::new(Risk::Medium, "runs a command that is put together", words));
        let line: Vec<&str> = texts(arguments).collect();
        self.line(&line.join(" "));
    }

    /// `bash -c 'script'`, `bash file`, `bash` with its input.
    fn shell(&mut self, words: &[Word], arguments: &[Word], around: Around) {
        let downloaded = around.others().any(|other| dangers::feeds_words(other, around));
        if downloaded {
            self.found(Finding::new(Risk::Critical, "runs what another machine sends", words));
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
                        self.found(Finding::new(Risk::Medium, "runs a script", words));
                    }
                    self.line(script);
                }
                _ => {
                    self.found(Finding::new(Risk::High, "runs a command that is computed", words));
                }
            }
            return;
        }
        if matches!(arguments, [only] if only.text() == "--version") {
            return;
        }
        self.found(Finding::new(Risk::Medium, "runs a script", words));
        self.printed_inside(around);
        if super::options::operands(arguments).next().is_none_or(|first| first.text() == "-")
            || super::options::has(arguments, "s", &[])
        {
            self.input(words, around);
        }
    }

    /// A shell that takes its script from its input.
    fn input(&mut self, words: &[Word], around: Around) {
        for redirect in around.command.redirects.iter().filter(|redirect| redirect.way == Way::Here) {
            self.line(redirect.target.text());
        }
        let Some(pipe) = around.command.place.pipe.filter(|pipe| pipe.stage > 0) else { return };
        let before = |other: &&crate::shell::Simple| {
            other.place.pipe.is_some_and(|its| its.number == pipe.number && its.stage < pipe.stage)
        };
        if around.others().filter(before).any(dangers::is_download) {
            return self.found(Finding::new(Risk::Critical, "runs what another machine sends", words));
        }
        if around.others().filter(before).any(dangers::decodes) {
            return self.found(Finding::new(
                Risk::Critical,
                "runs a script that was hidden from view",
                words,
            ));
        }
        self.found(Finding::new(Risk::High, "runs what another command prints", words));
        for other in around.others().filter(before) {
            self.printed(other);
        }
    }

    /// What commands inside the words of this one print, where that is run: `source <(echo ls)`.
    fn printed_inside(&mut self, around: Around) {
        for other in around.others().filter(|other| super::inside(other, around.index)) {
            self.printed(other);
        }
    }

    /// What is only printed can be read here.
    fn printed(&mut self, other: &Simple) {
        if let [name, printed @ ..] = other.argv.as_slice()
            && matches!(name.text(), "echo" | "printf")
        {
            let text: Vec<&str> = texts(printed).collect();
            self.line(&text.join(" "));
        }
    }

    fn remote(&mut self, words: &[Word], rest: &[Word], around: Around) {
        self.found(Finding::new(Risk::Medium, "reaches another machine", words));
        let steered = texts(words).any(|text| {
            let text = text.to_lowercase();
            text.contains("proxycommand")
                || text.contains("localcommand")
                || text.contains("permitlocalcommand")
        });
        if steered {
            self.found(Finding::new(Risk::High, "makes ssh run another program", words));
        }
        match rest.get(1..) {
            Some([only]) => self.line(only.text()),
            Some(inner) if !inner.is_empty() => self.words(inner, around),
            _ => {}
        }
    }

    /// `docker exec box command`, `kubectl exec pod -- command`, `docker compose run service command`
    fn container(&mut self, name: &str, arguments: &[Word], around: Around) -> bool {
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
        self.words(inner, around);
        self.launcher(name, arguments, arguments, around);
        false
    }

    /// `find` with actions.
    fn found_files(&mut self, words: &[Word], arguments: &[Word], around: Around) -> bool {
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
                    self.found(Finding::new(
                        Risk::Medium,
                        "runs a program on the files that it finds",
                        words,
                    ));
                    self.fed(words, &inner[..end], around);
                }
                "-delete" => {
                    acts = true;
                    self.found(Finding::new(Risk::High, "removes the files that it finds", words));
                }
                "-fprint" | "-fprint0" | "-fprintf" | "-fls" => {
                    acts = true;
                    self.found(Finding::new(Risk::Medium, "writes a file", words));
                    if let Some(target) = arguments.get(at + 1)
                        && let Some(finding) = targets::touched(super::Want::Write, target, self.place)
                    {
                        self.found(finding);
                    }
                }
                _ => {}
            }
        }
        acts
    }
}
