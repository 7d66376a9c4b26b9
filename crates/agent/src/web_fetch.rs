//! Fetches web pages, for prompts that link to them and for the `fetch` tool.
//!
//! An address may come from a page that the model has read, and may refer to this machine, the local network,
//! or a cloud's metadata service. So an address is checked before anything is sent: the host name is resolved
//! once, by us, and the connection is made to exactly the addresses that were checked. There is no second
//! lookup that could give another answer. Proxies of the environment are not used, because they would resolve
//! the name themselves.
//!
//! **Invariant:** no byte is sent to an address that [`WebAccess::allows`] refuses.
//! **Invariant:** a page is limited in bytes, in time, and in redirects.

mod html_to_text;
mod public_addresses;

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::BoxFuture;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};

use crate::certificate_refusal;

pub use public_addresses::is_public;

pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 5;

/// How host names are resolved, and which addresses may be connected to.
#[derive(Clone)]
pub struct WebAccess {
    pub names: Arc<dyn HostResolver>,
    pub allows: fn(IpAddr) -> bool,
}

/// Resolves a host name to addresses.
pub trait HostResolver: Send + Sync + 'static {
    fn find(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

impl Default for WebAccess {
    /// The system resolver, restricted to public addresses.
    fn default() -> Self {
        Self { names: Arc::new(SystemResolver), allows: is_public }
    }
}

struct SystemResolver;

impl HostResolver for SystemResolver {
    fn find(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// What a page is fetched for: which content types and redirects are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchPurpose {
    /// A link in a prompt: only text, and no redirects.
    Link,
    /// A page that the model requested: text, JSON and XML, with redirects on the same host.
    Page,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WebPage {
    /// Its final address.
    pub(crate) address: String,
    pub(crate) text: String,
}

/// Why a page could not be fetched.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    #[error("its address is malformed")]
    Malformed,
    #[error("only http:// and https:// addresses are read")]
    Scheme,
    #[error("its address contains a user name or a password, which would be sent")]
    Credentials,
    #[error("{0} is not a public address, and only public ones are read")]
    Private(IpAddr),
    #[error("host {0} not found")]
    Unknown(String),
    #[error("it redirects to {0}")]
    Elsewhere(String),
    #[error("too many redirects")]
    TooManyRedirects,
    #[error("the server answered {0}")]
    Status(u16),
    #[error("it is {0}, which is not text")]
    Kind(String),
    #[error("it is larger than {} MiB", PAGE_BYTES_MAX >> 20)]
    TooLarge,
    #[error("reading it took longer than {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
}

pub(crate) struct WebClient {
    reach: WebAccess,
    /// Created when first needed, because it reads the system's certificates.
    client: OnceLock<Result<Client, String>>,
    timeout: Duration,
}

impl WebClient {
    pub(crate) fn new(reach: WebAccess) -> Self {
        Self { reach, client: OnceLock::new(), timeout: TIMEOUT }
    }

    pub(crate) async fn read(&self, address: &str, kind: FetchPurpose) -> Result<WebPage, WebError> {
        let url = parse(address)?;
        match tokio::time::timeout(self.timeout, self.follow(url, kind)).await {
            Ok(page) => page,
            Err(_) => Err(WebError::TooSlow),
        }
    }

    async fn follow(&self, mut url: Url, kind: FetchPurpose) -> Result<WebPage, WebError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.get(&url).await?;
            let Some(next) = redirect_target(&url, &response)? else {
                return read_page(url, response, kind).await;
            };
            if kind == FetchPurpose::Link || !same_host(&url, &next) {
                return Err(WebError::Elsewhere(next.into()));
            }
            url = next;
        }
        Err(WebError::TooManyRedirects)
    }

    async fn get(&self, url: &Url) -> Result<Response, WebError> {
        // A literal IP address is never resolved, so it is checked here.
        if let Some(address) = literal(url)
            && !(self.reach.allows)(address)
        {
            return Err(WebError::Private(address));
        }
        let accept = "text/html, text/*;q=0.9, application/json;q=0.8, application/xml;q=0.8";
        let sent = self.client()?.get(url.clone()).header(ACCEPT, accept).send().await;
        let response = sent.map_err(|error| fetch_error(&error, url))?;
        // Checked before connecting; checked again here, and a response without a peer address is refused.
        match response.remote_addr().map(|address| address.ip()) {
            Some(address) if (self.reach.allows)(address) => Ok(response),
            Some(address) => Err(WebError::Private(address)),
            None => Err(WebError::Unreachable("the address that answered is not known".into())),
        }
    }

    fn client(&self) -> Result<&Client, WebError> {
        let client = self.client.get_or_init(|| client(&self.reach).map_err(|error| error.to_string()));
        client.as_ref().map_err(|error| WebError::Unreachable(error.clone()))
    }
}

fn client(reach: &WebAccess) -> reqwest::Result<Client> {
    crate::model::use_ring();
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(CheckedResolver(reach.clone())))
        .pool_max_idle_per_host(0)
        .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(TIMEOUT)
        .build()
}

/// Resolves names and rejects addresses that must not be connected to. One such address rejects them all:
/// nobody has both a public and a private one by accident.
struct CheckedResolver(WebAccess);

/// A resolver error, passed through the client's errors.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error("not a public address")]
    Private(IpAddr),
    #[error("not found")]
    Unknown,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, allows) = (self.0.names.find(name.as_str()), self.0.allows);
        Box::pin(async move {
            let found = found.await.unwrap_or_default();
            let refused = found.iter().find(|address| !allows(**address));
            if let Some(address) = refused {
                return Err(LookupError::Private(*address).into());
            }
            if found.is_empty() {
                return Err(LookupError::Unknown.into());
            }
            // The port is taken from the URL.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Parses an address. All notations of an IP address are normalised by this.
pub(crate) fn parse(address: &str) -> Result<Url, WebError> {
    let url = Url::parse(address.trim()).map_err(|_| WebError::Malformed)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(WebError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(WebError::Credentials);
    }
    url.host_str().is_some().then_some(url).ok_or(WebError::Malformed)
}

fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The target of a redirect response.
fn redirect_target(url: &Url, response: &Response) -> Result<Option<Url>, WebError> {
    let status = response.status();
    if status.is_success() {
        return Ok(None);
    }
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    match location {
        Some(location) if status.is_redirection() => {
            let next = url.join(location).map_err(|_| WebError::Malformed)?;
            parse(next.as_str()).map(Some)
        }
        _ => Err(WebError::Status(status.as_u16())),
    }
}

/// Whether it is the same host, and not less secure.
fn same_host(from: &Url, to: &Url) -> bool {
    let usual = |url: &Url| url.port().is_none();
    let safe = from.scheme() == to.scheme() || to.scheme() == "https";
    let port = from.port() == to.port() || (usual(from) && usual(to));
    from.host_str() == to.host_str() && safe && port
}

async fn read_page(url: Url, mut response: Response, kind: FetchPurpose) -> Result<WebPage, WebError> {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let header = header.to_ascii_lowercase();
    let media_type = header.split(';').next().unwrap_or_default().trim().to_owned();
    if !is_text(&media_type, kind) {
        return Err(WebError::Kind(if media_type.is_empty() {
            "of no known kind".into()
        } else {
            media_type
        }));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| fetch_error(&error, &url))? {
        if bytes.len() + piece.len() > PAGE_BYTES_MAX {
            return Err(WebError::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    if bytes.contains(&0) {
        return Err(WebError::Kind("binary".into()));
    }
    let text = decoded(bytes, &header);
    let text = match media_type.as_str() {
        "text/html" | "application/xhtml+xml" => html_to_text::text(&text),
        _ => text,
    };
    Ok(WebPage { address: url.into(), text })
}

fn is_text(media_type: &str, kind: FetchPurpose) -> bool {
    let structured = matches!(media_type, "application/json" | "application/xml")
        || (media_type.starts_with("application/")
            && (media_type.ends_with("+json") || media_type.ends_with("+xml")));
    media_type.starts_with("text/") || (kind == FetchPurpose::Page && structured)
}

fn decoded(bytes: Vec<u8>, header: &str) -> String {
    // In Latin-1 every byte is the code point.
    if ["iso-8859-1", "latin1", "windows-1252"].iter().any(|name| header.contains(name)) {
        return bytes.into_iter().map(char::from).collect();
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn fetch_error(error: &reqwest::Error, url: &Url) -> WebError {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = String::new();
    while let Some(inner) = source {
        match inner.downcast_ref::<LookupError>() {
            Some(LookupError::Private(address)) => return WebError::Private(*address),
            Some(LookupError::Unknown) => {
                return WebError::Unknown(url.host_str().unwrap_or_default().into());
            }
            None => {
                last = certificate_refusal::refusal_reason(inner)
                    .map_or_else(|| inner.to_string(), str::to_owned)
            }
        }
        source = inner.source();
    }
    if error.is_timeout() { WebError::TooSlow } else { WebError::Unreachable(last) }
}

#[cfg(test)]
mod tests;
