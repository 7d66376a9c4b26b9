//! The files of the app. Made by `cargo xtask web`.

use super::File;

#[rustfmt::skip]
pub(super) static FILES: [File; 31] = [
    File::new("app.js", include_bytes!("../../web/app.js")),
    File::new("apple-touch-icon.png", include_bytes!("../../web/apple-touch-icon.png")),
    File::new("badge.png", include_bytes!("../../web/badge.png")),
    File::new("base.js", include_bytes!("../../web/base.js")),
    File::new("browser-sealer.js", include_bytes!("../../web/browser-sealer.js")),
    File::new("changes.css", include_bytes!("../../web/changes.css")),
    File::new("changes.js", include_bytes!("../../web/changes.js")),
    File::new("controls.css", include_bytes!("../../web/controls.css")),
    File::new("controls.js", include_bytes!("../../web/controls.js")),
    File::new("enter-code.js", include_bytes!("../../web/enter-code.js")),
    File::new("highlight.worker.js", include_bytes!("../../web/highlight.worker.js")),
    File::new("hub-settings.js", include_bytes!("../../web/hub-settings.js")),
    File::new("hub.css", include_bytes!("../../web/hub.css")),
    File::new("hub.js", include_bytes!("../../web/hub.js")),
    File::new("icon-192.png", include_bytes!("../../web/icon-192.png")),
    File::new("icon-512.png", include_bytes!("../../web/icon-512.png")),
    File::new("icon-maskable.png", include_bytes!("../../web/icon-maskable.png")),
    File::new("icon.svg", include_bytes!("../../web/icon.svg")),
    File::new("index.css", include_bytes!("../../web/index.css")),
    File::new("index.html", include_bytes!("../../web/index.html")),
    File::new("manifest.webmanifest", include_bytes!("../../web/manifest.webmanifest")),
    File::new("markdown-bundle.js", include_bytes!("../../web/markdown-bundle.js")),
    File::new("pair-machine.js", include_bytes!("../../web/pair-machine.js")),
    File::new("pairing.css", include_bytes!("../../web/pairing.css")),
    File::new("pairing.js", include_bytes!("../../web/pairing.js")),
    File::new("push.js", include_bytes!("../../web/push.js")),
    File::new("rolldown-runtime.js", include_bytes!("../../web/rolldown-runtime.js")),
    File::new("settings.js", include_bytes!("../../web/settings.js")),
    File::new("share-links.js", include_bytes!("../../web/share-links.js")),
    File::new("sign-in.js", include_bytes!("../../web/sign-in.js")),
    File::new("sw.js", include_bytes!("../../web/sw.js")),
];
