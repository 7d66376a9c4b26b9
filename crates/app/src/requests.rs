//! The requests of our own clients, carried out on sessions. The role was checked before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    AskId, Content, PermissionAnswer, Refusal, SendError, Sender, SessionHandle, SessionId, Settings, TurnId,
};
use service::{NewSessionOptions, ServiceError};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use wire::native::fold::{changed_diff, settings, slash_command};
use wire::native::{ASK_LINES_MAX, Decision, ImageAttachment, ReplyBody, ReplyError, Request};

use super::connection::RequestContext;
use super::error_replies::{bad, failed, not_done, not_found, wrong};
use super::history_reader::HistoryReader;
use super::{board_updates, file_search};

/// A prompt's key is stored in the log.
const KEY_BYTES_MAX: usize = 128;
/// A title is one line.
const TITLE_BYTES_MAX: usize = 400;
/// Letters of a file's name.
const FIND_BYTES_MAX: usize = 256;
/// Kinds of image that are accepted.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Pictures of one prompt.
const PICTURES_MAX: usize = 16;

/// Prompts of one session are handled one after the other, so that a prompt that is sent twice at the same time
/// is recognised as the same. Sessions share a few locks by chance, which costs them a moment.
#[derive(Default)]
pub(super) struct PromptLocks([Mutex<()>; 16]);

impl PromptLocks {
    fn of(&self, id: &SessionId) -> &Mutex<()> {
        let digest: [u8; 32] = Sha256::digest(id.as_str().as_bytes()).into();
        let [first, ..] = &self.0;
        self.0.get(usize::from(digest[0]) % self.0.len()).unwrap_or(first)
    }
}

impl RequestContext {
    /// Whether the request is quick, so that it can be handled in the order of requests.
    pub fn is_quick(&self, request: &Request) -> bool {
        match request {
            Request::Prompt { session, .. }
            | Request::Cancel { session, .. }
            | Request::Answer { session, .. }
            | Request::Set { session, .. }
            | Request::Revert { session, .. } => {
                let id = SessionId::parse(session).ok();
                id.is_none_or(|id| self.app.registry().live(&self.visitor.principal, &id).is_some())
            }
            Request::Presence { .. } | Request::Push { .. } | Request::Mute { .. } => true,
            Request::Sessions { .. }
            | Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::EarlierRows { .. }
            | Request::FullRow { .. }
            | Request::Offer { .. }
            | Request::Open { .. }
            | Request::Rename { .. }
            | Request::Delete { .. }
            | Request::Changes { .. }
            | Request::Keep { .. }
            | Request::FindFiles { .. }
            | Request::Rules
            | Request::Forget { .. }
            | Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::TestPush => false,
        }
    }

    pub async fn act(&self, request: Request) -> Result<ReplyBody, ReplyError> {
        match request {
            Request::Sessions { before, search } => {
                board_updates::sessions(&self.app, &self.visitor, before, search).await
            }
            Request::EarlierRows { session, before } => self.earlier(&session, before).await,
            Request::FullRow { session, row } => self.whole(&session, row).await,
            Request::Offer { folder } => self.offered(folder).await,
            Request::Open { folder, settings } => self.create(folder, settings).await,
            Request::Prompt { session, key, text, pictures } => {
                self.prompt(&session, key, text, pictures).await
            }
            Request::Cancel { session, turn } => self.cancel(&session, turn).await,
            Request::Answer { session, ask, decision, text } => {
                self.answer(&session, ask, decision, text).await
            }
            Request::Set { session, setting, value } => self.set(&session, &setting, &value).await,
            Request::Rename { session, title } => self.rename(&session, &title).await,
            Request::Delete { session } => self.delete(&session).await,
            Request::Changes { session } => self.changes(&session).await,
            Request::Keep { session, path, hunk } => self.keep(&session, path, hunk).await,
            Request::Revert { session, path, hunk } => self.revert(&session, &path, hunk).await,
            Request::FindFiles { session, text } => self.find(&session, text).await,
            Request::Rules => self.rules().await,
            Request::Forget { rule } => self.forget(rule).await,
            // The connection itself handles these.
            Request::Watch { .. } | Request::Unwatch { .. } => Ok(ReplyBody::Done),
            about_devices @ (Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::Push { .. }
            | Request::Mute { .. }
            | Request::TestPush
            | Request::Presence { .. }) => self.app.devices.answer(&self.visitor, about_devices).await,
        }
    }

    /// The session, loaded into memory again if it left.
    pub async fn open(&self, id: &SessionId) -> Result<SessionHandle, ReplyError> {
        self.app.service.open(&self.caller, id).await.map_err(not_done)
    }

    async fn session(&self, text: &str) -> Result<SessionHandle, ReplyError> {
        self.open(&parse(text)?).await
    }

    async fn earlier(&self, session: &str, before: u64) -> Result<ReplyBody, ReplyError> {
        let handle = self.session(session).await?;
        let feed = self.app.feeds.of(&self.app, &handle);
        let owner = &self.visitor.principal;
        HistoryReader { app: &self.app, owner, session: handle.id(), feed: &feed }.earlier(before).await
    }

    async fn whole(&self, session: &str, row: u64) -> Result<ReplyBody, ReplyError> {
        let handle = self.session(session).await?;
        let feed = self.app.feeds.of(&self.app, &handle);
        let owner = &self.visitor.principal;
        HistoryReader { app: &self.app, owner, session: handle.id(), feed: &feed }.whole(row).await
    }

    async fn offered(&self, folder: Option<String>) -> Result<ReplyBody, ReplyError> {
        let folder = self.place(folder.as_deref()).await?;
        let offer = self.app.registry().offer(folder.clone()).await;
        Ok(ReplyBody::Offer {
            folder: folder.display().to_string(),
            settings: settings(&offer.settings, &Settings::defaults(&offer.settings)),
            commands: offer.commands.iter().map(slash_command).collect(),
        })
    }

    async fn create(
        &self,
        folder: Option<String>,
        wanted: BTreeMap<String, String>,
    ) -> Result<ReplyBody, ReplyError> {
        let cwd = self.place(folder.as_deref()).await?;
        // What cannot be set must not leave a session behind.
        let offer = self.app.registry().offer(cwd.clone()).await;
        for (id, value) in &wanted {
            let spec = offer.settings.iter().find(|spec| *spec.id == **id);
            let spec = spec.ok_or_else(|| bad(format!("no such setting: {id:?}")))?;
            if let Some(refusal) = spec.refuses(&value.as_str().into()) {
                return Err(bad(refusal.to_string()));
            }
        }
        let new = NewSessionOptions::in_folder(cwd);
        let handle = self.app.service.create(&self.caller, new).await.map_err(not_done)?;
        for (id, value) in wanted {
            let (setting, value) = (id.into(), value.into());
            let changed = self.app.service.change(&self.caller, handle.id(), &setting, &value, |_| ()).await;
            changed.map_err(not_done)?;
        }
        Ok(ReplyBody::SessionOpened { session: handle.id().to_string() })
    }

    async fn place(&self, wanted: Option<&str>) -> Result<PathBuf, ReplyError> {
        self.app.service.folder(&self.caller, wanted).await.map_err(not_done)
    }

    async fn prompt(
        &self,
        session: &str,
        key: String,
        text: String,
        pictures: Vec<ImageAttachment>,
    ) -> Result<ReplyBody, ReplyError> {
        let id = parse(session)?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(bad(format!("a key must have 1 to {KEY_BYTES_MAX} bytes")));
        }
        let content = self.content(text, pictures)?;
        self.send_prompt(&id, Some(key), content).await
    }

    /// Carried out once for a key, however often it is sent: the log knows the latest keys.
    async fn send_prompt(
        &self,
        id: &SessionId,
        key: Option<String>,
        content: Vec<Content>,
    ) -> Result<ReplyBody, ReplyError> {
        let _alone = self.app.prompt_locks.of(id).lock().await;
        let request: Option<Arc<str>> = key.map(Into::into);
        let by = Sender { request: request.clone(), ..self.caller.sender.clone() };
        let handle = self.open(id).await?;
        let prompts = Arc::clone(&handle.snapshot().prompts);
        let same = |prompted: &&engine::PromptRecord| {
            prompted.surface == by.surface && request.as_ref() == Some(&prompted.request)
        };
        if let Some(known) = prompts.iter().find(same) {
            return Ok(ReplyBody::PromptAccepted { turn: known.turn.0 });
        }
        let sent = self.app.service.prompt(&self.caller, id, &by, content, |_| ()).await;
        sent.map(|(_, _, turn)| ReplyBody::PromptAccepted { turn: turn.0 }).map_err(not_done)
    }

    fn content(&self, text: String, pictures: Vec<ImageAttachment>) -> Result<Vec<Content>, ReplyError> {
        if text.trim().is_empty() && pictures.is_empty() {
            return Err(bad("the prompt is empty; write something"));
        }
        if pictures.len() > PICTURES_MAX {
            return Err(bad(format!("a prompt can have at most {PICTURES_MAX} pictures")));
        }
        if !pictures.is_empty() && !self.app.registry().abilities().images {
            return Err(bad("this agent does not accept pictures"));
        }
        let mut content = Vec::new();
        if !text.trim().is_empty() {
            content.push(Content::text(text));
        }
        for ImageAttachment { mime, data } in pictures {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
            if !PICTURES.contains(&mime.as_str()) || data.is_empty() || !data.bytes().all(plain) {
                return Err(bad("a picture must be PNG, JPEG, GIF or WebP, in base64"));
            }
            content.push(Content::Image { mime: mime.into(), data: data.into(), uri: None });
        }
        Ok(content)
    }

    async fn cancel(&self, session: &str, turn: Option<u64>) -> Result<ReplyBody, ReplyError> {
        let cancelled = self.app.service.cancel(&self.caller, &parse(session)?, turn.map(TurnId)).await;
        cancelled.map(|_| ReplyBody::Done).map_err(not_done)
    }

    async fn answer(
        &self,
        session: &str,
        ask: u64,
        decision: Decision,
        text: Option<String>,
    ) -> Result<ReplyBody, ReplyError> {
        let (id, ask) = (parse(session)?, AskId(ask));
        let handle = self.session(session).await?;
        let answer = match (decision, text) {
            (Decision::AllowOnce, _) => PermissionAnswer::AllowOnce,
            (Decision::AllowAlways, _) => PermissionAnswer::AllowAlways,
            (Decision::DenyOnce, Some(why)) => PermissionAnswer::DenyBecause(why.into()),
            (Decision::DenyOnce, None) => PermissionAnswer::DenyOnce,
            (Decision::DenyAlways, _) => PermissionAnswer::DenyAlways,
            (Decision::Reply, Some(text)) => PermissionAnswer::Reply(text.into()),
            (Decision::Reply, None) => return Err(bad("the answer is empty; write something")),
        };
        match self.app.service.answer(&self.caller, &handle, ask, answer).await {
            Ok(_) => Ok(ReplyBody::Done),
            Err(error @ ServiceError::Send(SendError::Refused(Refusal::UnknownAsk(_)))) => {
                let settled = self.app.board.settled(&id, ask);
                Err(settled.map_or_else(|| not_done(error), |how| wrong("answered", format!("it was {how}"))))
            }
            Err(error) => Err(not_done(error)),
        }
    }

    async fn set(&self, session: &str, setting: &str, value: &str) -> Result<ReplyBody, ReplyError> {
        let (id, setting, value) = (parse(session)?, setting.into(), value.into());
        let changed = self.app.service.change(&self.caller, &id, &setting, &value, |_| ()).await;
        changed.map(|_| ReplyBody::Done).map_err(not_done)
    }

    async fn rename(&self, session: &str, title: &str) -> Result<ReplyBody, ReplyError> {
        let id = parse(session)?;
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() || title.len() > TITLE_BYTES_MAX {
            return Err(bad(format!("a title must have 1 to {TITLE_BYTES_MAX} bytes")));
        }
        self.app.service.rename(&self.caller, &id, &title).await.map_err(not_done)?;
        Ok(ReplyBody::Done)
    }

    async fn delete(&self, session: &str) -> Result<ReplyBody, ReplyError> {
        match self.app.service.delete(&self.caller, &parse(session)?).await.map_err(not_done)? {
            true => Ok(ReplyBody::Done),
            false => Err(not_found()),
        }
    }

    async fn changes(&self, session: &str) -> Result<ReplyBody, ReplyError> {
        let handle = self.session(session).await?;
        let Some(review) = handle.review() else { return Ok(ReplyBody::Changes { files: Vec::new() }) };
        let changed = review.changes().await.map_err(failed)?;
        let files = changed.iter().map(|changed| changed_diff(changed, ASK_LINES_MAX)).collect();
        Ok(ReplyBody::Changes { files })
    }

    async fn keep(&self, session: &str, path: String, hunk: Option<String>) -> Result<ReplyBody, ReplyError> {
        let handle = self.session(session).await?;
        let review = handle.review().ok_or_else(no_review)?;
        let kept = review.keep(path.into(), hunk.map(Into::into)).await;
        kept.map(|()| ReplyBody::Done).map_err(|message| wrong("stale", message))
    }

    /// Reverts by a turn of its own: it waits for the running one, and is in the log.
    async fn revert(&self, session: &str, path: &str, hunk: Option<String>) -> Result<ReplyBody, ReplyError> {
        let id = parse(session)?;
        self.open(&id).await?.review().ok_or_else(no_review)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
        if hunk.as_deref().is_some_and(|hunk| hunk.is_empty() || !hunk.chars().all(plain)) {
            return Err(bad("this is not a hunk of the file"));
        }
        let text = engine::revert_prompt(path.as_ref(), hunk.as_deref());
        self.send_prompt(&id, None, vec![Content::text(text)]).await
    }

    async fn find(&self, session: &str, text: String) -> Result<ReplyBody, ReplyError> {
        if text.len() > FIND_BYTES_MAX {
            return Err(bad("the search text is too long; use fewer letters"));
        }
        let folder = Arc::clone(&self.session(session).await?.snapshot().cwd);
        let files = blocking(move || file_search::find(&folder, &text)).await?;
        Ok(ReplyBody::Files { files })
    }

    async fn rules(&self) -> Result<ReplyBody, ReplyError> {
        let Some(rule_store) = self.app.extras.rule_store.clone() else {
            return Ok(ReplyBody::Rules { rules: Vec::new() });
        };
        Ok(ReplyBody::Rules { rules: blocking(move || rule_store.list()).await? })
    }

    async fn forget(&self, rule: String) -> Result<ReplyBody, ReplyError> {
        let rule_store =
            self.app.extras.rule_store.clone().ok_or_else(|| bad("this server stores no rules"))?;
        let forgotten = blocking(move || rule_store.forget(&rule)).await?;
        forgotten.map(|()| ReplyBody::Done).map_err(failed)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ReplyError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| broken())
}

fn parse(session: &str) -> Result<SessionId, ReplyError> {
    SessionId::parse(session).map_err(|error| not_opened_id(&error))
}

fn not_opened_id(error: &engine::BadSessionId) -> ReplyError {
    bad(error.to_string())
}

fn no_review() -> ReplyError {
    bad("this agent does not record its changes; use git to see and undo them")
}

fn broken() -> ReplyError {
    failed("internal error in the server; it keeps running")
}
