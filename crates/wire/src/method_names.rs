//! Method names, for code outside the dialects that counts or routes requests.
//!
//! Dialects define what a method means; no method name is spelled out outside this crate.

/// All methods of all dialects, and `session/request_permission`, which clients respond to; sorted.
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

/// Requests about a session: over the official remote transport the session is named in their parameters or
/// in a header.
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

/// Those that accept the session as `sessionId` or as `session_id`.
pub const EITHER_SPELLING: [&str; 2] = ["session/configure", "session/set_model"];

/// The methods that a caller may use who may only answer permission requests.
pub const ANSWERS: [&str; 1] = ["permission/respond"];

/// The request that asks a client for permission in the official dialect.
pub const REQUEST_PERMISSION: &str = "session/request_permission";

/// The notification that carries a session's events.
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
