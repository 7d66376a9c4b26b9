//! What clients ask for, carried out on sessions. Roles were looked at before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Answer, AskId, Content, Refusal, SendError, Sender, SessionHandle, SessionId, Settings, TurnId,
};
use service::{NewSession, ServiceError};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use wire::native::fold::{changed_diff, settings, slash_command};
use wire::native::{ASK_LINES_MAX, Answered, Decision, Picture, Request, Wrong};

use super::connection::Client;
use super::history::Spot;
use super::wrong::{bad, failed, not_done, not_found, wrong};
use super::{files, table};

/// A prompt's key stands in the log.
const KEY_BYTES_MAX: usize = 128;
/// A title is a line.
const TITLE_BYTES_MAX: usize = 400;
/// Letters of a file's name.
const FIND_BYTES_MAX: usize = 256;
/// Kinds of picture that are taken.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Pictures of one prompt.
const PICTURES_MAX: usize = 16;

/// Prompts of one session are taken one after the other, so that one that is sent twice at the same time
/// is seen to be the same. Sessions share a few locks by chance, which costs them a moment.
#[derive(Default)]
pub(super) struct PromptLocks([Mutex<()>; 16]);

impl PromptLocks {
    fn of(&self, id: &SessionId) -> &Mutex<()> {
        let digest: [u8; 32] = Sha256::digest(id.as_str().as_bytes()).into();
        let [first, ..] = &self.0;
        self.0.get(usize::from(digest[0]) % self.0.len()).unwrap_or(first)
    }
}

impl Client {
    /// Whether it is done in a moment, so that the order of requests can be kept.
    pub fn is_quick(&self, request: &Request) -> bool {
        match request {
            Request::Prompt { session, .. }
            | Request::Cancel { session, .. }
            | Request::Answer { session, .. }
            | Request::Set { session, .. }
            | Request::Revert { session, .. } => {
                let id = SessionId::parse(session).ok();
                id.is_none_or(|id| self.desk.registry().live(&self.visitor.principal, &id).is_some())
            }
            Request::Looking { .. } | Request::Push { .. } | Request::Mute { .. } => true,
            Request::Sessions { .. }
            | Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::Earlier { .. }
            | Request::Whole { .. }
            | Request::Offer { .. }
            | Request::Open { .. }
            | Request::Rename { .. }
            | Request::Delete { .. }
            | Request::Changes { .. }
            | Request::Keep { .. }
            | Request::Find { .. }
            | Request::Rules
            | Request::Forget { .. }
            | Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::TryPush => false,
        }
    }

    pub async fn act(&self, request: Request) -> Result<Answered, Wrong> {
        match request {
            Request::Sessions { before, search } => {
                table::sessions(&self.desk, &self.visitor, before, search).await
            }
            Request::Earlier { session, before } => self.earlier(&session, before).await,
            Request::Whole { session, row } => self.whole(&session, row).await,
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
            Request::Find { session, text } => self.find(&session, text).await,
            Request::Rules => self.rules().await,
            Request::Forget { rule } => self.forget(rule).await,
            // The line itself sees to these.
            Request::Watch { .. } | Request::Unwatch { .. } => Ok(Answered::Done),
            about_devices @ (Request::Devices
            | Request::Invite { .. }
            | Request::Admit { .. }
            | Request::Revoke { .. }
            | Request::Push { .. }
            | Request::Mute { .. }
            | Request::TryPush
            | Request::Looking { .. }) => self.desk.hall.answer(&self.visitor, about_devices).await,
        }
    }

    /// The session, brought back to memory if it left.
    pub async fn open(&self, id: &SessionId) -> Result<SessionHandle, Wrong> {
        self.desk.service.open(&self.caller, id).await.map_err(not_done)
    }

    async fn session(&self, text: &str) -> Result<SessionHandle, Wrong> {
        self.open(&parse(text)?).await
    }

    async fn earlier(&self, session: &str, before: u64) -> Result<Answered, Wrong> {
        let handle = self.session(session).await?;
        let feed = self.desk.feeds.of(&self.desk, &handle);
        let owner = &self.visitor.principal;
        Spot { desk: &self.desk, owner, session: handle.id(), feed: &feed }.earlier(before).await
    }

    async fn whole(&self, session: &str, row: u64) -> Result<Answered, Wrong> {
        let handle = self.session(session).await?;
        let feed = self.desk.feeds.of(&self.desk, &handle);
        let owner = &self.visitor.principal;
        Spot { desk: &self.desk, owner, session: handle.id(), feed: &feed }.whole(row).await
    }

    async fn offered(&self, folder: Option<String>) -> Result<Answered, Wrong> {
        let folder = self.place(folder.as_deref()).await?;
        let offer = self.desk.registry().offer(folder.clone()).await;
        Ok(Answered::Offer {
            folder: folder.display().to_string(),
            settings: settings(&offer.settings, &Settings::defaults(&offer.settings)),
            commands: offer.commands.iter().map(slash_command).collect(),
        })
    }

    async fn create(
        &self,
        folder: Option<String>,
        wanted: BTreeMap<String, String>,
    ) -> Result<Answered, Wrong> {
        let cwd = self.place(folder.as_deref()).await?;
        // What cannot be set must not leave a session behind.
        let offer = self.desk.registry().offer(cwd.clone()).await;
        for (id, value) in &wanted {
            let spec = offer.settings.iter().find(|spec| *spec.id == **id);
            let spec = spec.ok_or_else(|| bad(format!("there is no setting {id:?}")))?;
            if let Some(refusal) = spec.refuses(&value.as_str().into()) {
                return Err(bad(refusal.to_string()));
            }
        }
        let new = NewSession::in_folder(cwd);
        let handle = self.desk.service.create(&self.caller, new).await.map_err(not_done)?;
        for (id, value) in wanted {
            let (setting, value) = (id.into(), value.into());
            let changed = self.desk.service.change(&self.caller, handle.id(), &setting, &value, |_| ()).await;
            changed.map_err(not_done)?;
        }
        Ok(Answered::Opened { session: handle.id().to_string() })
    }

    async fn place(&self, wanted: Option<&str>) -> Result<PathBuf, Wrong> {
        self.desk.service.folder(&self.caller, wanted).await.map_err(not_done)
    }

    async fn prompt(
        &self,
        session: &str,
        key: String,
        text: String,
        pictures: Vec<Picture>,
    ) -> Result<Answered, Wrong> {
        let id = parse(session)?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(bad(format!("a key has 1 to {KEY_BYTES_MAX} bytes")));
        }
        let content = self.content(text, pictures)?;
        self.send_prompt(&id, Some(key), content).await
    }

    /// Done once for a key, however often it is sent: the log knows the latest ones.
    async fn send_prompt(
        &self,
        id: &SessionId,
        key: Option<String>,
        content: Vec<Content>,
    ) -> Result<Answered, Wrong> {
        let _alone = self.desk.prompting.of(id).lock().await;
        let request: Option<Arc<str>> = key.map(Into::into);
        let by = Sender { request: request.clone(), ..self.caller.sender.clone() };
        let handle = self.open(id).await?;
        let prompts = Arc::clone(&handle.snapshot().prompts);
        let same = |prompted: &&engine::Prompted| {
            prompted.surface == by.surface && request.as_ref() == Some(&prompted.request)
        };
        if let Some(known) = prompts.iter().find(same) {
            return Ok(Answered::Taken { turn: known.turn.0 });
        }
        let sent = self.desk.service.prompt(&self.caller, id, &by, content, |_| ()).await;
        sent.map(|(_, _, turn)| Answered::Taken { turn: turn.0 }).map_err(not_done)
    }

    fn content(&self, text: String, pictures: Vec<Picture>) -> Result<Vec<Content>, Wrong> {
        if text.trim().is_empty() && pictures.is_empty() {
            return Err(bad("say something"));
        }
        if pictures.len() > PICTURES_MAX {
            return Err(bad(format!("a prompt has at most {PICTURES_MAX} pictures")));
        }
        if !pictures.is_empty() && !self.desk.registry().abilities().images {
            return Err(bad("this agent does not look at pictures"));
        }
        let mut content = Vec::new();
        if !text.trim().is_empty() {
            content.push(Content::text(text));
        }
        for Picture { mime, data } in pictures {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
            if !PICTURES.contains(&mime.as_str()) || data.is_empty() || !data.bytes().all(plain) {
                return Err(bad("a picture is PNG, JPEG, GIF or WebP, in base64"));
            }
            content.push(Content::Image { mime: mime.into(), data: data.into(), uri: None });
        }
        Ok(content)
    }

    async fn cancel(&self, session: &str, turn: Option<u64>) -> Result<Answered, Wrong> {
        let cancelled = self.desk.service.cancel(&self.caller, &parse(session)?, turn.map(TurnId)).await;
        cancelled.map(|_| Answered::Done).map_err(not_done)
    }

    async fn answer(
        &self,
        session: &str,
        ask: u64,
        decision: Decision,
        text: Option<String>,
    ) -> Result<Answered, Wrong> {
        let (id, ask) = (parse(session)?, AskId(ask));
        let handle = self.session(session).await?;
        let answer = match (decision, text) {
            (Decision::AllowOnce, _) => Answer::AllowOnce,
            (Decision::AllowAlways, _) => Answer::AllowAlways,
            (Decision::DenyOnce, Some(why)) => Answer::DenyBecause(why.into()),
            (Decision::DenyOnce, None) => Answer::DenyOnce,
            (Decision::DenyAlways, _) => Answer::DenyAlways,
            (Decision::Reply, Some(text)) => Answer::Reply(text.into()),
            (Decision::Reply, None) => return Err(bad("a reply has a text")),
        };
        match self.desk.service.answer(&self.caller, &handle, ask, answer).await {
            Ok(_) => Ok(Answered::Done),
            Err(error @ ServiceError::Send(SendError::Refused(Refusal::UnknownAsk(_)))) => {
                let settled = self.desk.board.settled(&id, ask);
                Err(settled.map_or_else(|| not_done(error), |how| wrong("answered", format!("it was {how}"))))
            }
            Err(error) => Err(not_done(error)),
        }
    }

    async fn set(&self, session: &str, setting: &str, value: &str) -> Result<Answered, Wrong> {
        let (id, setting, value) = (parse(session)?, setting.into(), value.into());
        let changed = self.desk.service.change(&self.caller, &id, &setting, &value, |_| ()).await;
        changed.map(|_| Answered::Done).map_err(not_done)
    }

    async fn rename(&self, session: &str, title: &str) -> Result<Answered, Wrong> {
        let id = parse(session)?;
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() || title.len() > TITLE_BYTES_MAX {
            return Err(bad(format!("a title has 1 to {TITLE_BYTES_MAX} bytes")));
        }
        self.desk.service.rename(&self.caller, &id, &title).await.map_err(not_done)?;
        Ok(Answered::Done)
    }

    async fn delete(&self, session: &str) -> Result<Answered, Wrong> {
        match self.desk.service.delete(&self.caller, &parse(session)?).await.map_err(not_done)? {
            true => Ok(Answered::Done),
            false => Err(not_found()),
        }
    }

    async fn changes(&self, session: &str) -> Result<Answered, Wrong> {
        let handle = self.session(session).await?;
        let Some(review) = handle.review() else { return Ok(Answered::Changes { files: Vec::new() }) };
        let changed = review.changes().await.map_err(failed)?;
        let files = changed.iter().map(|changed| changed_diff(changed, ASK_LINES_MAX)).collect();
        Ok(Answered::Changes { files })
    }

    async fn keep(&self, session: &str, path: String, hunk: Option<String>) -> Result<Answered, Wrong> {
        let handle = self.session(session).await?;
        let review = handle.review().ok_or_else(no_review)?;
        let kept = review.keep(path.into(), hunk.map(Into::into)).await;
        kept.map(|()| Answered::Done).map_err(|message| wrong("stale", message))
    }

    /// A turn of its own: it waits for the running one, and stands in the log.
    async fn revert(&self, session: &str, path: &str, hunk: Option<String>) -> Result<Answered, Wrong> {
        let id = parse(session)?;
        self.open(&id).await?.review().ok_or_else(no_review)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':' | '.');
        if hunk.as_deref().is_some_and(|hunk| hunk.is_empty() || !hunk.chars().all(plain)) {
            return Err(bad("this names no hunk"));
        }
        let text = engine::revert_prompt(path.as_ref(), hunk.as_deref());
        self.send_prompt(&id, None, vec![Content::text(text)]).await
    }

    async fn find(&self, session: &str, text: String) -> Result<Answered, Wrong> {
        if text.len() > FIND_BYTES_MAX {
            return Err(bad("look for fewer letters"));
        }
        let folder = Arc::clone(&self.session(session).await?.snapshot().cwd);
        let files = blocking(move || files::find(&folder, &text)).await?;
        Ok(Answered::Files { files })
    }

    async fn rules(&self) -> Result<Answered, Wrong> {
        let Some(shelf) = self.desk.extras.shelf.clone() else {
            return Ok(Answered::Rules { rules: Vec::new() });
        };
        Ok(Answered::Rules { rules: blocking(move || shelf.list()).await? })
    }

    async fn forget(&self, rule: String) -> Result<Answered, Wrong> {
        let shelf = self.desk.extras.shelf.clone().ok_or_else(|| bad("this server keeps no rules"))?;
        let forgotten = blocking(move || shelf.forget(&rule)).await?;
        forgotten.map(|()| Answered::Done).map_err(failed)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Wrong> {
    tokio::task::spawn_blocking(work).await.map_err(|_| broken())
}

fn parse(session: &str) -> Result<SessionId, Wrong> {
    SessionId::parse(session).map_err(|error| not_opened_id(&error))
}

fn not_opened_id(error: &engine::BadSessionId) -> Wrong {
    bad(error.to_string())
}

fn no_review() -> Wrong {
    bad("this agent does not keep what it changed; use git to see and to take back changes")
}

fn broken() -> Wrong {
    failed("something went wrong inside the server; the server goes on")
}
