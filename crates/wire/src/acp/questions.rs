//! The agent's questions: a form where the client can show one, otherwise choices in a permission request.

use std::sync::Arc;

use agent_client_protocol_schema::v1 as schema;
use engine::{Answer, AskId, AskOption, AskRequest, CallId, Question};
use serde_json::value::RawValue;

use super::tools;

/// The fields of the form.
const ANSWER: &str = "answer";
const OTHER: &str = "other";
/// The options beside the choices.
const IN_CHAT: &str = "in_chat";
const DECIDE: &str = "decide";
const CHOICE: &str = "choice-";

/// The question as a form.
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

/// The question as a permission request: each choice is an option.
pub(super) fn permission(
    session: schema::SessionId,
    (ask, request): (AskId, &AskRequest),
    question: &Question,
    parent: Option<&CallId>,
) -> schema::RequestPermissionRequest {
    let asked = tools::permission(session, (ask, request), parent, tools::Keeps::default());
    let mut call = asked.tool_call;
    call.fields = call.fields.title(tools::title(&question.text));
    call.fields = call.fields.content(vec![tools::text(question.text.to_string())]);
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

/// How the answer to a request of ours is to be read.
#[derive(Debug, Clone)]
pub enum ExpectedAnswer {
    /// One of our own options.
    Permission,
    /// One of the options of an external agent. Their ids are its own: one that it calls `allow_once` may be a no.
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

    /// Whether an option of an external agent was chosen that does not allow anything.
    pub fn refuses(&self, answer: &Answer) -> bool {
        match (self, answer) {
            (Self::ForeignOption(options), Answer::Choose(id)) => {
                !options.iter().any(|option| option.id == *id && option.means.allows())
            }
            (_, _) => false,
        }
    }
}

/// What the answer to a request of ours says. `form` is whether the client was shown questions as forms.
pub fn ask_answer(expected: &ExpectedAnswer, form: bool, result: Result<&RawValue, &RawValue>) -> Answer {
    let answer = match expected {
        ExpectedAnswer::Permission => permission_answer(result),
        ExpectedAnswer::ForeignOption(options) => foreign_answer(options, result),
        // A client that cannot show the question must not settle it: it is asked in the conversation.
        ExpectedAnswer::Reply(question) if form => form_answer(question, result),
        ExpectedAnswer::Reply(question) => chosen(question, result),
    };
    answer.unwrap_or(Answer::Withdraw)
}

fn permission_answer(result: Result<&RawValue, &RawValue>) -> Option<Answer> {
    let Some(option) = selected(result)? else { return Some(Answer::CancelTurn) };
    match option.as_ref() {
        tools::ALLOW_ONCE => Some(Answer::AllowOnce),
        tools::ALLOW_ALWAYS => Some(Answer::AllowAlways),
        tools::REJECT_ONCE => Some(Answer::DenyOnce),
        tools::REJECT_ALWAYS => Some(Answer::DenyAlways),
        _ => None,
    }
}

fn foreign_answer(options: &[AskOption], result: Result<&RawValue, &RawValue>) -> Option<Answer> {
    let Some(id) = selected(result)? else { return Some(Answer::CancelTurn) };
    options.iter().any(|option| option.id == id).then_some(Answer::Choose(id))
}

/// The id of the option that was selected, or `Some(None)` where the turn is cancelled.
fn selected(result: Result<&RawValue, &RawValue>) -> Option<Option<Arc<str>>> {
    let response: schema::RequestPermissionResponse = serde_json::from_str(result.ok()?.get()).ok()?;
    match response.outcome {
        schema::RequestPermissionOutcome::Selected(selected) => Some(Some(selected.option_id.0)),
        schema::RequestPermissionOutcome::Cancelled => Some(None),
        _ => None,
    }
}

fn form_answer(question: &Question, result: Result<&RawValue, &RawValue>) -> Option<Answer> {
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
            question.takes(said).then(|| Answer::Reply(said.into()))
        }
        schema::ElicitationAction::Decline => Some(Answer::DenyOnce),
        schema::ElicitationAction::Cancel | schema::ElicitationAction::Other(_) => None,
        _ => None,
    }
}

fn chosen(question: &Question, result: Result<&RawValue, &RawValue>) -> Option<Answer> {
    let Some(option) = selected(result)? else { return Some(Answer::CancelTurn) };
    if option.as_ref() == DECIDE {
        return Some(Answer::DenyOnce);
    }
    let at: usize = option.strip_prefix(CHOICE)?.parse().ok()?;
    question.choices.get(at).map(|choice| Answer::Reply(choice.clone()))
}

#[cfg(test)]
mod tests {
    use engine::Resolution;

    use super::*;

    fn question(choices: &[&str], free_text: bool) -> Question {
        let choices = choices.iter().map(|choice| (*choice).into()).collect();
        Question { text: "which?".into(), choices, free_text }
    }

    fn check(question: &Question, form: bool, result: &str, expected: &Answer) {
        check_answer(&ExpectedAnswer::Reply(question.clone()), form, result, expected);
    }

    fn check_answer(wanted: &ExpectedAnswer, form: bool, result: &str, expected: &Answer) {
        let raw = RawValue::from_string(result.into()).unwrap();
        assert_eq!(&ask_answer(wanted, form, Ok(&raw)), expected, "{result}");
        assert_eq!(ask_answer(wanted, form, Err(&raw)), Answer::Withdraw, "an error");
    }

    #[test]
    fn an_answer_that_cannot_be_understood_is_neither_a_yes_nor_a_persons_no() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        let ours =
            |result: &str, expected| check_answer(&ExpectedAnswer::Permission, false, result, &expected);
        ours(&selected("allow_once"), Answer::AllowOnce);
        ours(&selected("allow_always"), Answer::AllowAlways);
        ours(&selected("reject_once"), Answer::DenyOnce);
        ours(&selected("reject_always"), Answer::DenyAlways);
        ours(r#"{"outcome":{"outcome":"cancelled"}}"#, Answer::CancelTurn);
        for odd in [&selected("zzz"), "{}", "null", "7", r#"{"outcome":"allow_once"}"#] {
            ours(odd, Answer::Withdraw);
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
            let answer = Answer::Choose(id.into());
            check_answer(&wanted, false, &selected(id), &answer);
            assert_eq!(wanted.refuses(&answer), refuses, "{id}");
        }
        for odd in [selected("reject_once"), selected("zzz"), "{}".to_owned()] {
            check_answer(&wanted, false, &odd, &Answer::Withdraw);
        }
        check_answer(&wanted, false, r#"{"outcome":{"outcome":"cancelled"}}"#, &Answer::CancelTurn);
    }

    #[test]
    fn a_form_is_answered_in_words_and_nonsense_settles_nothing() {
        let reply = |text: &str| Answer::Reply(text.into());
        let (two, open) = (question(&["red", "green"], false), question(&["red", "green"], true));
        let accept = |content: &str| format!(r#"{{"action":"accept","content":{content}}}"#);
        check(&two, true, &accept(r#"{"answer":"red"}"#), &reply("red"));
        check(&two, true, &accept(r#"{"answer":"blue"}"#), &Answer::Withdraw);
        check(&open, true, &accept(r#"{"answer":"red","other":" "}"#), &reply("red"));
        check(&open, true, &accept(r#"{"answer":"red","other":"blue"}"#), &reply("blue"));
        check(&question(&[], true), true, &accept(r#"{"answer":"because"}"#), &reply("because"));
        check(&two, true, r#"{"action":"decline"}"#, &Answer::DenyOnce);
        for odd in [r#"{"action":"cancel"}"#, r#"{"action":"_x"}"#, r#"{"action":"accept"}"#, "null", "7"] {
            check(&two, true, odd, &Answer::Withdraw);
        }
    }

    #[test]
    fn a_choice_is_named_by_its_place_and_nothing_else_is_taken_for_one() {
        let selected = |id: &str| format!(r#"{{"outcome":{{"outcome":"selected","optionId":"{id}"}}}}"#);
        let two = question(&["allow_once", "choice-0"], true);
        check(&two, false, &selected("choice-0"), &Answer::Reply("allow_once".into()));
        check(&two, false, &selected("choice-1"), &Answer::Reply("choice-0".into()));
        check(&two, false, &selected("decide"), &Answer::DenyOnce);
        for odd in ["in_chat", "choice-2", "choice--1", "choice-", "allow_once", ""] {
            check(&two, false, &selected(odd), &Answer::Withdraw);
        }
        check(&two, false, r#"{"outcome":{"outcome":"cancelled"}}"#, &Answer::CancelTurn);
    }
}
