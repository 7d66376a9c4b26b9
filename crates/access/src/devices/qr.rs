//! The QR code of an address, as rows of `0` and `1`. Whoever draws it adds the quiet zone of four modules.

use qrcodegen::{QrCode, QrCodeEcc};

/// Nothing if the text is too long for any code.
pub(crate) fn rows(text: &str) -> Vec<String> {
    let Ok(code) = QrCode::encode_text(text, QrCodeEcc::Medium) else { return Vec::new() };
    let row = |y| (0..code.size()).map(|x| if code.get_module(x, y) { '1' } else { '0' }).collect();
    (0..code.size()).map(row).collect()
}
