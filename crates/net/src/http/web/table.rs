//! The files of the app. Made by the test of `web.rs`.

use super::File;

#[rustfmt::skip]
pub(super) static FILES: [File; 3] = [
    File::new("app.js", include_bytes!("../../../../../web/dist/app.js")),
    File::new("index.css", include_bytes!("../../../../../web/dist/index.css")),
    File::new("index.html", include_bytes!("../../../../../web/dist/index.html")),
];
