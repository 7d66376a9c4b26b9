//! Code that the ferret and otter dialects share: ferret's server is a superset of otter's.
//!
//! Both are older than the official protocol and looser: ids in either spelling, optional folders, one text
//! as a prompt. Each dialect's own module has what differs.

mod decode;
mod event_parts;
mod reply;
mod tool_names;

use engine::{SessionId, Timestamp};

use crate::timestamp::compact;

#[cfg(test)]
pub(crate) use decode::call_of;
pub(crate) use decode::{
    answer_in, hello, message, notification, optional_session_param, read, request, session_param,
    set_setting,
};
pub(crate) use event_parts::{
    agent_name, ask_question, change, choices, decision, level, path_text, plan, prompt_text, result_text,
    summed_up, summing_up, turn,
};
pub(crate) use reply::{fault, reply, stop_reason};
pub(crate) use tool_names::{CHIMERA, CHIMERA_TOOLS, ToolName, ToolNames};

/// The date, and the time to the minute.
const STAMP_CHARS: usize = "20260131T0905".len();

/// An id such as `ferret-20260131T0905-0123abcd`: the program, the time, and eight random digits.
pub(crate) fn new_id(prefix: &str, at: Timestamp) -> SessionId {
    let random = SessionId::random();
    let digits = random.as_str().get(..8).unwrap_or_default();
    let stamp = compact(at);
    let minute = stamp.get(..STAMP_CHARS).unwrap_or(&stamp);
    // All parts are valid in an id, so the whole is.
    SessionId::parse(&format!("{prefix}{minute}-{digits}")).unwrap_or(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_whose_it_is_and_when_it_was_made() {
        let id = new_id("ferret-", Timestamp(1_769_850_300_123));
        let digits = id.as_str().strip_prefix("ferret-20260131T0905-").unwrap();
        assert!(digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        assert_ne!(id, new_id("ferret-", Timestamp(1_769_850_300_123)));
    }
}
