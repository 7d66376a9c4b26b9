//! What clients ask for, carried out on sessions. Roles were looked at before.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use engine::{
    Answer, AskId, Content, Input, Principal, Refusal, SendError, Sender, SessionHandle, SessionId, Settings,
    TurnId, Wish,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use wire::native::fold::{changed_diff, settings, slash_command};
use wire::native::{ASK_LINES_MAX, Answered, Decision, Picture, Request, Wrong};

use super::connection::Client;
use super::history::Spot;
use super::wrong::{bad, failed, not_found, not_opened, not_taken, wrong};
use super::{files, table};
use crate::handlers::offer;

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
                id.is_none_or(|id| self.desk.registry.live(&self.visitor.principal, &id).is_some())
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
        let principal = &self.visitor.principal;
        let handle = self.desk.registry.open(principal, id).await.map_err(not_opened)?;
        if !self.desk.rules.still_opens(principal, &handle) {
            return Err(not_open());
        }
        Ok(handle)
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
        let folder = self.place(folder.as_deref())?;
        let offer = self.offer_in(folder.clone()).await?;
        Ok(Answered::Offer {
            folder: folder.display().to_string(),
            settings: settings(&offer.settings, &Settings::defaults(&offer.settings)),
            commands: offer.commands.iter().map(slash_command).collect(),
        })
    }

    /// Off the async threads: a project may lie on a slow disk.
    async fn offer_in(&self, folder: PathBuf) -> Result<engine::Offer, Wrong> {
        let registry = Arc::clone(&self.desk.registry);
        blocking(move || registry.offer(&folder)).await
    }

    async fn create(
        &self,
        folder: Option<String>,
        wanted: BTreeMap<String, String>,
    ) -> Result<Answered, Wrong> {
        let cwd = self.place(folder.as_deref())?;
        // What cannot be set must not leave a session behind.
        let offer = self.offer_in(cwd.clone()).await?;
        for (id, value) in &wanted {
            let spec = offer.settings.iter().find(|spec| *spec.id == **id);
            let spec = spec.ok_or_else(|| bad(format!("there is no setting {id:?}")))?;
            if let Some(refusal) = spec.refuses(&value.as_str().into()) {
                return Err(bad(refusal.to_string()));
            }
        }
        let wish = Wish {
            owner: self.visitor.principal.clone(),
            cwd,
            roots: Vec::new(),
            within: self.desk.rules.within(),
            servers: Vec::new(),
            source: Arc::clone(&self.desk.rules.source),
        };
        let handle = self.desk.registry.create(wish).await.map_err(not_opened)?;
        for (id, value) in wanted {
            let change = Input::Change { by: self.sender(), id: id.into(), value: value.into() };
            offer_to(&handle, change).await?;
        }
        Ok(Answered::Opened { session: handle.id().to_string() })
    }

    fn place(&self, wanted: Option<&str>) -> Result<PathBuf, Wrong> {
        self.desk.rules.place(wanted).map_err(|misplaced| match misplaced {
            crate::handlers::Misplaced::NotOpen => not_open(),
            crate::handlers::Misplaced::NotAFolder => {
                bad("this is not a folder; name one that is there, with its whole path")
            }
        })
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
        let by = Sender { request: request.clone(), ..self.sender() };
        let handle = self.open(id).await?;
        let prompts = Arc::clone(&handle.snapshot().prompts);
        let same = |prompted: &&engine::Prompted| {
            prompted.surface == by.surface && request.as_ref() == Some(&prompted.request)
        };
        if let Some(known) = prompts.iter().find(same) {
            return Ok(Answered::Taken { turn: known.turn.0 });
        }
        let input = || Input::Prompt { by: by.clone(), content: content.clone() };
        let turn = self.deliver(id, input).await?.turn;
        turn.map(|turn| Answered::Taken { turn: turn.0 }).ok_or_else(|| failed("the prompt has no turn"))
    }

    fn content(&self, text: String, pictures: Vec<Picture>) -> Result<Vec<Content>, Wrong> {
        if text.trim().is_empty() && pictures.is_empty() {
            return Err(bad("say something"));
        }
        if pictures.len() > PICTURES_MAX {
            return Err(bad(format!("a prompt has at most {PICTURES_MAX} pictures")));
        }
        if !pictures.is_empty() && !self.desk.registry.abilities().images {
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

    /// A session that is not in memory has nothing to cancel, but it has to be there.
    async fn cancel(&self, session: &str, turn: Option<u64>) -> Result<Answered, Wrong> {
        let id = parse(session)?;
        let Some(handle) = self.desk.registry.live(&self.visitor.principal, &id) else {
            self.desk.registry.row(&self.visitor.principal, &id).await.map_err(not_opened)?;
            return Ok(Answered::Done);
        };
        let cancel = Input::Cancel { by: self.sender(), only: turn.map(TurnId) };
        match handle.send(cancel).await {
            Ok(_) | Err(SendError::Closed | SendError::Refused(Refusal::Closing)) => Ok(Answered::Done),
            Err(error) => Err(not_taken(error)),
        }
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
        match offer(&handle, Input::Answer { by: self.sender(), ask, answer }).await {
            Ok(_) => Ok(Answered::Done),
            Err(error @ SendError::Refused(Refusal::UnknownAsk(_))) => {
                let settled = self.desk.board.settled(&id, ask);
                Err(settled
                    .map_or_else(|| not_taken(error), |how| wrong("answered", format!("it was {how}"))))
            }
            Err(error) => Err(not_taken(error)),
        }
    }

    async fn set(&self, session: &str, setting: &str, value: &str) -> Result<Answered, Wrong> {
        let change = || Input::Change { by: self.sender(), id: setting.into(), value: value.into() };
        self.deliver(&parse(session)?, change).await?;
        Ok(Answered::Done)
    }

    async fn rename(&self, session: &str, title: &str) -> Result<Answered, Wrong> {
        let id = parse(session)?;
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() || title.len() > TITLE_BYTES_MAX {
            return Err(bad(format!("a title has 1 to {TITLE_BYTES_MAX} bytes")));
        }
        let (registry, principal) = (&self.desk.registry, &self.visitor.principal);
        registry.rename(self.sender(), principal, &id, &title).await.map_err(not_opened)?;
        Ok(Answered::Done)
    }

    /// Runs to its end also if the client hangs up: half of it would be worse than all of it.
    async fn delete(&self, session: &str) -> Result<Answered, Wrong> {
        let (client, id) = (self.clone(), parse(session)?);
        let work = self.desk.tasks.spawn(async move {
            let deleted = client.desk.registry.delete(&client.visitor.principal, &id).await;
            if !deleted.map_err(not_opened)? {
                return Err(not_found());
            }
            Ok(Answered::Done)
        });
        work.await.unwrap_or_else(|_| Err(broken()))
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

    /// The rules are those of whoever runs the server; its clients have sessions here, and no rules.
    fn keeps_rules(&self) -> Result<(), Wrong> {
        if self.visitor.principal == Principal::local() {
            return Ok(());
        }
        Err(Wrong { code: "forbidden".into(), message: "the rules belong to the server's owner".into() })
    }

    async fn rules(&self) -> Result<Answered, Wrong> {
        self.keeps_rules()?;
        let Some(shelf) = self.desk.extras.shelf.clone() else {
            return Ok(Answered::Rules { rules: Vec::new() });
        };
        Ok(Answered::Rules { rules: blocking(move || shelf.list()).await? })
    }

    async fn forget(&self, rule: String) -> Result<Answered, Wrong> {
        self.keeps_rules()?;
        let shelf = self.desk.extras.shelf.clone().ok_or_else(|| bad("this server keeps no rules"))?;
        let forgotten = blocking(move || shelf.forget(&rule)).await?;
        forgotten.map(|()| Answered::Done).map_err(failed)
    }

    /// Hands an input to its session and waits until it is in the log. A session that left memory in
    /// this very moment is opened again: nothing of the input was seen by anybody.
    async fn deliver(&self, id: &SessionId, input: impl Fn() -> Input) -> Result<engine::Accepted, Wrong> {
        let mut sent = offer(&self.open(id).await?, input()).await;
        if matches!(sent, Err(SendError::Closed | SendError::Refused(Refusal::Closing))) {
            sent = offer(&self.open(id).await?, input()).await;
        }
        sent.map_err(not_taken)
    }
}

async fn offer_to(handle: &SessionHandle, input: Input) -> Result<engine::Accepted, Wrong> {
    offer(handle, input).await.map_err(not_taken)
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

fn not_open() -> Wrong {
    wrong("forbidden", "this folder is not open to clients; the server's owner can add it with --allow-dir")
}

fn no_review() -> Wrong {
    bad("this agent does not keep what it changed; use git to see and to take back changes")
}

fn broken() -> Wrong {
    failed("something went wrong inside the server; the server goes on")
}
