//! The encodings in which a known value is searched for: plain, base64 and hexadecimal.
//!
//! In base64 three bytes become four letters, so a value inside a longer text is encoded in one of three ways,
//! depending on how many bytes stand before it. Only letters that the value alone determines are searched for: at each
//! end up to four bits are in letters that the value shares with its neighbours, and those letters stay.
//!
//! Escapes of single characters (percent signs, JSON) are not listed here. They are undone while reading, see
//! `escapes`.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// One encoding of a value.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EncodedForm {
    pub(super) text: Vec<u8>,
    /// It never begins a word, because letters of other bytes stand before it.
    pub(super) mid_word: bool,
}

/// All encodings of a value.
pub(super) fn encodings_of(value: &str) -> Vec<EncodedForm> {
    let mut whole = vec![value.as_bytes().to_vec()];
    if value.contains(' ') {
        // HTML forms send spaces this way.
        whole.push(value.replace(' ', "+").into_bytes());
    }
    whole.push(hex(value, b"0123456789abcdef"));
    whole.push(hex(value, b"0123456789ABCDEF"));
    let mut forms: Vec<_> = whole.into_iter().map(|text| EncodedForm { text, mid_word: false }).collect();
    for alphabet in [STANDARD, URL_SAFE] {
        for bytes_before in 0..3 {
            let texts = base64(value.as_bytes(), alphabet, bytes_before);
            forms.extend(texts.into_iter().map(|text| EncodedForm { text, mid_word: bytes_before > 0 }));
        }
    }
    forms
}

fn hex(value: &str, digits: &[u8; 16]) -> Vec<u8> {
    value.bytes().flat_map(|byte| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]).collect()
}

/// The base64 letters of a value that has this many bytes before it: first the letters that the value alone
/// determines, then the same with the last letter and the padding that follow if the text ends with the value.
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
