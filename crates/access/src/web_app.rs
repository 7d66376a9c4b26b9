//! The web app: a page and the files it needs, all of them inside this program.
//!
//! Everybody may have them, because they say nothing about anybody. Which page is shown for an address
//! is decided in the browser, so all of its addresses get the same page. The files have fixed names; a
//! browser asks each time whether the one it has is still right.

mod embedded_files;

use std::io::Write;
use std::sync::OnceLock;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Digest;
use embedded_files::FILES;

const PAGE: &str = "index.html";

/// Addresses inside the app; with what is below them, if they end in a slash.
const PLACES: [&str; 10] =
    ["/", "/inbox", "/new", "/pair", "/login", "/settings", "/settings/", "/s/", "/p/", "/index.html"];

/// Nothing from elsewhere, nothing written into the page, nothing made of strings: what an agent writes
/// can be shown and nothing else. The one policy is for the addresses of our own workers.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ropewalk";

const HEADERS: [(HeaderName, &str); 6] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-cache"),
    (REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
];

/// A file of the app.
struct File {
    /// Without the first slash.
    name: &'static str,
    bytes: &'static [u8],
    encoded: OnceLock<EncodedFile>,
}

/// What is made of a file when it is first asked for.
struct EncodedFile {
    mark: HeaderValue,
    /// Nothing, if it is not smaller.
    gzip: Option<Bytes>,
}

impl File {
    const fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, bytes, encoded: OnceLock::new() }
    }

    fn encoded(&self) -> &EncodedFile {
        self.encoded.get_or_init(|| {
            let mut digest = Digest::of_bytes(self.bytes).hex();
            digest.truncate(32);
            // Weak, because it stands for the file in every encoding.
            let mark = HeaderValue::from_str(&format!("W/\"{digest}\""));
            let mark = mark.unwrap_or(HeaderValue::from_static("W/\"\""));
            EncodedFile { mark, gzip: gzip(self.bytes).filter(|encoded| encoded.len() < self.bytes.len()) }
        })
    }

    fn kind(&self) -> &'static str {
        match self.name.rsplit('.').next().unwrap_or_default() {
            "html" => "text/html; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "webmanifest" => "application/manifest+json",
            "json" => "application/json",
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "ico" => "image/x-icon",
            "woff2" => "font/woff2",
            "txt" => "text/plain; charset=utf-8",
            _ => "application/octet-stream",
        }
    }
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether everybody may have what is at this address.
pub fn is_public(path: &str) -> bool {
    is_place(path) || file(path).is_some()
}

fn is_place(path: &str) -> bool {
    let below = |place: &&str| place.len() > 1 && place.ends_with('/') && path.starts_with(*place);
    PLACES.iter().any(|place| *place == path || below(place))
}

fn file(path: &str) -> Option<&'static File> {
    let name = path.strip_prefix('/')?;
    FILES.iter().find(|file| file.name == name)
}

/// The page at all of its addresses, and its files.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for place in PLACES {
        let route = if place.len() > 1 && place.ends_with('/') {
            format!("{place}{{*rest}}")
        } else {
            place.to_owned()
        };
        router = router.route(&route, get(serve));
    }
    for file in FILES.iter().filter(|file| file.name != PAGE) {
        router = router.route(&format!("/{}", file.name), get(serve));
    }
    router
}

async fn serve(request: Request) -> Response {
    let path = request.uri().path();
    let page = || FILES.iter().find(|file| file.name == PAGE);
    let Some(file) = file(path).or_else(page) else { return super::Refusal::not_found().into_response() };
    answer(file, request.headers())
}

fn answer(file: &File, asked: &HeaderMap) -> Response {
    let encoded = file.encoded();
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let known = known
        .flat_map(|value| value.split(','))
        .any(|mark| mark.trim().as_bytes() == encoded.mark.as_bytes());
    let gzip = encoded.gzip.as_ref().filter(|_| takes_gzip(asked));
    let body = match gzip {
        _ if known => Body::empty(),
        Some(gzip) => Body::from(gzip.clone()),
        None => Body::from(file.bytes),
    };
    let mut response = Response::new(body);
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(ETAG, encoded.mark.clone());
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind()));
    if gzip.is_some() && !known {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A weight of nothing means no.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let values = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        named && !parts.any(|weight| matches!(weight, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_table_has_exactly_the_files_of_the_app() {
        let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let mut names = Vec::new();
        collect(&dist, "", &mut names);
        names.sort();
        let listed: Vec<_> = FILES.iter().map(|file| file.name).collect();
        assert_eq!(listed, names, "run `cargo xtask web`");
        assert!(names.iter().any(|name| name == PAGE));
    }

    fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true => collect(&entry.path(), &format!("{name}/"), names),
                false => names.push(name),
            }
        }
    }

    #[test]
    fn only_the_places_of_the_app_and_its_files_are_for_everybody() {
        for public in ["/", "/s/a", "/s/a/changes/b", "/inbox", "/settings/devices", "/app.js", "/index.html"]
        {
            assert!(is_public(public), "{public}");
        }
        for other in [
            "/session",
            "/session/a",
            "/sessions",
            "/acp",
            "/ui/socket",
            "/ui/enter",
            "/metrics",
            "/s",
            "//",
            "/app.js/",
            "/x.js",
            "",
        ] {
            assert!(!is_public(other), "{other}");
        }
    }

    #[test]
    fn a_file_is_packed_for_those_who_take_it_and_sent_once() {
        let page = FILES.iter().find(|file| file.name == "app.js").unwrap();
        let asked = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
            answer(page, &headers)
        };
        let plain = asked(ACCEPT_ENCODING, "br, gzip;q=0");
        assert!(plain.headers().get(CONTENT_ENCODING).is_none());
        let encoded = asked(ACCEPT_ENCODING, "deflate, GZIP;q=0.5");
        assert_eq!(encoded.headers()[CONTENT_ENCODING], "gzip");
        let mark = encoded.headers()[ETAG].to_str().unwrap().to_owned();
        let again = asked(IF_NONE_MATCH, &format!("\"x\", {mark}"));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asked(IF_NONE_MATCH, "W/\"other\"").status(), StatusCode::OK);
    }
}
