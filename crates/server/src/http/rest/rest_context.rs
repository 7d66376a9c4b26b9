//! The context of a REST request: its caller, and the operations on sessions in the caller's name.

use std::future::{Future, ready};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use engine::{
    APPROVAL, Act, Content, Event, MODE, MODEL, OpenError, PageRequest, Refusal as Refused, SendError,
    Sender, Seq, SessionHandle, SessionId, SessionRow, SettingSpec, StoreError, SurfaceId, TurnId,
};
use futures_util::stream::{self, StreamExt as _};
use service::{NewSessionOptions, Service, ServiceError, SessionText, SessionTextError};
use sha2::{Digest as _, Sha256};
use wire::session_export_writer::{DocumentFormat, WHOLE_BYTES_MAX};

use crate::http::{HttpCaller, HttpState, Refusal, TokenScope};

/// How much is collected before a response begins, so that most responses have a length and a true status.
const BEGINNING_BYTES: usize = 1 << 20;

/// The caller of a request, and what it is carried out with.
#[derive(Clone)]
pub(super) struct RestContext {
    pub state: Arc<HttpState>,
    pub service: Service,
    pub caller: service::Caller,
}

impl FromRequestParts<Arc<HttpState>> for RestContext {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<HttpState>) -> Result<Self, Refusal> {
        let caller = parts.extensions.get::<HttpCaller>().cloned();
        let caller = caller.ok_or_else(|| {
            Refusal::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "send the header `Authorization: Bearer TOKEN`",
            )
        })?;
        Ok(Self {
            state: Arc::clone(state),
            service: state.service(),
            caller: service_caller(state, &caller),
        })
    }
}

/// All requests of one client are one surface: it can cancel the prompts that it has queued.
fn service_caller(state: &HttpState, http_caller: &HttpCaller) -> service::Caller {
    let mut hash = Sha256::new();
    hash.update(state.secret);
    hash.update(b"rest");
    hash.update(http_caller.name.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    let sender = Sender::new(SurfaceId(number), Arc::clone(&http_caller.name));
    let caller = service::Caller::new(http_caller.kind(), http_caller.principal.clone(), sender);
    match &http_caller.scope {
        TokenScope::All => caller,
        TokenScope::Session(session) => caller.of_session(session.clone()),
    }
}

impl RestContext {
    pub async fn open(&self, id: &SessionId) -> Result<SessionHandle, Refusal> {
        self.service.open(&self.caller, id).await.map_err(refusal)
    }

    pub async fn row(&self, id: &SessionId) -> Result<SessionRow, Refusal> {
        self.service.row(&self.caller, id).await.map_err(refusal)
    }

    /// Whether the caller may do this at all.
    pub fn check(&self, act: Act, id: &SessionId) -> Result<(), Refusal> {
        self.service.check(&self.caller, act, Some(id)).map_err(refusal)
    }

    /// A server for one dialect gives its sessions ids of that dialect, whoever opens them.
    pub async fn create(&self, cwd: PathBuf) -> Result<SessionHandle, Refusal> {
        let make_id = Some(self.state.dialect.before_initialize().make_id());
        let new = NewSessionOptions { make_id, ..NewSessionOptions::in_folder(cwd) };
        self.service.create(&self.caller, new).await.map_err(refusal)
    }

    /// The folder for a new session: one that this server opens to its clients.
    pub async fn place(&self, wanted: Option<&str>) -> Result<PathBuf, Refusal> {
        self.service.folder(&self.caller, wanted).await.map_err(refusal)
    }

    pub async fn prompt(&self, id: &SessionId, text: &str) -> Result<TurnId, Refusal> {
        let content = vec![Content::text(text)];
        let sent = self.service.prompt(&self.caller, id, &self.caller.sender, content, |_| ()).await;
        sent.map(|(_, _, turn)| turn).map_err(refusal)
    }

    /// Visits all events of a session, one page after the other.
    pub async fn each(&self, id: &SessionId, mut seen: impl FnMut(&Event)) -> Result<(), Refusal> {
        let mut after = Seq::START;
        loop {
            let page = self.service.read(&self.caller, id, after, PageRequest::USUAL).await;
            let page = page.map_err(refusal)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            page.iter().for_each(|event| seen(event));
        }
    }

    /// A session in one of its forms. A short one is answered at once; of a longer one the rest is
    /// read while the client takes it. What goes wrong then ends the answer before its end.
    pub async fn document(&self, row: SessionRow, form: DocumentFormat) -> Result<Body, Refusal> {
        let (id, mut text) = (row.id.clone(), self.text(row, form).await?);
        let mut beginning = String::new();
        while beginning.len() < BEGINNING_BYTES {
            match text.next().await.map_err(|error| text_failed(&id, error))? {
                Some(piece) => beginning.push_str(&piece),
                None => return Ok(Body::from(beginning)),
            }
        }
        let rest = stream::try_unfold(text, async |mut text| {
            Ok::<_, SessionTextError>(text.next().await?.map(|piece| (piece, text)))
        });
        let beginning = stream::once(ready(Ok(beginning)));
        Ok(Body::from_stream(beginning.chain(rest)))
    }

    async fn text(&self, row: SessionRow, form: DocumentFormat) -> Result<SessionText, Refusal> {
        let id = row.id.clone();
        let text = self.service.text(&self.caller, row, form).await;
        text.map_err(|error| text_failed(&id, error))
    }

    /// The same as one text, if it is not too long for one answer.
    pub async fn whole(&self, row: SessionRow, form: DocumentFormat) -> Result<String, Refusal> {
        let (id, mut text) = (row.id.clone(), self.text(row, form).await?);
        let mut whole = String::new();
        while let Some(piece) = text.next().await.map_err(|error| text_failed(&id, error))? {
            whole.push_str(&piece);
            if whole.len() > WHOLE_BYTES_MAX {
                let message = format!(
                    "this session is too long for one response ({} MiB); read it as a stream: \
                     GET /sessions/{id}/transcript",
                    WHOLE_BYTES_MAX >> 20
                );
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "session_too_long", message));
            }
        }
        Ok(whole)
    }

    /// Runs to its end also if the client hangs up: half of it would be worse than all of it.
    pub async fn complete<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.state.tasks.spawn(work).await.unwrap_or_else(|_| Err(internal()))
    }

    /// A choice that the agent offers, or a refusal that names the choices.
    pub fn choice(&self, setting: &'static str, value: &str) -> Result<Arc<str>, Refusal> {
        let value = engine::full_name(setting, value.into());
        let spec = self.spec(setting);
        let choices = spec.map(|spec| spec.choices.as_slice()).unwrap_or_default();
        if choices.iter().any(|choice| choice.value == value) {
            return Ok(value);
        }
        let code = match setting {
            MODEL => "unknown_model",
            MODE => "unknown_mode",
            APPROVAL => "unknown_approval",
            _ => "unknown_choice",
        };
        let names = choices.iter().map(|choice| &*choice.value).collect::<Vec<_>>().join(", ");
        Err(Refusal::new(StatusCode::BAD_REQUEST, code, format!("unknown {setting}; choose one of {names}")))
    }

    pub fn spec(&self, setting: &str) -> Option<&SettingSpec> {
        self.state.registry.abilities().settings.iter().find(|spec| *spec.id == *setting)
    }

    /// The model of a session that has chosen none.
    pub fn usual_model(&self) -> &str {
        self.spec(MODEL).map_or("", |spec| &spec.default)
    }
}

/// A service error as a response.
pub(super) fn refusal(error: ServiceError) -> Refusal {
    match error {
        ServiceError::Forbidden(why) => Refusal::new(StatusCode::FORBIDDEN, "admin_only", why.to_string()),
        ServiceError::FolderNotOpen(_) => not_open(),
        ServiceError::CwdNotAFolder(_) => Refusal::new(
            StatusCode::BAD_REQUEST,
            "bad_working_dir",
            "working_dir is not a folder; use the full path of an existing folder",
        ),
        ServiceError::Open(error) => not_opened(error),
        ServiceError::Send(error) => not_accepted(error),
        ServiceError::Store(error) => not_opened(OpenError::Store(error)),
        ServiceError::TooLong(_) => {
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "session_too_long", error.to_string())
        }
        ServiceError::NotAFolder(_)
        | ServiceError::RootNotAllowed(_)
        | ServiceError::OutsideSession(_)
        | ServiceError::ParentInPath
        | ServiceError::NoToolServers
        | ServiceError::ToolServer(_) => {
            Refusal::new(StatusCode::BAD_REQUEST, "bad_request", error.to_string())
        }
        ServiceError::Internal => internal(),
    }
}

/// The same answer for every folder that is not open, so that it does not tell whether the folder exists.
fn not_open() -> Refusal {
    let message = "clients have no access to this folder; the server's owner can add it with --allow-dir";
    Refusal::new(StatusCode::FORBIDDEN, "working_dir_not_allowed", message)
}

pub(super) fn no_session() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "session_not_found", "there is no such session; see GET /sessions")
}

fn internal() -> Refusal {
    let message = "internal server error; the server keeps running, and its log says more";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}

fn not_opened(error: OpenError) -> Refusal {
    match error {
        OpenError::NotFound(_) => no_session(),
        OpenError::Stopping => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string()),
        OpenError::LimitReached(_) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", error.to_string())
        }
        OpenError::Store(StoreError::BusyElsewhere) => {
            let message =
                "the session is running a turn in another ropewalk process; wait, or cancel it there";
            Refusal::new(StatusCode::CONFLICT, "busy_elsewhere", message)
        }
        OpenError::Agent(error) => {
            Refusal::new(StatusCode::BAD_GATEWAY, "agent_unavailable", error.to_string())
        }
        OpenError::Store(error @ StoreError::Busy { .. }) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store_busy", error.to_string())
        }
        OpenError::Store(error @ (StoreError::Unavailable { .. } | StoreError::Write { .. })) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", error.to_string())
        }
        OpenError::Store(error) => {
            tracing::warn!(%error, "a request failed in the session store");
            let message = "the session store could not be used; the server's log says why";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", message)
        }
    }
}

fn not_accepted(error: SendError) -> Refusal {
    match error {
        SendError::Refused(Refused::QueueFull) => {
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", error.to_string())
        }
        SendError::Refused(Refused::UnknownAsk(_)) => no_permission(),
        SendError::Refused(
            Refused::UnknownSetting(..) | Refused::UnknownChoice { .. } | Refused::TooLoose { .. },
        ) => Refusal::new(StatusCode::BAD_REQUEST, "unknown_choice", error.to_string()),
        SendError::Refused(
            Refused::NotAQuestion(_) | Refused::NotAnAnswer { .. } | Refused::ReasonTooLong { .. },
        ) => Refusal::new(StatusCode::BAD_REQUEST, "not_an_answer", error.to_string()),
        SendError::Refused(Refused::NotTheirs(..)) => {
            Refusal::new(StatusCode::FORBIDDEN, "forbidden", error.to_string())
        }
        SendError::Closed
        | SendError::Refused(
            Refused::Closing | Refused::Busy | Refused::StaleTurn(_) | Refused::NotATurnsBusiness,
        ) => Refusal::new(StatusCode::CONFLICT, "conflict", error.to_string()),
    }
}

pub(super) fn no_permission() -> Refusal {
    let message = "this permission request is unknown or already answered";
    Refusal::new(StatusCode::NOT_FOUND, "permission_not_found", message)
}

fn text_failed(id: &SessionId, error: SessionTextError) -> Refusal {
    match error {
        SessionTextError::Open(error) => not_opened(error),
        SessionTextError::TooLong(error) => {
            let message =
                format!("{error}; read all of its events with GET /sessions/{id}/transcript?format=json");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "session_too_long", message)
        }
    }
}
