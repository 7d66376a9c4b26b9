//! The text of server-sent events, as every such stream writes it.

use std::fmt::Display;
use std::io::Write;

/// Appends one event. The data is one line.
pub fn write_event(out: &mut Vec<u8>, id: Option<&dyn Display>, event: Option<&str>, data: &[u8]) {
    if let Some(id) = id {
        // Writing to a vector cannot fail.
        drop(writeln!(out, "id: {id}"));
    }
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(id: Option<&dyn Display>, event: Option<&str>, expected: Expect) {
        let mut out = b"before\n\n".to_vec();
        write_event(&mut out, id, event, b"{}");
        expected.assert_eq(std::str::from_utf8(&out).unwrap());
    }

    #[test]
    fn an_event_has_what_it_is_given_and_an_empty_line_ends_it() {
        check(
            None,
            None,
            expect![[r#"
            before

            data: {}

        "#]],
        );
        check(
            Some(&7),
            Some("message"),
            expect![[r#"
            before

            id: 7
            event: message
            data: {}

        "#]],
        );
    }
}
