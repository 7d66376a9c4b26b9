//! External agents (ACP): translates what an agent sends into engine events, and builds our requests to it
//! as its client.
//!
//! Pure, like every dialect. The agent is another program and may send anything, so nothing here fails on
//! its input: an update that is not understood is passed on unchanged ([`engine::Body::Foreign`]), and one
//! that is too large is cut. Whatever our events cannot express is kept verbatim beside them
//! ([`engine::NewEvent::relayed`]). If one update becomes several events, one of them carries the verbatim
//! update and the others carry an empty text, which means that nothing is to be sent for them.

mod content;
mod content_hashes;
mod conversation_recap;
pub mod journal;
mod permission_requests;
mod raw_json;
mod requests_to_agent;
mod responses;
mod session_facts;
mod settings;
#[cfg(test)]
mod tests;
mod tool_calls;
mod tool_end;
mod update_translator;

pub use conversation_recap::ConversationRecap;
pub use permission_requests::{BadPermissionRequest, permission_outcome, permission_request};
pub use requests_to_agent::{
    PROMPT, cancel, close, fork, initialize, load, new_session, prompt, reaches, resume,
};
pub use responses::{
    AgentAbilities, BadResponse, OpenedSession, PromptResult, initialize_response, prompt_response,
    session_response,
};
pub(crate) use session_facts::{EXTENSION, PROMPT_ANSWER};
pub use session_facts::{extension, is_lasting, prompt_answer};
pub use settings::{SettingMethod, SettingOffers, setting_request};
pub use update_translator::{TranslatedEvent, UpdateTranslator};
