//! What ferret and otter say alike: ferret's server is a superset of otter's.
//!
//! Both are older than the official protocol and looser: ids of either spelling, folders that may be left
//! out, one text as a prompt. What differs, each says in its own module.

mod decode;
mod reply;
mod shape;
mod tools;

use engine::{SessionId, Timestamp};

use crate::timestamp::compact;

#[cfg(test)]
pub(crate) use decode::call_of;
pub(crate) use decode::{answer_in, hello, maybe_named, message, named, notification, read, request, set};
pub(crate) use reply::{fault, reply, stop_reason};
pub(crate) use shape::{
    agent_name, ask_question, change, choices, decision, level, path_text, plan, prompt_text, result_text,
    summed_up, summing_up, turn,
};
pub(crate) use tools::{CHIMERA, CHIMERA_TOOLS, ToolName, ToolNames};

/// The date and the time to the minute.
const STAMP_CHARS: usize = "20260131T0905".len();

/// An id as `ferret-20260131T0905-0123abcd`: who made it, when, and eight random digits.
pub(crate) fn new_id(prefix: &str, at: Timestamp) -> SessionId {
    let random = SessionId::random();
    let digits = random.as_str().get(..8).unwrap_or_default();
    let stamp = compact(at);
    let minute = stamp.get(..STAMP_CHARS).unwrap_or(&stamp);
    // The parts are plain, so they are an id.
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
