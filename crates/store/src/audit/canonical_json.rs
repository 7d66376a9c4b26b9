//! JSON as Python's `json.dumps(value, sort_keys=True)` writes it, byte for byte.
//!
//! The chain signs text, not values, so its verifiers must agree on every space. This form is the one
//! of the chain that ours is to be read beside: keys sorted, `", "` and `": "` between things, and
//! everything outside ASCII as `\u` escapes.

use serde_json::Value;

pub(super) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) if number.is_f64() => string(&number.to_string(), out),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // Whether the map itself sorts depends on what other crates ask of `serde_json`.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| name.as_str());
            out.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                separate(index, out);
                string(name, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push_str(", ");
    }
}

pub(super) fn string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected text is what Python 3.11 prints.
    #[test]
    fn it_is_written_as_python_writes_it() {
        let value = json!({
            "z": [1, -2, true, false, null, {}, []],
            "a": "quote \" slash \\ / tab \t line \n \r \u{8} \u{c} bell \u{7} del \u{7f}",
            "B": "ü € 😀 \u{2028}",
            "number": 18_446_744_073_709_551_615_u64,
        });
        let mut out = String::new();
        write(&value, &mut out);
        assert_eq!(
            out,
            concat!(
                r#"{"B": "\u00fc \u20ac \ud83d\ude00 \u2028", "#,
                r#""a": "quote \" slash \\ / tab \t line \n \r \b \f bell \u0007 del \u007f", "#,
                r#""number": 18446744073709551615, "z": [1, -2, true, false, null, {}, []]}"#
            )
        );
    }

    /// Python and Rust print fractions differently, so none is printed.
    #[test]
    fn a_fraction_becomes_text() {
        let mut out = String::new();
        write(&json!([1.5]), &mut out);
        assert_eq!(out, r#"["1.5"]"#);
    }
}
