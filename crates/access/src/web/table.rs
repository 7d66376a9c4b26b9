//! The files of the app. Made by `cargo xtask web`.

use super::File;

#[rustfmt::skip]
pub(super) static FILES: [File; 31] = [
    File::new("account.js", include_bytes!("../../web/account.js")),
    File::new("app.js", include_bytes!("../../web/app.js")),
    File::new("apple-touch-icon.png", include_bytes!("../../web/apple-touch-icon.png")),
    File::new("badge.png", include_bytes!("../../web/badge.png")),
    File::new("base.js", include_bytes!("../../web/base.js")),
    File::new("changes.css", include_bytes!("../../web/changes.css")),
    File::new("changes.js", include_bytes!("../../web/changes.js")),
    File::new("doors.css", include_bytes!("../../web/doors.css")),
    File::new("doors.js", include_bytes!("../../web/doors.js")),
    File::new("enter.js", include_bytes!("../../web/enter.js")),
    File::new("highlight.worker.js", include_bytes!("../../web/highlight.worker.js")),
    File::new("hub.css", include_bytes!("../../web/hub.css")),
    File::new("hub.js", include_bytes!("../../web/hub.js")),
    File::new("icon-192.png", include_bytes!("../../web/icon-192.png")),
    File::new("icon-512.png", include_bytes!("../../web/icon-512.png")),
    File::new("icon-maskable.png", include_bytes!("../../web/icon-maskable.png")),
    File::new("icon.svg", include_bytes!("../../web/icon.svg")),
    File::new("index.css", include_bytes!("../../web/index.css")),
    File::new("index.html", include_bytes!("../../web/index.html")),
    File::new("manifest.webmanifest", include_bytes!("../../web/manifest.webmanifest")),
    File::new("markdown.js", include_bytes!("../../web/markdown.js")),
    File::new("pair.js", include_bytes!("../../web/pair.js")),
    File::new("parts.css", include_bytes!("../../web/parts.css")),
    File::new("parts.js", include_bytes!("../../web/parts.js")),
    File::new("push.js", include_bytes!("../../web/push.js")),
    File::new("rolldown-runtime.js", include_bytes!("../../web/rolldown-runtime.js")),
    File::new("seal-here.js", include_bytes!("../../web/seal-here.js")),
    File::new("settings.js", include_bytes!("../../web/settings.js")),
    File::new("share.js", include_bytes!("../../web/share.js")),
    File::new("signin.js", include_bytes!("../../web/signin.js")),
    File::new("sw.js", include_bytes!("../../web/sw.js")),
];
