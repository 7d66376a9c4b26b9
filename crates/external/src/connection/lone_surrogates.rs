//! Replaces lone surrogates (halves of characters) in what an agent writes.
//!
//! Some programs cut a text in the middle of a character and write the half as `\ud83d`. JSON allows that,
//! but no Rust string can hold it and most parsers reject the whole message. So each half is replaced by
//! `\ufffd`, which has the same length.

/// Marks every half that stands alone.
pub(super) fn replace_lone_surrogates(line: &mut [u8]) {
    let mut at = 0;
    while let Some(found) = line.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        at += match (unit(line, at), unit(line, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                line[at + 2..at + 6].copy_from_slice(b"fffd");
                6
            }
            // Any other escape: a backslash after a backslash begins none.
            (_, _) => 2,
        };
    }
}

/// The number in an escape like `\u00e9`, if one begins here.
fn unit(line: &[u8], at: usize) -> Option<u32> {
    let escape = line.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_that_stand_alone_are_marked() {
        for (written, mended) in [
            (r#""a \ud800 b""#, r#""a \ufffd b""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud800 \u00e9 \n""#, r#""\\ud800 \u00e9 \n""#),
            (r#""\ud8"#, r#""\ud8"#),
            ("\\", "\\"),
        ] {
            let mut line = written.as_bytes().to_vec();
            replace_lone_surrogates(&mut line);
            assert_eq!(String::from_utf8(line).unwrap(), mended, "{written}");
        }
    }
}
