//! What the routers do not say about each route.

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteCaller {
    Anyone,
    /// Whoever has a code or a passkey that lets somebody in.
    SigningIn,
    /// The server's own token, or that of a client.
    Token,
    /// The same, or the token of the session in the path.
    SessionToken,
    /// The server's own token alone.
    Owner,
    /// A signed-in browser or app, or a token.
    Device,
    /// A machine's token.
    Machine,
    /// A person who is signed in at a hub.
    Person,
    MachineOrPerson,
    MetricsToken,
}

impl RouteCaller {
    pub fn words(self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::SigningIn => "anyone with a code or a passkey",
            Self::Token => "a token",
            Self::SessionToken => "a client token, or the token of this session",
            Self::Owner => "the server's own token",
            Self::Device => "a signed-in device, or a token",
            Self::Machine => "a machine's token",
            Self::Person => "a person who is signed in",
            Self::MachineOrPerson => "a machine's token, or a person who is signed in",
            Self::MetricsToken => "the metrics token, or a machine's",
        }
    }
}

/// A route: a method and a path as the router has it.
pub struct HttpRoute {
    pub method: &'static str,
    pub path: &'static str,
    pub caller: RouteCaller,
    pub answers: &'static str,
}

/// Routes with one page that explains them.
pub struct RouteGroup {
    pub heading: &'static str,
    /// Below `docs/`.
    pub page: &'static str,
    pub page_title: &'static str,
    pub routes: &'static [HttpRoute],
}

const fn route(
    method: &'static str,
    path: &'static str,
    caller: RouteCaller,
    answers: &'static str,
) -> HttpRoute {
    HttpRoute { method, path, caller, answers }
}

use RouteCaller::{
    Anyone, Device, Machine, MachineOrPerson, MetricsToken, Owner, Person, SessionToken, SigningIn, Token,
};

pub const SERVER: [RouteGroup; 5] = [
    RouteGroup {
        heading: "Health and metrics",
        page: "operations.md",
        page_title: "operations",
        routes: &[
            route(
                "GET",
                "/health",
                Anyone,
                "200 if the process serves, 503 while it starts or stops; version and uptime",
            ),
            route("GET", "/healthz", Anyone, "the same, without version and uptime"),
            route("GET", "/ready", Anyone, "200 if it can do its work, otherwise 503 and why"),
            route("GET", "/metrics", Owner, "[metrics](metrics.md), as text for Prometheus"),
        ],
    },
    RouteGroup {
        heading: "Agent Client Protocol",
        page: "dialects/http.md",
        page_title: "HTTP and WebSocket",
        routes: &[
            route(
                "POST",
                "/acp",
                Token,
                "takes one JSON-RPC message; in Bernstein's dialect, the answer to it ([page](../dialects/bernstein.md))",
            ),
            route("GET", "/acp", Token, "a stream of events, or a WebSocket"),
            route("DELETE", "/acp", Token, "202; ends the connection"),
            route("GET", "/acp/ws", Token, "a WebSocket, in zeph's shape"),
        ],
    },
    RouteGroup { heading: "REST", page: "dialects/rest.md", page_title: "REST", routes: &REST },
    RouteGroup {
        heading: "Web app and devices",
        page: "dialects/native.md",
        page_title: "our own clients",
        routes: &[
            route("GET", "/ui/socket", Device, "a WebSocket; without an upgrade 204 to whoever may open it"),
            route(
                "POST",
                "/ui/enter",
                SigningIn,
                "200 and a cookie, or 202 while somebody has to let the device in",
            ),
            route("POST", "/ui/leave", Device, "signs this device out"),
            route("POST", "/ui/link", Owner, "a link that signs a browser in"),
            route(
                "POST",
                "/ui/hall",
                Device,
                "what is asked about devices; what may be asked depends on the role",
            ),
            route("GET", "/auth/about", Anyone, "whether this is a hub"),
        ],
    },
    RouteGroup {
        heading: "Files of the web app",
        page: "guide/phone.md",
        page_title: "the web app",
        routes: &WEB,
    },
];

/// All addresses of the web app, which are too many to be listed one by one.
const WEB: [HttpRoute; 1] = [route(
    "GET",
    WEB_FILES,
    Anyone,
    "the page of the web app at its addresses (`/`, `/inbox`, `/s/...`), and its files",
)];

pub const WEB_FILES: &str = "/";

pub const REST: [HttpRoute; 35] = [
    route("GET", "/session", Token, "the ids of the caller's sessions"),
    route("POST", "/session", Token, "201 and a new session, with its token"),
    route("GET", "/session/{id}", SessionToken, "one session; times in seconds"),
    route("DELETE", "/session/{id}", SessionToken, "204; the session is deleted"),
    route("POST", "/session/{id}/message", SessionToken, "202 and the id of the prompt"),
    route("POST", "/session/{id}/cancel", SessionToken, "204; the turn is cancelled"),
    route(
        "GET",
        "/session/{id}/events",
        SessionToken,
        "the session's [events](events.md) as a stream that stays open",
    ),
    route("POST", "/session/{id}/rotate-token", Token, "a new token of the session; the old one is dead"),
    route("GET", "/sessions", Token, "the caller's sessions"),
    route("POST", "/sessions", Token, "201 and a new session, which may begin with a prompt"),
    route("GET", "/sessions/{id}", SessionToken, "one session; times as text"),
    route("PATCH", "/sessions/{id}", SessionToken, "the session with its new title"),
    route("DELETE", "/sessions/{id}", SessionToken, "204; the session is deleted"),
    route("POST", "/sessions/{id}/prompt", SessionToken, "202 and the id of the prompt"),
    route("GET", "/sessions/{id}/turns", SessionToken, "the latest turns"),
    route("POST", "/sessions/{id}/turns", SessionToken, "another name of `prompt`"),
    route("POST", "/sessions/{id}/cancel", SessionToken, "204; the turn is cancelled"),
    route("POST", "/sessions/{id}/rotate-token", Token, "a new token of the session; the old one is dead"),
    route("POST", "/sessions/{id}/fork", Token, "201 and a new session that begins with this one's log"),
    route(
        "GET",
        "/sessions/{id}/events",
        SessionToken,
        "the session's [events](events.md) as a stream that ends with the turn",
    ),
    route("GET", "/sessions/{id}/messages", SessionToken, "messages and tool calls"),
    route("GET", "/sessions/{id}/transcript", SessionToken, "the session to read: HTML, Markdown or JSON"),
    route("POST", "/sessions/{id}/share", SessionToken, "the same inside a JSON answer"),
    route("POST", "/tool/approve", Token, "the answer to a permission request was taken"),
    route("GET", "/commands", Token, "the agent's slash commands"),
    route("POST", "/commands/{name}/invoke", Token, "202 and the id of the prompt that runs the command"),
    route("GET", "/runs", Token, "the latest sessions as runs"),
    route("GET", "/runs/cost", Token, "what they cost"),
    route("POST", "/deep-link", Token, "what a link asks for; nothing is done"),
    route("GET", "/info", Token, "name, version, model, tools and folder"),
    route("GET", "/providers", Token, "providers and their models"),
    route("GET", "/tools", Token, "the agent's tools"),
    route(
        "GET",
        "/.well-known/acp.json",
        Anyone,
        "where the protocols are; 404 with `discovery_enabled = false`",
    ),
    route("GET", "/.well-known/agent.json", Anyone, "name and version of the agent; the same 404"),
    route("GET", "/agent.json", Anyone, "the same"),
];

pub const HUB: [RouteGroup; 4] = [
    RouteGroup {
        heading: "Health and metrics",
        page: "operations-hub.md",
        page_title: "running hubs",
        routes: &[
            route("GET", "/health", Anyone, "200 if the process serves, 503 while it stops"),
            route("GET", "/healthz", Anyone, "the same"),
            route("GET", "/ready", Anyone, "200 if it can keep what it is sent, otherwise 503"),
            route("GET", "/metrics", MetricsToken, "[metrics](metrics.md#a-hub), as text for Prometheus"),
        ],
    },
    RouteGroup {
        heading: "Machines",
        page: "hub.md",
        page_title: "the hub",
        routes: &[
            route(
                "POST",
                "/api/sessions",
                Machine,
                "registers a session: where people see it, and where its socket is",
            ),
            route(
                "DELETE",
                "/api/sessions/{session}",
                Machine,
                "detaches it; with `?deleted=true`, deletes its mirror",
            ),
            route("POST", "/api/sessions/{session}/heartbeat", Machine, "the session is still there"),
            route(
                "GET",
                "/ws/{session}",
                MachineOrPerson,
                "the session's WebSocket; for people, the frames of a bridge without a mirror",
            ),
            route(
                "GET",
                "/ws/machine/{machine}",
                Machine,
                "the machine's WebSocket, on which requests of people come",
            ),
            route(
                "POST",
                "/api/tunnel/{session}/open",
                Machine,
                "the session's socket without WebSockets: opens it",
            ),
            route("POST", "/api/tunnel/{session}/up", Machine, "takes frames"),
            route("GET", "/api/tunnel/{session}/down", Machine, "waits for frames and gives them"),
            route("DELETE", "/api/tunnel/{session}", Machine, "closes it"),
            route("POST", "/api/tunnel/machine/{machine}/open", Machine, "the same for the machine's socket"),
            route("POST", "/api/tunnel/machine/{machine}/up", Machine, "takes frames"),
            route("GET", "/api/tunnel/machine/{machine}/down", Machine, "waits for frames and gives them"),
            route("DELETE", "/api/tunnel/machine/{machine}", Machine, "closes it"),
        ],
    },
    RouteGroup {
        heading: "People",
        page: "hub-people.md",
        page_title: "people at a hub",
        routes: &[
            route("GET", "/ui/socket", Person, "a WebSocket; without an upgrade 204 to whoever may open it"),
            route("POST", "/ui/enter", SigningIn, "signs a browser in by the code of a link"),
            route("POST", "/ui/leave", Person, "signs this browser out"),
            route("GET", "/auth/about", Anyone, "that this is a hub, and how to sign in"),
            route("POST", "/auth/passkey/begin", Anyone, "the challenge for signing in with a passkey"),
            route("POST", "/auth/passkey/finish", SigningIn, "signs a browser in with it"),
            route("POST", "/auth/passkey/new/begin", Person, "the challenge for a new passkey"),
            route("POST", "/auth/passkey/new/finish", Person, "adds it"),
        ],
    },
    RouteGroup { heading: "Files of the web app", page: "hub.md", page_title: "the hub", routes: &WEB },
];
