//! What only a machine and its devices can read.
//!
//! Pure: keys and bytes come in, keys and bytes go out. Nothing here knows a session, a socket or a file.
