//! The names of methods, for whoever has to know them without being a dialect: who counts requests, who routes them.
//!
//! What a method means is the business of the dialects; nobody outside of this crate spells one out.

/// Every method that some dialect has, and `session/request_permission`, which clients answer; in order.
pub const METHODS: [&str; 47] = [
    "$/cancel_request",
    "$/ping",
    "_agent/mcp/add",
    "_agent/mcp/list",
    "_agent/mcp/remove",
    "_agent/tools",
    "_agent/working_dir/update",
    "_session/delete",
    "_session/export",
    "_session/get",
    "_session/import",
    "_session/list",
    "authenticate",
    "cancel",
    "initialize",
    "initialized",
    "logout",
    "permission/respond",
    "ping",
    "prompt",
    "requestPermission",
    "session/bridgeStatus",
    "session/cancel",
    "session/close",
    "session/configure",
    "session/create",
    "session/delete",
    "session/fork",
    "session/get",
    "session/list",
    "session/load",
    "session/message",
    "session/new",
    "session/prompt",
    "session/request_permission",
    "session/resume",
    "session/setApproval",
    "session/setMode",
    "session/setModel",
    "session/setSandbox",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
    "session/update",
    "setMode",
    "shutdown",
    "tool/approve",
];

/// Calls about a session: over the official remote transport they name it in their parameters or in a header.
pub const ABOUT_A_SESSION: [&str; 11] = [
    "session/prompt",
    "session/cancel",
    "session/close",
    "session/configure",
    "session/delete",
    "session/fork",
    "session/load",
    "session/resume",
    "session/set_config_option",
    "session/set_mode",
    "session/set_model",
];

/// Those of them that take the session as `sessionId` or as `session_id`.
pub const EITHER_SPELLING: [&str; 2] = ["session/configure", "session/set_model"];

/// What somebody may send who only answers permission requests.
pub const ANSWERS: [&str; 1] = ["permission/respond"];

/// What a client is asked by a request of ours in the official dialect.
pub const REQUEST_PERMISSION: &str = "session/request_permission";

/// What a session tells.
pub const UPDATE: &str = "session/update";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_in_order_and_each_is_known() {
        assert!(METHODS.is_sorted());
        let others = ABOUT_A_SESSION.iter().chain(&ANSWERS).chain([&REQUEST_PERMISSION, &UPDATE]);
        for name in others {
            assert!(METHODS.binary_search(name).is_ok(), "{name}");
        }
    }
}
