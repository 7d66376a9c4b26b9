//! `ropewalk permissions`: lists, changes and explains permission rules.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{
    APPROVAL, AskRequest, EDITOR_TERMINAL, MODE, Risk, RuleEffect, RuleHit, Ruling, SessionLimits, Settings,
};
use guard::{ListedRule, RuleEditResult, RuleError, RuleLocation, RuleSource, Rulebook, UnsandboxedCommand};
use serde_json::{Value, json};

use crate::cli::{
    EffectArg, PermissionsAddOptions, PermissionsCommand, PermissionsListOptions, PermissionsRemoveOptions,
    PermissionsWhyOptions, RuleLocationArgs,
};
use crate::cli_error::CliError;
use crate::guard_settings::Guards;
use crate::output::{self, exact_line, one_line};
use crate::{paths, registry, run};

pub fn run(command: &PermissionsCommand) -> ExitCode {
    let (outcome, as_json) = match command {
        PermissionsCommand::List(options) => (list(options), options.json),
        PermissionsCommand::Add(options) => (add(options), options.json),
        PermissionsCommand::Remove(options) => (remove(options), options.json),
        PermissionsCommand::Why(options) => (why(options), options.json),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(as_json),
    }
}

fn list(options: &PermissionsListOptions) -> Result<(), CliError> {
    let folder = run::folder(options.cwd.as_deref())?;
    let book = Rulebook::new(paths::rules()?);
    let (sources, outside) = (book.sources(&folder), book.unsandboxed_commands());
    if options.json {
        let sources: Vec<Value> = sources.iter().map(source_json).collect();
        let outside: Vec<Value> = outside.iter().map(outside_json).collect();
        return output::put_json(&json!({ "folder": folder, "sources": sources, "outside": outside }));
    }
    let mut out = String::new();
    // Files of other programs are shown only to people who have them.
    let of_others = |source: &&RuleSource| matches!(source.name, "zeph" | "chimera");
    for source in sources.iter().filter(|source| source.exists || !of_others(source)) {
        show_source(&mut out, source);
    }
    show_outside(&mut out, &outside);
    output::put(&out)?;
    let paint = output::stderr_paint();
    for warning in sources.iter().flat_map(|source| &source.warnings) {
        output::say(&format!("{} {}", paint.warn("warning:"), one_line(warning)));
    }
    Ok(())
}

fn show_source(out: &mut String, source: &RuleSource) {
    let what = match source.name {
        "user" => "Your rules",
        "project" => "This project's rules, which can only restrict",
        "zeph" => "Rules from zeph (read-only)",
        "chimera" => "Rules from chimera (read-only)",
        _ => "Answers that are not saved",
    };
    let path = source.path.as_deref().map(|path| format!(": {}", path.display())).unwrap_or_default();
    let state = match (source.exists, source.rules.is_empty()) {
        (false, _) => " (no file)",
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

/// Permanent answers about commands outside the sandbox, in all folders.
fn show_outside(out: &mut String, commands: &[UnsandboxedCommand]) {
    if commands.is_empty() {
        return;
    }
    out.push_str("Commands in the editor's terminal, outside the sandbox\n");
    for UnsandboxedCommand { folder, line, digest, allow } in commands {
        let effect = if *allow { RuleEffect::Allow } else { RuleEffect::Deny };
        let (effect, line, folder) = (effect.as_str(), exact_line(line), folder.display());
        writeln!(out, "  {effect:5}  {line}  in {folder}  {digest}").ok();
    }
}

fn outside_json(command: &UnsandboxedCommand) -> Value {
    let UnsandboxedCommand { folder, line, digest, allow } = command;
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

fn add(options: &PermissionsAddOptions) -> Result<(), CliError> {
    let effect = match options.effect {
        EffectArg::Allow => RuleEffect::Allow,
        EffectArg::Ask => RuleEffect::Ask,
        EffectArg::Deny => RuleEffect::Deny,
    };
    let place = place(&options.place)?;
    let changed = with_audit(|book| book.add(&place, effect, &options.rule))?;
    let RuleEditResult { file, unchanged, previous } = &changed;
    if options.json {
        return output::put_json(&json!({
            "rule": options.rule, "effect": effect.as_str(), "file": file, "folder": folder_of(&place),
            "changed": !unchanged, "before": previous.map(RuleEffect::as_str),
        }));
    }
    let rule = exact_line(&options.rule);
    let said = match (unchanged, previous) {
        (true, _) => format!("{rule} is already set to {}.", effect.as_str()),
        (false, Some(before)) => {
            format!("{rule} is now set to {}; it was {}.", effect.as_str(), before.as_str())
        }
        (false, None) => format!("{rule} is now set to {}{}.", effect.as_str(), in_folder(&place)),
    };
    output::put(&format!("{said}\n{}\n", file.display()))
}

fn remove(options: &PermissionsRemoveOptions) -> Result<(), CliError> {
    let named = &options.place;
    if options.rule.starts_with(EDITOR_TERMINAL) {
        return forget_outside(options);
    }
    let mut places = vec![place(named)?];
    if places[0] == RuleLocation::Everywhere {
        // Also removes the rule for this folder, where an answer may have put it.
        places.push(RuleLocation::Folder(run::folder(None)?));
    }
    let done = with_audit(|book| {
        let removed = places.into_iter().map(|place| Ok((book.remove(&place, &options.rule)?, place)));
        let removed: Result<Vec<_>, RuleError> = removed.collect();
        let changed = removed?.into_iter().filter(|(changed, _)| !changed.unchanged);
        Ok(changed.map(|(changed, place)| (place, changed)).collect::<Vec<_>>())
    })?;
    if done.is_empty() {
        return Err(CliError::failed(format!("rule {} not found", options.rule))
            .fix("`ropewalk permissions list`, or pass -C DIR for a rule of another folder"));
    }
    if options.json {
        let one = |(place, changed): &(RuleLocation, RuleEditResult)| {
            json!({
                "rule": options.rule, "effect": changed.previous.map(RuleEffect::as_str), "file": changed.file,
                "folder": folder_of(place),
            })
        };
        return output::put_json(&json!({ "removed": done.iter().map(one).collect::<Vec<_>>() }));
    }
    for (place, changed) in &done {
        let was = changed.previous.map_or("a rule", RuleEffect::as_str);
        output::put(&format!(
            "Removed {}, which was {was}{}.\n",
            exact_line(&options.rule),
            in_folder(place)
        ))?;
    }
    Ok(())
}

/// Removes an answer about a command outside the sandbox: it is asked again.
fn forget_outside(options: &PermissionsRemoveOptions) -> Result<(), CliError> {
    let place = place(&options.place)?;
    let gone =
        with_audit(|book| book.remove_unsandboxed(&options.rule, folder_of(&place).map(PathBuf::as_path)))?;
    if gone.is_empty() {
        return Err(CliError::failed(format!("no answer with the digest {}", options.rule))
            .fix("`ropewalk permissions list`, or pass -C DIR for an answer of another folder"));
    }
    if options.json {
        return output::put_json(&json!({ "removed": gone.iter().map(outside_json).collect::<Vec<_>>() }));
    }
    for UnsandboxedCommand { folder, line, .. } in &gone {
        let line = exact_line(line);
        output::put(&format!(
            "{line} needs permission again to run outside the sandbox in {}.\n",
            folder.display()
        ))?;
    }
    Ok(())
}

/// Changes rules, with an audit row for each.
pub fn with_audit<T>(change: impl FnOnce(&Rulebook) -> Result<T, RuleError>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| CliError::failed("could not change the rules").because(error))?;
    let _within = runtime.enter();
    let limits = SessionLimits { attended: false, ..SessionLimits::default() };
    let (registry, audit) = registry::audited_registry(limits, false, &Guards::none())?;
    let book = Rulebook::new(paths::rules()?);
    if let Some(audit) = &audit {
        registry::audit_changes(&book, &registry, audit);
    }
    let outcome = runtime
        .block_on(registry::audit_must_be_free(audit.as_ref()))
        .and_then(|()| change(&book).map_err(cli_error));
    runtime.block_on(registry.shutdown());
    outcome
}

fn place(named: &RuleLocationArgs) -> Result<RuleLocation, CliError> {
    let folder = || run::folder(named.cwd.as_deref());
    Ok(if named.project_file {
        RuleLocation::ProjectFile(folder()?)
    } else if named.here || named.cwd.is_some() {
        RuleLocation::Folder(folder()?)
    } else {
        RuleLocation::Everywhere
    })
}

fn folder_of(place: &RuleLocation) -> Option<&PathBuf> {
    match place {
        RuleLocation::Everywhere => None,
        RuleLocation::Folder(folder) | RuleLocation::ProjectFile(folder) => Some(folder),
    }
}

fn in_folder(place: &RuleLocation) -> String {
    folder_of(place).map(|folder| format!(" in {}", folder.display())).unwrap_or_default()
}

fn cli_error(error: RuleError) -> CliError {
    match error {
        RuleError::Malformed(reason) => {
            CliError::usage("invalid rule").because(reason).fix("see ropewalk permissions --help")
        }
        RuleError::Refused(reason) => CliError::usage("this rule is not allowed in that file")
            .because(reason)
            .fix("pass --here to put it into your own file, for this folder"),
        RuleError::File(reason) => CliError::failed("could not change the rules").because(reason),
    }
}

/// The decision about an action, with everything that was considered.
struct RuleExplanation<'a> {
    folder: &'a Path,
    approval: &'a str,
    request: &'a AskRequest,
    preset: Ruling,
    hits: &'a [RuleHit],
    ruling: Ruling,
}

fn why(options: &PermissionsWhyOptions) -> Result<(), CliError> {
    let folder = run::folder(options.cwd.as_deref())?;
    let spec = engine::approval_spec();
    let approval = engine::full_name(APPROVAL, options.approval.as_str().into());
    if !spec.choices.iter().any(|choice| choice.value == approval) {
        let known: Vec<&str> = spec.choices.iter().map(|choice| choice.value.as_ref()).collect();
        return Err(CliError::usage(format!("approval preset {approval} not found"))
            .fix(format!("use one of {}", known.join(", "))));
    }
    let mut settings = Settings::default();
    settings.set(MODE.into(), "code".into());
    settings.set(APPROVAL.into(), approval.clone());
    let paths = paths::rules()?;
    let request =
        guard::hypothetical_request(&options.tool, &options.subject, &folder, paths.home.as_deref());
    let book = Rulebook::new(paths);
    let hits = book.matching(&folder, &request);
    let decisive = engine::PermissionRules::find(&book, &folder, &request);
    let explanation = RuleExplanation {
        folder: &folder,
        approval: &approval,
        request: &request,
        preset: engine::decide(&settings, &request, None),
        hits: &hits,
        ruling: engine::decide(&settings, &request, decisive.as_ref()),
    };
    if options.json { output::put_json(&explanation.json()) } else { output::put(&explanation.text()) }
}

impl RuleExplanation<'_> {
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
            writeln!(out, "  rules:   none match").ok();
        }
        writeln!(out, "Result: it {}.", outcome(&self.ruling)).ok();
        if self.needs_exact() {
            out.push_str(
                "A rule for a group of commands does not allow a critical command; a rule with its exact text does.\n",
            );
        }
        out
    }

    /// Whether it is allowed by a rule but still needs permission.
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
        Ruling::Ask => "needs permission; if nobody can be asked, it is refused".to_owned(),
    }
}

fn ruling_name(ruling: &Ruling) -> &'static str {
    match ruling {
        Ruling::Allow { .. } | Ruling::Rule { allow: true, .. } => "allow",
        Ruling::Deny { .. } | Ruling::Rule { allow: false, .. } => "deny",
        Ruling::Ask => "ask",
    }
}
