//! The agent's questions: a form where the client can show one, otherwise options in a permission request.

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{AskId, AskOption, AskRequest, CallId, PermissionAnswer, Question};
use serde_json::value::RawValue;

use super::tool_calls;

/// The fields of the form.
const ANSWER: &str = "answer";
const OTHER: &str = "other";
/// Ids of the options besides the choices.
const IN_CHAT: &str = "in_chat";
const DECIDE: &str = "decide";
const CHOICE: &str = "choice-";

/// Encodes the question as a form.
pub(super) fn form(
    session: schema::SessionId,
    request: &AskRequest,
    question: &Question,
) -> schema::CreateElicitationRequest {
    let call = request.call.as_ref().map(|call| schema::ToolCallId::new(call.0.clone()));
    let scope = schema::ElicitationSessionScope::new(session).tool_call_id(call);
    let field = |title: &str| schema::StringPropertySchema::new().title(title.to_owned());
    let choices: Vec<String> = question.choices.iter().map(ToString::to_string).collect();
    let form = match (choices.is_empty(), question.free_text) {
        (true, _) => schema::ElicitationSchema::new().property(ANSWER, field("Answer"), true),
        (false, false) => {
            let chosen = field("Answer").enum_values(choices);
            schema::ElicitationSchema::new().property(ANSWER, chosen, true)
        }
        (false, true) => schema::ElicitationSchema::new()
            .property(ANSWER, field("Answer").enum_values(choices), false)
            .property(OTHER, field("Something else"), false),
    };
    let mode = schema::ElicitationFormMode::new(scope, form);
    schema::CreateElicitationRequest::new(mode, question.text.to_string())
}

/// Encodes the question as a permission request, with one option for each choice.
pub(super) fn permission(
    session: schema::SessionId,
    (ask, request): (AskId, &AskRequest),
    question: &Question,
    parent: Option<&CallId>,
) -> schema::RequestPermissionRequest {
    let asked = tool_calls::permission(session, (ask, request), parent, tool_calls::AlwaysScope::default());
    let mut call = asked.tool_call;
    call.fields = call.fields.title(tool_calls::title(&question.text));
    call.fields = call.fields.content(vec![tool_calls::text(question.text.to_string())]);
    let option = |id: String, name: &str, kind| schema::PermissionOption::new(id, name.to_owned(), kind);
    let choice = |(at, text): (usize, &Arc<str>)| {
        option(format!("{CHOICE}{at}"), text, schema::PermissionOptionKind::AllowOnce)
    };
    let mut options: Vec<_> = question.choices.iter().enumerate().map(choice).collect();
    if question.free_text || question.choices.is_empty() {
        let no = schema::PermissionOptionKind::RejectOnce;
        options.push(option(IN_CHAT.into(), "Answer in the chat", no));
    }
    let no = schema::PermissionOptionKind::RejectOnce;
    options.push(option(DECIDE.into(), "Let the agent decide", no));
    schema::RequestPermissionRequest::new(asked.session_id, call, options)
}

/// How to decode the response to a permission request or form of ours.
#[derive(Debug, Clone)]
pub enum ExpectedAnswer {
    /// An option that we offered.
    Permission,
    /// An option that an external agent offered. Option ids are chosen by the agent: its `allow_once` may
    /// mean a refusal.
    ForeignOption(Vec<AskOption>),
    Reply(Question),
}

impl ExpectedAnswer {
    pub fn to(request: &AskRequest) -> Self {
        match (&request.question, &request.foreign) {
            (Some(question), _) => Self::Reply(question.clone()),
            (None, Some(foreign)) => Self::ForeignOption(foreign.options.clone()),
            (None, None) => Self::Permission,
        }
    }

    /// Whether the answer chose an external agent's option that allows nothing.
    pub fn refuses(&self, answer: &PermissionAnswer) -> bool {
        match (self, answer) {
            (Self::ForeignOption(options), PermissionAnswer::Choose(id)) => {
                !options.iter().any(|option| option.id == *id && option.means.allows())
            }
            (_, _) => false,
        }
    }
}

/// Decodes the response to a permission request or form. `form` says whether the client was shown a form.
pub fn ask_answer(
    expected: &ExpectedAnswer,
    form: bool,
    result: Result<&RawValue, &RawValue>,
) -> PermissionAnswer {
    let answer = match expected {
        ExpectedAnswer::Permission => permission_answer(result),
        ExpectedAnswer::ForeignOption(options) => foreign_answer(options, result),
        // A client that cannot show the question must not settle it: the agent then asks in the
        // conversation.
        ExpectedAnswer::Reply(question) if form => form_answer(question, result),
        ExpectedAnswer::Reply(question) => chosen_answer(question, result),
    };
    answer.unwrap_or(PermissionAnswer::Withdraw)
}

fn permission_answer(result: Result<&RawValue, &RawValue>) -> Option<PermissionAnswer> {
    let Some(option) = selected(result)? else { return Some(PermissionAnswer::CancelTurn) };
    match option.as_ref() {
        tool_calls::ALLOW_ONCE => Some(PermissionAnswer::AllowOnce),
        tool_calls::ALLOW_ALWAYS => Some(PermissionAnswer::AllowAlways),
        tool_calls::REJECT_ONCE => Some(PermissionAnswer::DenyOnce),
        tool_calls::REJECT_ALWAYS => Some(PermissionAnswer::DenyAlways),
        _ => None,
    }
}

fn foreign_answer(options: &[AskOption], result: Result<&RawValue, &RawValue>) -> Option<PermissionAnswer> {
    let Some(id) = selected(result)? else { return Some(PermissionAnswer::CancelTurn) };
    options.iter().any(|option| option.id == id).then_some(PermissionAnswer::Choose(id))
}

/// The id of the selected option; `Some(None)` if the turn is cancelled.
fn selected(result: Result<&RawValue, &RawValue>) -> Option<Option<Arc<str>>> {
    let response: schema::RequestPermissionResponse = serde_json::from_str(result.ok()?.get()).ok()?;
    match response.outcome {
        schema::RequestPermissionOutcome::Selected(selected) => Some(Some(selected.option_id.0)),
        schema::RequestPermissionOutcome::Cancelled => Some(None),
        _ => None,
    }
}

fn form_answer(question: &Question, result: Result<&RawValue, &RawValue>) -> Option<PermissionAnswer> {
    let response: schema::CreateElicitationResponse = serde_json::from_str(result.ok()?.get()).ok()?;
    match response.action {
        schema::ElicitationAction::Accept(accepted) => {
            let content = accepted.content?;
            let field = |name: &str| match content.get(name) {
                Some(schema::ElicitationContentValue::String(text)) => Some(text.as_str()),
                _ => None,
            };
            let written = field(OTHER).filter(|text| !text.trim().is_empty());
            let said = written.or_else(|| field(ANSWER))?;
            question.takes(said).then(|| PermissionAnswer::Reply(said.into()))
        }
        schema::ElicitationAction::Decline => Some(PermissionAnswer::DenyOnce),
        schema::ElicitationAction::Cancel | schema::ElicitationAction::Other(_) => None,
        _ => None,
    }
}

fn chosen_answer(question: &Question, result: Result<&RawValue, &RawValue>) -> Option<PermissionAnswer> {
    let Some(option) = selected(result)? else { return Some(PermissionAnswer::CancelTurn) };
    if option.as_ref() == DECIDE {
        return Some(PermissionAnswer::DenyOnce);
    }
    let at: usize = option.strip_prefix(CHOICE)?.parse().ok()?;
    question.choices.get(at).map(|choice| PermissionAnswer::Reply(choice.clone()))
}

#[cfg(test)]
mod tests {
    use engine::Resolution;

    use super::*;

    fn question(choices: &[&str], free_text: bool) -> Question {
        let choices = choices.iter().map(|choice| (*choice).into()).collect();
        Question { text: "which?".into(), choices, free_text }
    }

    fn check(question: &Question, form: bool, result: &str, expected: &PermissionAnswer) {
        check_answer(&ExpectedAnswer::Reply(question.clone()), form, result, expected);
    }

    fn check_answer(wanted: &ExpectedAnswer, form: bool, result: &str, expected: &PermissionAnswer) {
        let raw = RawValue::from_string(result.into()).unwrap();
        assert_eq!(&ask_answer(wanted, form, Ok(&raw)), expected, "{result}");
        assert_eq!(ask_answer(wanted, form, Err(&raw)), PermissionAnswer::Withdraw, "an error");
    }

    #[test]
    fn an_answer_that_cannot_be_understood_is_neither_a_yes_nor_a_persons_no() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        let ours =
            |result: &str, expected| check_answer(&ExpectedAnswer::Permission, false, result, &expected);
        ours(&selected("allow_once"), PermissionAnswer::AllowOnce);
        ours(&selected("allow_always"), PermissionAnswer::AllowAlways);
        ours(&selected("reject_once"), PermissionAnswer::DenyOnce);
        ours(&selected("reject_always"), PermissionAnswer::DenyAlways);
        ours(r#"{"outcome":{"outcome":"cancelled"}}"#, PermissionAnswer::CancelTurn);
        for odd in [&selected("zzz"), "{}", "null", "7", r#"{"outcome":"allow_once"}"#] {
            ours(odd, PermissionAnswer::Withdraw);
        }
    }

    #[test]
    fn an_external_agents_options_have_ids_of_their_own() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        let option = |id: &str, means| AskOption { id: id.into(), name: id.into(), means };
        let wanted = ExpectedAnswer::ForeignOption(vec![
            option("allow_once", Resolution::DeniedOnce),
            option("proceed", Resolution::AllowedOnce),
        ]);
        for (id, refuses) in [("allow_once", true), ("proceed", false)] {
            let answer = PermissionAnswer::Choose(id.into());
            check_answer(&wanted, false, &selected(id), &answer);
            assert_eq!(wanted.refuses(&answer), refuses, "{id}");
        }
        for odd in [selected("reject_once"), selected("zzz"), "{}".to_owned()] {
            check_answer(&wanted, false, &odd, &PermissionAnswer::Withdraw);
        }
        check_answer(&wanted, false, r#"{"outcome":{"outcome":"cancelled"}}"#, &PermissionAnswer::CancelTurn);
    }

    #[test]
    fn a_form_is_answered_in_words_and_nonsense_settles_nothing() {
        let reply = |text: &str| PermissionAnswer::Reply(text.into());
        let (two, open) = (question(&["red", "green"], false), question(&["red", "green"], true));
        let accept = |content: &str| format!(r#"{{"action":"accept","content":{content}}}"#);
        check(&two, true, &accept(r#"{"answer":"red"}"#), &reply("red"));
        check(&two, true, &accept(r#"{"answer":"blue"}"#), &PermissionAnswer::Withdraw);
        check(&open, true, &accept(r#"{"answer":"red","other":" "}"#), &reply("red"));
        check(&open, true, &accept(r#"{"answer":"red","other":"blue"}"#), &reply("blue"));
        check(&question(&[], true), true, &accept(r#"{"answer":"because"}"#), &reply("because"));
        check(&two, true, r#"{"action":"decline"}"#, &PermissionAnswer::DenyOnce);
        for odd in [r#"{"action":"cancel"}"#, r#"{"action":"_x"}"#, r#"{"action":"accept"}"#, "null", "7"] {
            check(&two, true, odd, &PermissionAnswer::Withdraw);
        }
    }

    #[test]
    fn a_choice_is_named_by_its_place_and_nothing_else_is_taken_for_one() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        let two = question(&["allow_once", "choice-0"], true);
        check(&two, false, &selected("choice-0"), &PermissionAnswer::Reply("allow_once".into()));
        check(&two, false, &selected("choice-1"), &PermissionAnswer::Reply("choice-0".into()));
        check(&two, false, &selected("decide"), &PermissionAnswer::DenyOnce);
        for odd in ["in_chat", "choice-2", "choice--1", "choice-", "allow_once", ""] {
            check(&two, false, &selected(odd), &PermissionAnswer::Withdraw);
        }
        check(&two, false, r#"{"outcome":{"outcome":"cancelled"}}"#, &PermissionAnswer::CancelTurn);
    }
}
