//! Whether a wish of an agent's may be fulfilled: judged like the wishes of our own agent, and asked for in
//! the same way.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};

use engine::{AskRequest, Opaque, Risk, ToolClass, ToolContent, ToolKind, TurnContext, Verdict};
use guard::{
    Assessment, Deed, Workplace, assess_deed, assess_outside, with_git_settings, with_steered_programs,
};
use wire::acp::Unserved;

use super::Shared;

/// What is remembered as just allowed; the oldest makes room.
const GRANTS_MAX: usize = 64;
/// A longer command is judged off the async threads.
const LINE_BYTES_JUDGED_AT_ONCE: usize = 512;
const TITLE_CHARS_MAX: usize = 120;

/// Something that whoever decides has allowed the agent to do, because it asked before it did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub class: ToolClass,
    /// The file that it is about.
    pub path: Option<PathBuf>,
    /// The command that is to run.
    pub line: Option<String>,
}

#[derive(Default)]
pub(super) struct Grants(Vec<Grant>);

impl Grants {
    pub(super) fn add(&mut self, grant: Grant) {
        if self.0.len() >= GRANTS_MAX {
            self.0.remove(0);
        }
        self.0.push(grant);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether this was allowed. Looking does not use a grant up, doing does: it was for one deed. Whoever
    /// allowed it did not hear that it would leave the fence.
    fn cover(&mut self, wish: &Wish) -> bool {
        if wish.outside.is_some() {
            return false;
        }
        let covers = |grant: &Grant| match wish.class {
            ToolClass::Read => matches!(grant.class, ToolClass::Read | ToolClass::Edit) && wish.about(grant),
            ToolClass::Edit => grant.class == ToolClass::Edit && wish.about(grant),
            ToolClass::Execute => {
                grant.class == ToolClass::Execute
                    && grant
                        .line
                        .as_ref()
                        .is_some_and(|line| wish.lines.iter().skip(1).any(|own| own == line))
            }
            ToolClass::Network => false,
        };
        let Some(at) = self.0.iter().position(covers) else { return false };
        if wish.class != ToolClass::Read {
            self.0.remove(at);
        }
        true
    }
}

/// Something that an agent wants done.
pub(super) struct Wish {
    /// As our own agent's tool for it is called, so that the person's rules are about it too.
    pub(super) tool: &'static str,
    pub(super) title: String,
    pub(super) kind: ToolKind,
    pub(super) class: ToolClass,
    /// The paths of the file: without links, and as the agent wrote it.
    pub(super) paths: Option<(PathBuf, PathBuf)>,
    /// The line of shell, first as it is judged, then as the agent may have been allowed it before.
    pub(super) lines: Vec<String>,
    pub(super) input: Opaque,
    pub(super) usual: (Risk, &'static str),
    pub(super) preview: Vec<ToolContent>,
    /// It would run outside the fence although there is one: a digest of what would.
    pub(super) outside: Option<String>,
}

impl Wish {
    fn about(&self, grant: &Grant) -> bool {
        let Some((real, written)) = &self.paths else { return false };
        grant.path.as_ref().is_some_and(|path| path == real || path == written)
    }

    fn real(&self) -> Option<&Path> {
        self.paths.as_ref().map(|(real, _)| real.as_path())
    }
}

impl Shared {
    pub(super) fn grants(&self) -> MutexGuard<'_, Grants> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes back if it may be done.
    pub(super) async fn permit(self: &Arc<Self>, turn: &TurnContext, wish: Wish) -> Result<(), Unserved> {
        if self.grants().cover(&wish) {
            return Ok(());
        }
        let assessed = self.assess(&wish).await?;
        let Assessment { risk, reason } =
            if wish.outside.is_some() { assess_outside(assessed) } else { assessed };
        let subject = match (wish.lines.first(), wish.real()) {
            (Some(line), _) => line.as_str().into(),
            (None, Some(path)) => path.to_string_lossy().into(),
            (None, None) => wish.tool.into(),
        };
        let request = AskRequest {
            call: None,
            tool: wish.tool.into(),
            title: one_line(&wish.title).into(),
            kind: wish.kind,
            class: wish.class,
            path: wish.real().map(Path::to_owned),
            subject,
            input: wish.input,
            risk,
            reason: reason.into(),
            preview: wish.preview,
            question: None,
            foreign: None,
            consent: wish.outside.map(Into::into),
            rule: None,
        };
        self.count(request.weight()).await?;
        // The session settles open asks on a cancel; the token covers one that is still on its way.
        let verdict = tokio::select! {
            biased;
            () = turn.cancel.cancelled() => return Err(Unserved::Cancelled),
            verdict = turn.ask(request) => verdict,
        };
        match verdict {
            Ok(Verdict::Allowed) => Ok(()),
            // Words must not be taken for a yes.
            Ok(Verdict::Replied(said)) => Err(Unserved::Refused(said.to_string())),
            Ok(Verdict::Denied { reason, .. }) => Err(Unserved::Refused(reason.to_string())),
            Err(gone) => Err(Unserved::Failed(gone.to_string())),
        }
    }

    pub(super) async fn assess(self: &Arc<Self>, wish: &Wish) -> Result<Assessment, Unserved> {
        let (desk, class, usual) = (Arc::clone(self), wish.class, wish.usual);
        let (line, path) = (wish.lines.first().cloned(), wish.real().map(Path::to_owned));
        let long = line.as_ref().is_some_and(|line| line.len() > LINE_BYTES_JUDGED_AT_ONCE);
        let assess = move || {
            let policy = desk.policy();
            let home = policy.homes.first().map(PathBuf::as_path);
            let place = Workplace { cwd: &desk.spec.cwd, roots: &policy.roots, home };
            let deed = Deed { class, line: line.as_deref(), path: path.as_deref() };
            let assessed = assess_deed(deed, Assessment { risk: usual.0, reason: usual.1.into() }, &place);
            let assessed = with_git_settings(assessed, deed, || sandbox::git_program(&policy.roots));
            with_steered_programs(assessed, deed, &place, |program| {
                sandbox::steered_program(program, &desk.spec.environment, &desk.spec.cwd, &policy.roots)
            })
        };
        let long = long || (class == ToolClass::Execute && !wish.lines.is_empty());
        // Some microseconds for what people write; what is made to be hard takes longer, and so does looking
        // at the settings of repositories and at where programs lie.
        if long { self.blocking(move || Ok(assess())).await } else { Ok(assess()) }
    }
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(TITLE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(class: ToolClass, path: Option<&str>, line: Option<&str>) -> Wish {
        Wish {
            tool: "t",
            title: String::new(),
            kind: ToolKind::Other,
            class,
            paths: path.map(|path| (path.into(), "/as/written".into())),
            lines: line.map(|line| vec![format!("sh -c '{line}'"), line.to_owned()]).unwrap_or_default(),
            input: Opaque("{}".into()),
            usual: (Risk::Low, ""),
            preview: Vec::new(),
            outside: None,
        }
    }

    #[test]
    fn a_grant_is_for_the_same_thing_and_for_one_deed() {
        use ToolClass::{Edit, Execute, Read};
        let grant = |class, path: Option<&str>, line: Option<&str>| Grant {
            class,
            path: path.map(Into::into),
            line: line.map(Into::into),
        };
        let mut grants = Grants::default();
        grants.add(grant(Edit, Some("/w/a"), None));
        grants.add(grant(Execute, None, Some("make")));
        assert!(!grants.cover(&wish(Edit, Some("/w/b"), None)));
        assert!(!grants.cover(&wish(Execute, None, Some("make clean"))));
        assert!(grants.cover(&wish(Read, Some("/w/a"), None)));
        assert!(grants.cover(&wish(Edit, Some("/w/a"), None)));
        assert!(!grants.cover(&wish(Edit, Some("/w/a"), None)), "it was used up");
        assert!(grants.cover(&wish(Execute, None, Some("make"))));
        assert!(!grants.cover(&wish(Execute, None, Some("make"))), "it was used up");
        grants.add(grant(Execute, None, Some("make")));
        let outside = Wish { outside: Some("digest".into()), ..wish(Execute, None, Some("make")) };
        assert!(!grants.cover(&outside), "leaving the fence was not asked");
        for n in 0..1000 {
            grants.add(grant(Edit, Some(&format!("/w/{n}")), None));
        }
        assert_eq!(grants.0.len(), GRANTS_MAX);
        grants.clear();
        assert!(!grants.cover(&wish(Edit, Some("/w/999"), None)));
    }
}
