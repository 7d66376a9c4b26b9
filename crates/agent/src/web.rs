//! Reading pages of the web, for prompts that link to them and for the tool that fetches them.
//!
//! Whoever names an address may be a page that the model has read, and may mean this machine, the
//! network around it, or the cloud's own services. So an address is checked before anything is sent:
//! names are looked up once, by us, and the connection is made to exactly what was looked up and
//! checked. There is no second lookup whose answer could be another. Proxies of the environment are not
//! used: they would do the lookup, out of our sight.
//!
//! **Invariant:** no byte goes to an address that [`WebReach::allows`] refuses.
//! **Invariant:** a page has an end: in bytes, in time, and in redirects.

mod addresses;
mod readable;

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::BoxFuture;
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};

use crate::certificate;

pub use addresses::is_public;

pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const REDIRECTS_MAX: usize = 5;

/// How names are found, and which addresses may be connected to.
#[derive(Clone)]
pub struct WebReach {
    pub names: Arc<dyn Names>,
    pub allows: fn(IpAddr) -> bool,
}

/// Finds the addresses of a host.
pub trait Names: Send + Sync + 'static {
    fn find(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

impl Default for WebReach {
    /// What this machine's own lookup finds, as long as it is public.
    fn default() -> Self {
        Self { names: Arc::new(SystemNames), allows: is_public }
    }
}

struct SystemNames;

impl Names for SystemNames {
    fn find(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// What is taken, and how far it may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A link of a prompt: text where it says it is, nothing else.
    Link,
    /// A page that the model asked for: text, JSON and XML, also elsewhere on the same host.
    Page,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Where it was found.
    pub(crate) address: String,
    pub(crate) text: String,
}

/// Why there is no page.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebError {
    #[error("its address is malformed")]
    Malformed,
    #[error("only http:// and https:// addresses are read")]
    Scheme,
    #[error("its address holds a user name or a password, which would be sent")]
    Credentials,
    #[error("{0} is not a public address, and only public ones are read")]
    Private(IpAddr),
    #[error("{0} cannot be found")]
    Unknown(String),
    #[error("it leads on to {0}")]
    Elsewhere(String),
    #[error("it leads on and on")]
    TooManyRedirects,
    #[error("the server answered {0}")]
    Status(u16),
    #[error("it is {0}, which is no text")]
    Kind(String),
    #[error("it is larger than {} MiB", PAGE_BYTES_MAX >> 20)]
    TooLarge,
    #[error("reading it took longer than {} s", TIMEOUT.as_secs())]
    TooSlow,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
}

pub(crate) struct Web {
    reach: WebReach,
    /// Made when it is first needed: it reads the machine's certificates.
    client: OnceLock<Result<Client, String>>,
    patience: Duration,
}

impl Web {
    pub(crate) fn new(reach: WebReach) -> Self {
        Self { reach, client: OnceLock::new(), patience: TIMEOUT }
    }

    pub(crate) async fn read(&self, address: &str, wish: Wish) -> Result<Page, WebError> {
        let url = parse(address)?;
        match tokio::time::timeout(self.patience, self.follow(url, wish)).await {
            Ok(page) => page,
            Err(_) => Err(WebError::TooSlow),
        }
    }

    async fn follow(&self, mut url: Url, wish: Wish) -> Result<Page, WebError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.get(&url).await?;
            let Some(next) = led_on(&url, &response)? else { return taken(url, response, wish).await };
            if wish == Wish::Link || !same_host(&url, &next) {
                return Err(WebError::Elsewhere(next.into()));
            }
            url = next;
        }
        Err(WebError::TooManyRedirects)
    }

    async fn get(&self, url: &Url) -> Result<Response, WebError> {
        // An address that is written down is never looked up.
        if let Some(address) = literal(url)
            && !(self.reach.allows)(address)
        {
            return Err(WebError::Private(address));
        }
        let accept = "text/html, text/*;q=0.9, application/json;q=0.8, application/xml;q=0.8";
        let sent = self.client()?.get(url.clone()).header(ACCEPT, accept).send().await;
        let response = sent.map_err(|error| why(&error, url))?;
        // It was checked before; whoever cannot say where the answer comes from is not believed.
        match response.remote_addr().map(|address| address.ip()) {
            Some(address) if (self.reach.allows)(address) => Ok(response),
            Some(address) => Err(WebError::Private(address)),
            None => Err(WebError::Unreachable("nobody knows who answered".into())),
        }
    }

    fn client(&self) -> Result<&Client, WebError> {
        let client = self.client.get_or_init(|| client(&self.reach).map_err(|error| error.to_string()));
        client.as_ref().map_err(|error| WebError::Unreachable(error.clone()))
    }
}

fn client(reach: &WebReach) -> reqwest::Result<Client> {
    crate::model::use_ring();
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(Arc::new(Checked(reach.clone())))
        .pool_max_idle_per_host(0)
        .user_agent(concat!("ropewalk/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(TIMEOUT)
        .build()
}

/// Finds names, and lets through only what may be connected to. One bad address among good ones spoils
/// them all: nobody has a public and a private one by accident.
struct Checked(WebReach);

/// Carried through the client's own errors.
#[derive(Debug, thiserror::Error)]
enum Lookup {
    #[error("not a public address")]
    Private(IpAddr),
    #[error("not found")]
    Unknown,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, allows) = (self.0.names.find(name.as_str()), self.0.allows);
        Box::pin(async move {
            let found = found.await.unwrap_or_default();
            let refused = found.iter().find(|address| !allows(**address));
            if let Some(address) = refused {
                return Err(Lookup::Private(*address).into());
            }
            if found.is_empty() {
                return Err(Lookup::Unknown.into());
            }
            // The port is the one of the page's address.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// An address as it will be connected to. However a number is written, it comes out of this as one.
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

/// Where the server says that the page is instead.
fn led_on(url: &Url, response: &Response) -> Result<Option<Url>, WebError> {
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

/// The same server, at least as safe.
fn same_host(from: &Url, to: &Url) -> bool {
    let usual = |url: &Url| url.port().is_none();
    let safe = from.scheme() == to.scheme() || to.scheme() == "https";
    let port = from.port() == to.port() || (usual(from) && usual(to));
    from.host_str() == to.host_str() && safe && port
}

async fn taken(url: Url, mut response: Response, wish: Wish) -> Result<Page, WebError> {
    let header = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let header = header.to_ascii_lowercase();
    let kind = header.split(';').next().unwrap_or_default().trim().to_owned();
    if !is_text(&kind, wish) {
        return Err(WebError::Kind(if kind.is_empty() { "of no known kind".into() } else { kind }));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| why(&error, &url))? {
        if bytes.len() + piece.len() > PAGE_BYTES_MAX {
            return Err(WebError::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    if bytes.contains(&0) {
        return Err(WebError::Kind("binary".into()));
    }
    let text = decoded(bytes, &header);
    let text = match kind.as_str() {
        "text/html" | "application/xhtml+xml" => readable::text(&text),
        _ => text,
    };
    Ok(Page { address: url.into(), text })
}

fn is_text(kind: &str, wish: Wish) -> bool {
    let structured = matches!(kind, "application/json" | "application/xml")
        || (kind.starts_with("application/") && (kind.ends_with("+json") || kind.ends_with("+xml")));
    kind.starts_with("text/") || (wish == Wish::Page && structured)
}

fn decoded(bytes: Vec<u8>, header: &str) -> String {
    // In Latin 1 every byte is the character of its number.
    if ["iso-8859-1", "latin1", "windows-1252"].iter().any(|name| header.contains(name)) {
        return bytes.into_iter().map(char::from).collect();
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

fn why(error: &reqwest::Error, url: &Url) -> WebError {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = String::new();
    while let Some(inner) = source {
        match inner.downcast_ref::<Lookup>() {
            Some(Lookup::Private(address)) => return WebError::Private(*address),
            Some(Lookup::Unknown) => return WebError::Unknown(url.host_str().unwrap_or_default().into()),
            None => last = certificate::refused(inner).map_or_else(|| inner.to_string(), str::to_owned),
        }
        source = inner.source();
    }
    if error.is_timeout() { WebError::TooSlow } else { WebError::Unreachable(last) }
}

#[cfg(test)]
mod tests;
