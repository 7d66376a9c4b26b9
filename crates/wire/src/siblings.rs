//! What ferret and otter say alike: ferret's server is a superset of otter's.
//!
//! Both are older than the official protocol and looser: ids of either spelling, folders that may be left
//! out, one text as a prompt. What differs, each says in its own module.

mod decode;
mod reply;
mod shape;
mod tools;

pub(crate) use decode::{answer_in, hello, named, notification, read, request, set};
pub(crate) use reply::{fault, reply, stop_reason};
pub(crate) use shape::{
    ask_question, change, choices, decision, level, path_text, plan, prompt_text, result_text, stream_name,
    summed_up, summing_up, turn,
};
pub(crate) use tools::{CHIMERA, ToolName, ToolNames};
