//! What is allowed without asking: one pure function that every door and every tool uses.
//!
//! **Invariant:** a denial beats everything, and neither a rule nor a preset can override a mode that
//! forbids a class of tools.

use std::sync::Arc;

use crate::event::{AskRequest, Risk, ToolClass};
use crate::settings::{APPROVAL, MODE, Settings};
use crate::stored_rules::{RuleEffect, RuleHit};

/// The policy's decision about an action, before any person is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    Allow {
        reason: Arc<str>,
    },
    /// A rule of the person decided it.
    Rule {
        allow: bool,
        reason: Arc<str>,
    },
    Deny {
        mode: Arc<str>,
        reason: Arc<str>,
    },
    Ask,
}

/// Decides an action from the session's settings and what the rules say of it: deny before ask before
/// the preset before allow.
pub fn decide(settings: &Settings, request: &AskRequest, hit: Option<&RuleHit>) -> Ruling {
    decide_with(settings, &[], request, hit)
}

/// The same where more modes than the usual one may change things.
pub(crate) fn decide_with(
    settings: &Settings,
    free_modes: &[Arc<str>],
    request: &AskRequest,
    hit: Option<&RuleHit>,
) -> Ruling {
    let mode = settings.get(MODE);
    let free = free_modes.iter().any(|free| **free == *mode);
    if let Some(reason) = forbidden_by_mode(mode, request.class).filter(|_| !free) {
        return Ruling::Deny { mode: mode.into(), reason };
    }
    if let Some(hit) = hit.filter(|hit| hit.effect == RuleEffect::Deny) {
        return Ruling::Rule { allow: false, reason: format!("refused by the rule {}", hit.shown()).into() };
    }
    let approval = settings.get(APPROVAL);
    if approval == "read-only" && request.class != ToolClass::Read {
        return Ruling::Deny {
            mode: approval.into(),
            reason: "approval is set to read-only: only reading is allowed".into(),
        };
    }
    if hit.is_some_and(|hit| hit.effect == RuleEffect::Ask) {
        return Ruling::Ask;
    }
    if request.is_consent() {
        return consent(hit);
    }
    if approval == "full" {
        return allow("approval is set to full");
    }
    if let Some(hit) = hit.filter(|hit| covers(hit, request.risk)) {
        return Ruling::Rule { allow: true, reason: format!("allowed by the rule {}", hit.shown()).into() };
    }
    match (approval, request.class) {
        ("strict", _) => Ruling::Ask,
        // Even reading is asked for where the file holds secrets.
        (_, _) if request.risk >= Risk::High => Ruling::Ask,
        (_, ToolClass::Read) => allow("reading is allowed"),
        ("auto", ToolClass::Edit) => allow("edits inside the workspace are allowed"),
        ("auto", ToolClass::Execute) if request.risk == Risk::Low => allow("the command only reads"),
        (_, ToolClass::Edit | ToolClass::Execute | ToolClass::Network) => Ruling::Ask,
    }
}

/// A program that a project names, or a command outside the sandbox, is allowed only by the owner's consent
/// to exactly that program or command. Presets and other rules do not cover it.
fn consent(hit: Option<&RuleHit>) -> Ruling {
    match hit.filter(|hit| hit.consent && hit.effect == RuleEffect::Allow) {
        Some(hit) => Ruling::Rule { allow: true, reason: format!("trusted: {}", hit.shown()).into() },
        None => Ruling::Ask,
    }
}

/// A rule for a family of commands was not written with a disaster in mind: that takes its exact text.
fn covers(hit: &RuleHit, risk: Risk) -> bool {
    hit.effect == RuleEffect::Allow && (risk < Risk::Critical || hit.exact)
}

fn allow(reason: &str) -> Ruling {
    Ruling::Allow { reason: reason.into() }
}

fn forbidden_by_mode(mode: &str, class: ToolClass) -> Option<Arc<str>> {
    // A mode that is not known to change things only reads; a backend without modes has none.
    let only_reading = !matches!(mode, "code" | "");
    match class {
        ToolClass::Read => None,
        ToolClass::Edit | ToolClass::Execute | ToolClass::Network => only_reading.then(|| {
            format!("the session is in {mode} mode: only reading is allowed; switch to code mode").into()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::full_name;

    fn request(class: ToolClass, risk: Risk) -> AskRequest {
        AskRequest { risk, ..AskRequest::new("tool", "subject", class) }
    }

    fn settings(approval: &str) -> Settings {
        let mut settings = Settings::default();
        settings.set(APPROVAL.into(), full_name(APPROVAL, approval.into()));
        settings
    }

    fn check(approval: &str, class: ToolClass, risk: Risk, hit: Option<(RuleEffect, bool)>) -> &'static str {
        let hit = hit.map(|(effect, exact)| RuleHit {
            effect,
            rule: "r".into(),
            source: "s".into(),
            exact,
            consent: false,
        });
        match decide(&settings(approval), &request(class, risk), hit.as_ref()) {
            Ruling::Allow { .. } | Ruling::Rule { allow: true, .. } => "allow",
            Ruling::Deny { .. } | Ruling::Rule { allow: false, .. } => "deny",
            Ruling::Ask => "ask",
        }
    }

    #[test]
    fn each_preset_allows_asks_and_denies_what_it_says() {
        use Risk::{Critical, High, Low, Medium};
        use ToolClass::{Edit, Execute, Network, Read};
        let wishes = [
            (Read, Low),
            (Read, High),
            (Edit, Medium),
            (Edit, High),
            (Execute, Low),
            (Execute, Medium),
            (Execute, Critical),
            (Network, Medium),
        ];
        for (presets, expected) in [
            (&["read-only", "readonly"][..], "allow ask deny deny deny deny deny deny"),
            (&["strict"], "ask ask ask ask ask ask ask ask"),
            (&["suggest", "manual", "Ask"], "allow ask ask ask ask ask ask ask"),
            (&["auto", "auto-edit", "acceptEdits"], "allow ask allow ask allow ask ask ask"),
            (&["full", "yolo", "full_auto"], "allow allow allow allow allow allow allow allow"),
        ] {
            for preset in presets {
                let ruled = wishes.map(|(class, risk)| check(preset, class, risk, None)).join(" ");
                assert_eq!(ruled, expected, "{preset}");
            }
        }
    }

    #[test]
    fn no_preset_and_no_rule_consents_to_a_program_that_a_project_names() {
        check_consent(AskRequest {
            consent: Some("sha256:1".into()),
            ..AskRequest::new(crate::SERVER_CONSENT, "x: npx a", ToolClass::Execute)
        });
    }

    /// However harmless the command is.
    #[test]
    fn no_preset_and_no_rule_lets_a_command_out_of_the_fence() {
        for risk in [Risk::Low, Risk::High] {
            check_consent(AskRequest {
                risk,
                consent: Some("editor-terminal:1".into()),
                ..AskRequest::new("shell", "ls", ToolClass::Execute)
            });
        }
    }

    fn check_consent(request: AskRequest) {
        use RuleEffect::{Allow, Ask, Deny};
        let ruled = |approval, hit: Option<(RuleEffect, bool)>| {
            let hit = hit.map(|(effect, consent)| RuleHit {
                effect,
                rule: "r".into(),
                source: "s".into(),
                exact: true,
                consent,
            });
            match decide(&settings(approval), &request, hit.as_ref()) {
                Ruling::Allow { .. } | Ruling::Rule { allow: true, .. } => "allow",
                Ruling::Deny { .. } | Ruling::Rule { allow: false, .. } => "deny",
                Ruling::Ask => "ask",
            }
        };
        for approval in ["strict", "suggest", "auto", "full"] {
            assert_eq!(ruled(approval, None), "ask", "{approval}");
            assert_eq!(ruled(approval, Some((Allow, false))), "ask", "{approval}");
            assert_eq!(ruled(approval, Some((Ask, false))), "ask", "{approval}");
            assert_eq!(ruled(approval, Some((Deny, false))), "deny", "{approval}");
            assert_eq!(ruled(approval, Some((Allow, true))), "allow", "{approval}");
        }
        assert_eq!(ruled("read-only", Some((Allow, true))), "deny");
    }

    #[test]
    fn deny_comes_before_ask_before_the_preset_before_allow() {
        use RuleEffect::{Allow, Ask, Deny};
        let run = |approval, risk, hit| check(approval, ToolClass::Execute, risk, Some(hit));
        for approval in ["auto", "full", "suggest"] {
            assert_eq!(run(approval, Risk::Low, (Deny, false)), "deny", "{approval}");
            assert_eq!(run(approval, Risk::Low, (Ask, false)), "ask", "{approval}");
            assert_eq!(run(approval, Risk::High, (Allow, false)), "allow", "{approval}");
        }
        assert_eq!(run("read-only", Risk::Low, (Allow, true)), "deny");
        assert_eq!(run("auto", Risk::Critical, (Allow, false)), "ask");
        assert_eq!(run("auto", Risk::Critical, (Allow, true)), "allow");
    }
}
