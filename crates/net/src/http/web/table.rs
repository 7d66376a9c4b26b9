//! The files of the app. Made by `cargo xtask web`.

use super::File;

#[rustfmt::skip]
pub(super) static FILES: [File; 31] = [
    File::new("account.js", include_bytes!("../../../../../web/dist/account.js")),
    File::new("app.js", include_bytes!("../../../../../web/dist/app.js")),
    File::new("apple-touch-icon.png", include_bytes!("../../../../../web/dist/apple-touch-icon.png")),
    File::new("badge.png", include_bytes!("../../../../../web/dist/badge.png")),
    File::new("base.js", include_bytes!("../../../../../web/dist/base.js")),
    File::new("changes.css", include_bytes!("../../../../../web/dist/changes.css")),
    File::new("changes.js", include_bytes!("../../../../../web/dist/changes.js")),
    File::new("doors.css", include_bytes!("../../../../../web/dist/doors.css")),
    File::new("doors.js", include_bytes!("../../../../../web/dist/doors.js")),
    File::new("enter.js", include_bytes!("../../../../../web/dist/enter.js")),
    File::new("highlight.worker.js", include_bytes!("../../../../../web/dist/highlight.worker.js")),
    File::new("hub.css", include_bytes!("../../../../../web/dist/hub.css")),
    File::new("hub.js", include_bytes!("../../../../../web/dist/hub.js")),
    File::new("icon-192.png", include_bytes!("../../../../../web/dist/icon-192.png")),
    File::new("icon-512.png", include_bytes!("../../../../../web/dist/icon-512.png")),
    File::new("icon-maskable.png", include_bytes!("../../../../../web/dist/icon-maskable.png")),
    File::new("icon.svg", include_bytes!("../../../../../web/dist/icon.svg")),
    File::new("index.css", include_bytes!("../../../../../web/dist/index.css")),
    File::new("index.html", include_bytes!("../../../../../web/dist/index.html")),
    File::new("manifest.webmanifest", include_bytes!("../../../../../web/dist/manifest.webmanifest")),
    File::new("markdown.js", include_bytes!("../../../../../web/dist/markdown.js")),
    File::new("pair.js", include_bytes!("../../../../../web/dist/pair.js")),
    File::new("parts.css", include_bytes!("../../../../../web/dist/parts.css")),
    File::new("parts.js", include_bytes!("../../../../../web/dist/parts.js")),
    File::new("push.js", include_bytes!("../../../../../web/dist/push.js")),
    File::new("rolldown-runtime.js", include_bytes!("../../../../../web/dist/rolldown-runtime.js")),
    File::new("seal-here.js", include_bytes!("../../../../../web/dist/seal-here.js")),
    File::new("settings.js", include_bytes!("../../../../../web/dist/settings.js")),
    File::new("share.js", include_bytes!("../../../../../web/dist/share.js")),
    File::new("signin.js", include_bytes!("../../../../../web/dist/signin.js")),
    File::new("sw.js", include_bytes!("../../../../../web/dist/sw.js")),
];
