//! Who asks, and what is done on sessions in their name.

use std::future::{Future, ready};
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use engine::{
    APPROVAL, Accepted, Content, Event, Input, MODE, MODEL, OpenError, Page, Refusal as Refused, SendError,
    Sender, Seq, SessionHandle, SessionId, SessionRow, SettingSpec, StoreError, SurfaceId, TurnId, Wish,
};
use futures_util::stream::{self, StreamExt as _};
use sha2::{Digest as _, Sha256};
use wire::document::{Form, WHOLE_BYTES_MAX};

use crate::handlers::{Misplaced, offer};
use crate::http::{Caller, Doors, Refusal};
use crate::session_text::{SessionText, SessionTextError};

/// What is gathered before an answer begins, so that most answers have a length and a true status.
const BEGINNING_BYTES: usize = 1 << 20;

/// Who asks, and the house.
#[derive(Clone)]
pub(super) struct Reach {
    pub doors: Arc<Doors>,
    pub caller: Caller,
}

impl FromRequestParts<Arc<Doors>> for Reach {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, doors: &Arc<Doors>) -> Result<Self, Refusal> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| {
            Refusal::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "send the header `Authorization: Bearer TOKEN`",
            )
        })?;
        Ok(Self { doors: Arc::clone(doors), caller })
    }
}

impl Reach {
    /// All requests of one client are one surface: what it has waiting, it can cancel.
    pub fn sender(&self) -> Sender {
        let mut hash = Sha256::new();
        hash.update(self.doors.secret);
        hash.update(b"rest");
        hash.update(self.caller.name.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        let standing = self.caller.standing;
        Sender { standing, ..Sender::new(SurfaceId(number), Arc::clone(&self.caller.name)) }
    }

    pub async fn open(&self, id: &SessionId) -> Result<SessionHandle, Refusal> {
        let handle = self.doors.registry.open(&self.caller.principal, id).await.map_err(not_opened)?;
        // A folder that was open to a client may have become a way to another one since.
        if !self.doors.rules.still_opens(&self.caller.principal, &handle) {
            return Err(not_open());
        }
        Ok(handle)
    }

    /// Whoever looks at a session uses it.
    pub async fn row(&self, id: &SessionId) -> Result<engine::SessionRow, Refusal> {
        self.doors.registry.touch(&self.caller.principal, id);
        self.doors.registry.row(&self.caller.principal, id).await.map_err(not_opened)
    }

    /// A server for one dialect gives its sessions ids of that dialect, whoever opens them.
    pub async fn create(&self, cwd: PathBuf) -> Result<SessionHandle, Refusal> {
        let make_id = self.doors.dialect.before_initialize().make_id();
        self.doors.registry.create_with_id(self.wish(cwd), make_id).await.map_err(not_opened)
    }

    pub fn wish(&self, cwd: PathBuf) -> Wish {
        let source = Arc::clone(&self.doors.rules.source);
        let (owner, within) = (self.caller.principal.clone(), self.doors.rules.within());
        Wish { owner, cwd, roots: Vec::new(), within, servers: Vec::new(), source }
    }

    /// The folder for a new session: one that this server opens to its clients.
    pub fn place(&self, wanted: Option<&str>) -> Result<PathBuf, Refusal> {
        self.doors.rules.place(wanted).map_err(|misplaced| match misplaced {
            Misplaced::NotOpen => not_open(),
            Misplaced::NotAFolder => Refusal::new(
                StatusCode::BAD_REQUEST,
                "bad_working_dir",
                "working_dir is not a folder; name one that is there, with its whole path",
            ),
        })
    }

    /// Hands an input to its session and waits until it is in the log. A session that left memory in
    /// this very moment is opened again: nothing of the input was seen by anybody.
    pub async fn deliver(&self, id: &SessionId, input: impl Fn() -> Input) -> Result<Accepted, Refusal> {
        let mut sent = offer(&self.open(id).await?, input()).await;
        if matches!(sent, Err(SendError::Closed | SendError::Refused(Refused::Closing))) {
            sent = offer(&self.open(id).await?, input()).await;
        }
        sent.map_err(not_taken)
    }

    pub async fn prompt(&self, id: &SessionId, text: &str) -> Result<TurnId, Refusal> {
        let content = vec![Content::text(text)];
        let prompt = || Input::Prompt { by: self.sender(), content: content.clone() };
        self.deliver(id, prompt).await?.turn.ok_or_else(internal)
    }

    /// Ends the running turn and what this client has waiting. A session that is not in memory has
    /// nothing to cancel, but it has to be there.
    pub async fn cancel(&self, id: &SessionId) -> Result<(), Refusal> {
        match self.doors.registry.live(&self.caller.principal, id) {
            Some(handle) => {
                let cancel = Input::Cancel { by: self.sender(), only: None };
                match handle.send(cancel).await {
                    Ok(_) | Err(SendError::Closed | SendError::Refused(Refused::Closing)) => Ok(()),
                    Err(error) => Err(not_taken(error)),
                }
            }
            None => self.row(id).await.map(drop),
        }
    }

    pub async fn delete(&self, id: &SessionId) -> Result<(), Refusal> {
        let (reach, id) = (self.clone(), id.clone());
        self.complete(async move {
            let deleted =
                reach.doors.registry.delete(&reach.caller.principal, &id).await.map_err(not_opened)?;
            if !deleted {
                return Err(no_session());
            }
            Ok(())
        })
        .await
    }

    /// Shows all events of a session, one page after the other.
    pub async fn each(&self, id: &SessionId, mut seen: impl FnMut(&Event)) -> Result<(), Refusal> {
        let mut after = Seq::START;
        loop {
            let page = self.doors.registry.read(&self.caller.principal, id, after, Page::USUAL).await;
            let page = page.map_err(not_opened)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            page.iter().for_each(|event| seen(event));
        }
    }

    /// A session in one of its forms. A short one is answered at once; of a longer one the rest is
    /// read while the client takes it. What goes wrong then ends the answer before its end.
    pub async fn document(&self, row: SessionRow, form: Form) -> Result<Body, Refusal> {
        let (owner, id) = (&self.caller.principal, row.id.clone());
        let text = SessionText::open(&self.doors.registry, owner, row, form).await;
        let mut text = text.map_err(|error| not_given(&id, error))?;
        let mut beginning = String::new();
        while beginning.len() < BEGINNING_BYTES {
            match text.next().await.map_err(|error| not_given(&id, error))? {
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

    /// The same as one text, if it is not too long for one answer.
    pub async fn whole(&self, row: SessionRow, form: Form) -> Result<String, Refusal> {
        let (owner, id) = (&self.caller.principal, row.id.clone());
        let text = SessionText::open(&self.doors.registry, owner, row, form).await;
        let mut text = text.map_err(|error| not_given(&id, error))?;
        let mut whole = String::new();
        while let Some(piece) = text.next().await.map_err(|error| not_given(&id, error))? {
            whole.push_str(&piece);
            if whole.len() > WHOLE_BYTES_MAX {
                let message = format!(
                    "this session is longer than one answer may be ({} MiB); read it as a stream: \
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
        self.doors.tasks.spawn(work).await.unwrap_or_else(|_| Err(internal()))
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
        Err(Refusal::new(StatusCode::BAD_REQUEST, code, format!("choose a {setting} of these: {names}")))
    }

    pub fn spec(&self, setting: &str) -> Option<&SettingSpec> {
        self.doors.registry.abilities().settings.iter().find(|spec| *spec.id == *setting)
    }

    /// The model of a session that chose none.
    pub fn usual_model(&self) -> &str {
        self.spec(MODEL).map_or("", |spec| &spec.default)
    }
}

/// Where nothing may be learned of, not even whether it is there, there is only one answer.
fn not_open() -> Refusal {
    let message = "this folder is not open to clients; the server's owner can add it with --allow-dir";
    Refusal::new(StatusCode::FORBIDDEN, "working_dir_not_allowed", message)
}

pub(super) fn no_session() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "session_not_found", "there is no such session; see GET /sessions")
}

pub(super) fn internal() -> Refusal {
    let message = "something went wrong inside the server; the server goes on";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
}

pub(super) fn not_opened(error: OpenError) -> Refusal {
    match error {
        OpenError::NotFound(_) => no_session(),
        OpenError::Stopping => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error.to_string()),
        OpenError::LimitReached(_) => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", error.to_string())
        }
        OpenError::Store(StoreError::BusyElsewhere) => {
            let message =
                "the session is in the middle of a turn in another ropewalk; wait, or cancel it there";
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
            tracing::warn!(%error, "a request met trouble with the store");
            let message = "the session store could not be used; the server's log says why";
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "store_failed", message)
        }
    }
}

pub(super) fn not_taken(error: SendError) -> Refusal {
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
    let message = "this question is unknown, or answered already";
    Refusal::new(StatusCode::NOT_FOUND, "permission_not_found", message)
}

fn not_given(id: &SessionId, error: SessionTextError) -> Refusal {
    match error {
        SessionTextError::Open(error) => not_opened(error),
        SessionTextError::TooLong(error) => {
            let message =
                format!("{error}; read all of its events with GET /sessions/{id}/transcript?format=json");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "session_too_long", message)
        }
    }
}
