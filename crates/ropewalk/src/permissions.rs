//! `ropewalk permissions`: the rules for what the agent may do, read, changed and explained.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{
    APPROVAL, AskRequest, EDITOR_TERMINAL, Limits, MODE, Risk, RuleEffect, RuleHit, Ruling, Settings,
};
use guard::{Changed, ListedRule, OutsideCommand, RuleError, RuleSource, Rulebook, Where};
use serde_json::{Value, json};

use crate::cli::{
    PermissionsAddOptions, PermissionsCommand, PermissionsListOptions, PermissionsRemoveOptions,
    PermissionsWhyOptions, RulePlace, RuleWord,
};
use crate::guards::Guards;
use crate::terminal::{self, exact_line, one_line};
use crate::trouble::Trouble;
use crate::{paths, run, server};

pub fn run(command: &PermissionsCommand) -> ExitCode {
    let (outcome, as_json) = match command {
        PermissionsCommand::List(options) => (list(options), options.json),
        PermissionsCommand::Add(options) => (add(options), options.json),
        PermissionsCommand::Remove(options) => (remove(options), options.json),
        PermissionsCommand::Why(options) => (why(options), options.json),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.report(as_json),
    }
}

fn list(options: &PermissionsListOptions) -> Result<(), Trouble> {
    let folder = run::folder(options.cwd.as_deref())?;
    let book = Rulebook::new(paths::rules()?);
    let (sources, outside) = (book.sources(&folder), book.outside_commands());
    if options.json {
        let sources: Vec<Value> = sources.iter().map(source_json).collect();
        let outside: Vec<Value> = outside.iter().map(outside_json).collect();
        return terminal::put_json(&json!({ "folder": folder, "sources": sources, "outside": outside }));
    }
    let mut out = String::new();
    for source in &sources {
        show_source(&mut out, source);
    }
    show_outside(&mut out, &outside);
    terminal::put(&out)?;
    let paint = terminal::stderr_paint();
    for warning in sources.iter().flat_map(|source| &source.warnings) {
        terminal::say(&format!("{} {}", paint.warn("warning:"), one_line(warning)));
    }
    Ok(())
}

fn show_source(out: &mut String, source: &RuleSource) {
    let what = match source.name {
        "user" => "Your rules",
        "project" => "This project's rules, which may only narrow",
        "zeph" => "zeph's answers, which are only read",
        "chimera" => "chimera's rules, which are only read",
        _ => "Answers that are not written down",
    };
    let path = source.path.as_deref().map(|path| format!(": {}", path.display())).unwrap_or_default();
    let state = match (source.exists, source.rules.is_empty()) {
        (false, _) => " (not there)",
        (true, true) => " (no rules)",
        (true, false) => "",
    };
    writeln!(out, "{what}{path}{state}").ok();
    for rule in &source.rules {
        let folder =
            rule.folder.as_deref().map(|folder| format!("  in {}", folder.display())).unwrap_or_default();
        let ignored = if rule.ignored { "  (ignored, see the warning)" } else { "" };
        writeln!(out, "  {:5}  {}{folder}{ignored}", rule.effect.as_str(), exact_line(&rule.rule)).ok();
    }
}

/// Answers for good about commands outside the sandbox, in all folders.
fn show_outside(out: &mut String, commands: &[OutsideCommand]) {
    if commands.is_empty() {
        return;
    }
    out.push_str("Commands in the editor's terminal, outside the sandbox\n");
    for OutsideCommand { folder, line, digest, allow } in commands {
        let effect = if *allow { RuleEffect::Allow } else { RuleEffect::Deny };
        let (effect, line, folder) = (effect.as_str(), exact_line(line), folder.display());
        writeln!(out, "  {effect:5}  {line}  in {folder}  {digest}").ok();
    }
}

fn outside_json(command: &OutsideCommand) -> Value {
    let OutsideCommand { folder, line, digest, allow } = command;
    json!({ "command": line, "folder": folder, "digest": digest, "allow": allow })
}

fn source_json(source: &RuleSource) -> Value {
    let rule = |rule: &ListedRule| {
        json!({
            "effect": rule.effect.as_str(),
            "rule": rule.rule,
            "folder": rule.folder,
            "line": rule.line,
            "ignored": rule.ignored,
        })
    };
    json!({
        "name": source.name,
        "path": source.path,
        "exists": source.exists,
        "warnings": source.warnings,
        "rules": source.rules.iter().map(rule).collect::<Vec<_>>(),
    })
}

fn add(options: &PermissionsAddOptions) -> Result<(), Trouble> {
    let effect = match options.effect {
        RuleWord::Allow => RuleEffect::Allow,
        RuleWord::Ask => RuleEffect::Ask,
        RuleWord::Deny => RuleEffect::Deny,
    };
    let place = place(&options.place)?;
    let changed = audited(|book| book.add(&place, effect, &options.rule))?;
    let Changed { file, already, before } = &changed;
    if options.json {
        return terminal::put_json(&json!({
            "rule": options.rule, "effect": effect.as_str(), "file": file, "folder": folder_of(&place),
            "changed": !already, "before": before.map(RuleEffect::as_str),
        }));
    }
    let rule = exact_line(&options.rule);
    let said = match (already, before) {
        (true, _) => format!("{rule} was there already, as {}.", effect.as_str()),
        (false, Some(before)) => {
            format!("{rule} is now {}; it was {}.", effect.as_str(), before.as_str())
        }
        (false, None) => format!("{rule} is now {}{}.", effect.as_str(), in_folder(&place)),
    };
    terminal::put(&format!("{said}\n{}\n", file.display()))
}

fn remove(options: &PermissionsRemoveOptions) -> Result<(), Trouble> {
    let named = &options.place;
    if options.rule.starts_with(EDITOR_TERMINAL) {
        return forget_outside(options);
    }
    let mut places = vec![place(named)?];
    if places[0] == Where::Everywhere {
        // Whoever takes a rule out means it, wherever an answer has put it.
        places.push(Where::Folder(run::folder(None)?));
    }
    let done = audited(|book| {
        let removed = places.into_iter().map(|place| Ok((book.remove(&place, &options.rule)?, place)));
        let removed: Result<Vec<_>, RuleError> = removed.collect();
        let changed = removed?.into_iter().filter(|(changed, _)| !changed.already);
        Ok(changed.map(|(changed, place)| (place, changed)).collect::<Vec<_>>())
    })?;
    if done.is_empty() {
        return Err(Trouble::failed(format!("there is no rule {}", options.rule))
            .fix("ropewalk permissions list shows the rules; -C DIR names the folder of one"));
    }
    if options.json {
        let one = |(place, changed): &(Where, Changed)| {
            json!({
                "rule": options.rule, "effect": changed.before.map(RuleEffect::as_str), "file": changed.file,
                "folder": folder_of(place),
            })
        };
        return terminal::put_json(&json!({ "removed": done.iter().map(one).collect::<Vec<_>>() }));
    }
    for (place, changed) in &done {
        let was = changed.before.map_or("a rule", RuleEffect::as_str);
        terminal::put(&format!(
            "{} is gone; it was {was}{}.\n",
            exact_line(&options.rule),
            in_folder(place)
        ))?;
    }
    Ok(())
}

/// Takes an answer about a command outside the sandbox back: it is asked again.
fn forget_outside(options: &PermissionsRemoveOptions) -> Result<(), Trouble> {
    let place = place(&options.place)?;
    let gone = audited(|book| book.forget_outside(&options.rule, folder_of(&place).map(PathBuf::as_path)))?;
    if gone.is_empty() {
        return Err(Trouble::failed(format!("no answer has the digest {}", options.rule))
            .fix("ropewalk permissions list shows them; -C DIR names the folder of one"));
    }
    if options.json {
        return terminal::put_json(&json!({ "removed": gone.iter().map(outside_json).collect::<Vec<_>>() }));
    }
    for OutsideCommand { folder, line, .. } in &gone {
        let line = exact_line(line);
        terminal::put(&format!(
            "{line} is asked again before it leaves the sandbox in {}.\n",
            folder.display()
        ))?;
    }
    Ok(())
}

/// Changes rules, with a row in the audit for each.
pub fn audited<T>(change: impl FnOnce(&Rulebook) -> Result<T, RuleError>) -> Result<T, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::failed("the rules cannot be changed").because(error))?;
    let _within = runtime.enter();
    let limits = Limits { attended: false, ..Limits::default() };
    let (registry, audit) = server::audited(limits, false, &Guards::none())?;
    let book = Rulebook::new(paths::rules()?);
    if let Some(audit) = &audit {
        server::audit_changes(&book, &registry, audit);
    }
    let outcome = runtime
        .block_on(server::audit_must_be_free(audit.as_ref()))
        .and_then(|()| change(&book).map_err(trouble));
    runtime.block_on(registry.shutdown());
    outcome
}

fn place(named: &RulePlace) -> Result<Where, Trouble> {
    let folder = || run::folder(named.cwd.as_deref());
    Ok(if named.project_file {
        Where::ProjectFile(folder()?)
    } else if named.here || named.cwd.is_some() {
        Where::Folder(folder()?)
    } else {
        Where::Everywhere
    })
}

fn folder_of(place: &Where) -> Option<&PathBuf> {
    match place {
        Where::Everywhere => None,
        Where::Folder(folder) | Where::ProjectFile(folder) => Some(folder),
    }
}

fn in_folder(place: &Where) -> String {
    folder_of(place).map(|folder| format!(" in {}", folder.display())).unwrap_or_default()
}

fn trouble(error: RuleError) -> Trouble {
    match error {
        RuleError::Malformed(reason) => {
            Trouble::usage("this is not a rule").because(reason).fix("ropewalk permissions --help")
        }
        RuleError::Refused(reason) => Trouble::usage("this rule cannot be written there")
            .because(reason)
            .fix("the same with --here keeps it in your own file, for this folder"),
        RuleError::File(reason) => Trouble::failed("the rules cannot be changed").because(reason),
    }
}

/// What comes of a wish, with everything that was considered.
struct Verdict<'a> {
    folder: &'a Path,
    approval: &'a str,
    request: &'a AskRequest,
    preset: Ruling,
    hits: &'a [RuleHit],
    ruling: Ruling,
}

fn why(options: &PermissionsWhyOptions) -> Result<(), Trouble> {
    let folder = run::folder(options.cwd.as_deref())?;
    let spec = engine::approval_spec();
    let approval = engine::full_name(APPROVAL, options.approval.as_str().into());
    if !spec.choices.iter().any(|choice| choice.value == approval) {
        let known: Vec<&str> = spec.choices.iter().map(|choice| choice.value.as_ref()).collect();
        return Err(Trouble::usage(format!("there is no approval preset {approval}"))
            .fix(format!("one of {}", known.join(", "))));
    }
    let mut settings = Settings::default();
    settings.set(MODE.into(), "code".into());
    settings.set(APPROVAL.into(), approval.clone());
    let paths = paths::rules()?;
    let request = guard::imagined(&options.tool, &options.subject, &folder, paths.home.as_deref());
    let book = Rulebook::new(paths);
    let hits = book.matching(&folder, &request);
    let decisive = engine::Rules::find(&book, &folder, &request);
    let verdict = Verdict {
        folder: &folder,
        approval: &approval,
        request: &request,
        preset: engine::decide(&settings, &request, None),
        hits: &hits,
        ruling: engine::decide(&settings, &request, decisive.as_ref()),
    };
    if options.json { terminal::put_json(&verdict.json()) } else { terminal::put(&verdict.text()) }
}

impl Verdict<'_> {
    fn text(&self) -> String {
        let mut out = String::new();
        let request = self.request;
        writeln!(out, "{}: {}", request.tool, exact_line(&request.subject)).ok();
        writeln!(out, "  folder:  {}", self.folder.display()).ok();
        writeln!(out, "  risk:    {}, {}", request.risk.as_str(), one_line(&request.reason)).ok();
        writeln!(out, "  preset:  {}: it {}", self.approval, outcome(&self.preset)).ok();
        for (nth, hit) in self.hits.iter().enumerate() {
            let label = if nth == 0 { "rules:" } else { "" };
            writeln!(out, "  {label:8} {} {} ({})", hit.effect.as_str(), exact_line(&hit.rule), hit.source)
                .ok();
        }
        if self.hits.is_empty() {
            writeln!(out, "  rules:   none is about this").ok();
        }
        writeln!(out, "So it {}.", outcome(&self.ruling)).ok();
        if self.needs_exact() {
            out.push_str(
                "A rule for a family of commands does not allow a critical one; its exact text does.\n",
            );
        }
        out
    }

    /// Allowed by a rule, and asked all the same.
    fn needs_exact(&self) -> bool {
        self.ruling == Ruling::Ask
            && self.request.risk == Risk::Critical
            && self.hits.iter().all(|hit| hit.effect == RuleEffect::Allow && !hit.exact)
            && !self.hits.is_empty()
    }

    fn json(&self) -> Value {
        let hit = |hit: &RuleHit| {
            json!({
                "effect": hit.effect.as_str(), "rule": hit.rule, "source": hit.source, "exact": hit.exact,
            })
        };
        json!({
            "tool": self.request.tool,
            "subject": self.request.subject,
            "folder": self.folder,
            "risk": self.request.risk.as_str(),
            "reason": self.request.reason,
            "approval": self.approval,
            "preset": ruling_name(&self.preset),
            "rules": self.hits.iter().map(hit).collect::<Vec<_>>(),
            "ruling": ruling_name(&self.ruling),
            "because": outcome(&self.ruling),
        })
    }
}

/// What a ruling means, after "it".
fn outcome(ruling: &Ruling) -> String {
    match ruling {
        Ruling::Allow { reason } | Ruling::Rule { allow: true, reason } => {
            format!("runs without asking: {reason}")
        }
        Ruling::Deny { reason, .. } => format!("is refused: {reason}"),
        Ruling::Rule { allow: false, reason } => format!("is {reason}"),
        Ruling::Ask => "is asked; where nobody can be asked, it is refused".to_owned(),
    }
}

fn ruling_name(ruling: &Ruling) -> &'static str {
    match ruling {
        Ruling::Allow { .. } | Ruling::Rule { allow: true, .. } => "allow",
        Ruling::Deny { .. } | Ruling::Rule { allow: false, .. } => "deny",
        Ruling::Ask => "ask",
    }
}
