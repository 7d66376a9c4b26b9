//! How a value that is known may be written: as it is, in base64, in hexadecimal digits.
//!
//! In base64 three bytes are four letters, so a value inside a longer text is written in one of three ways,
//! by how many bytes stand before it. Only letters that the value alone decides are looked for: at its ends up
//! to four bits are in letters that its neighbours share, and stay.
//!
//! What escapes single characters (percent signs, JSON) is not written out here but undone, see `views`.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// One way to write a value.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    pub(super) text: Vec<u8>,
    /// Never at the beginning of a word, because letters of other bytes stand before it.
    pub(super) inside: bool,
}

/// All forms of a value.
pub(super) fn forms(value: &str) -> Vec<Form> {
    let mut whole = vec![value.as_bytes().to_vec()];
    if value.contains(' ') {
        // As forms on the web send spaces.
        whole.push(value.replace(' ', "+").into_bytes());
    }
    whole.push(hex(value, b"0123456789abcdef"));
    whole.push(hex(value, b"0123456789ABCDEF"));
    let mut forms: Vec<_> = whole.into_iter().map(|text| Form { text, inside: false }).collect();
    for alphabet in [STANDARD, URL_SAFE] {
        for bytes_before in 0..3 {
            let texts = base64(value.as_bytes(), alphabet, bytes_before);
            forms.extend(texts.into_iter().map(|text| Form { text, inside: bytes_before > 0 }));
        }
    }
    forms
}

fn hex(value: &str, digits: &[u8; 16]) -> Vec<u8> {
    value.bytes().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect()
}

/// The value with so many bytes before it, and whatever behind: the letters that are its own, then also the
/// last letter and the padding that follow if the text ends with it.
fn base64(value: &[u8], alphabet: &[u8; 64], bytes_before: usize) -> Vec<Vec<u8>> {
    let shared_bits = [0, 4, 2][bytes_before % 3];
    let bits = value.len() * 8 - shared_bits;
    let letter = |index: usize| {
        let six = (0..6).fold(0, |six, bit| {
            let at = shared_bits + index * 6 + bit;
            let set = value.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
            six << 1 | usize::from(set)
        });
        alphabet[six]
    };
    let own: Vec<u8> = (0..bits / 6).map(letter).collect();
    let mut forms = vec![own.clone()];
    if !bits.is_multiple_of(6) {
        let mut ended = own;
        ended.push(letter(bits / 6));
        forms.push(ended.clone());
        for _ in 0..(6 - bits % 6) / 2 {
            ended.push(b'=');
            forms.push(ended.clone());
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(forms: Vec<Vec<u8>>) -> Vec<String> {
        forms.into_iter().map(|form| String::from_utf8(form).unwrap()).collect()
    }

    #[test]
    fn base64_is_written_in_three_ways_and_ends_with_its_padding() {
        // `printf 'Zq7?>' | base64`, with `-` and with `--` before it.
        assert_eq!(texts(base64(b"Zq7?>", STANDARD, 0)), ["WnE3Pz", "WnE3Pz4", "WnE3Pz4="]);
        assert_eq!(texts(base64(b"Zq7?>", URL_SAFE, 0)), ["WnE3Pz", "WnE3Pz4", "WnE3Pz4="]);
        assert_eq!(texts(base64(b"Zq7?>", STANDARD, 1)), ["pxNz8+"]);
        assert_eq!(texts(base64(b"Zq7?>", URL_SAFE, 1)), ["pxNz8-"]);
        assert_eq!(texts(base64(b"Zq7?>", STANDARD, 2)), ["acTc/P", "acTc/Pg", "acTc/Pg=", "acTc/Pg=="]);
    }
}
