//! The web app's types are generated from these types.

use expect_test::expect_file;
use ts_rs::{Config, TS};

use super::*;

const HEAD: &str = "// Made from crates/wire/src/native by its tests (UPDATE_EXPECT=1 cargo test -p wire native). Do not edit.\n";

#[test]
fn the_types_of_the_web_app_are_current() {
    let config = Config::new().with_large_int("number");
    let mut out = String::from(HEAD);
    macro_rules! types {
        ($($name:ty),* $(,)?) => { $( out.push_str(&format!("\nexport {}\n", <$name as TS>::decl(&config))); )* };
    }
    types!(
        Role,
        Decision,
        ImageAttachment,
        PushSubscription,
        Request,
        RequestEnvelope,
        NoticeSeverity,
        PlanStepState,
        PlanStepView,
        PlanView,
        DiffStatus,
        HunkView,
        DiffView,
        ToolCallState,
        ToolCallView,
        TurnSummary,
        RowContent,
        Row,
        TextAppend,
        QuestionView,
        AskView,
        CardState,
        BranchOrigin,
        SessionCard,
        QueuedPrompt,
        SettingChoice,
        SettingView,
        SlashCommand,
        SessionState,
        ViewUpdate,
        ServerHello,
        FileMatch,
        RuleView,
        DeviceView,
        PairingRequest,
        Invitation,
        ReplyError,
        ReplyBody,
        RequestReply,
        ServerNotification,
        ServerFrame,
        hub_requests::HubRequest,
        hub_requests::MachineView,
        hub_requests::ShareView,
        hub_requests::TokenView,
        hub_requests::PersonView,
        hub_requests::PasskeyView,
        hub_requests::HubReplyBody,
        hub_requests::HubNotification,
    );
    expect_file!["../../../../web/src/wire.ts"].assert_eq(&out);
}

#[test]
fn a_request_is_read_with_its_id() {
    let text = r#"{"id":7,"do":"prompt","session":"s","key":"k","text":"hi","pictures":[]}"#;
    let envelope: RequestEnvelope = serde_json::from_str(text).unwrap();
    assert_eq!(envelope.id, 7);
    assert_eq!(serde_json::to_string(&envelope).unwrap(), text);
}
