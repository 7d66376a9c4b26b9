//! What an agent and its commands leave in the workspace that can make another program run something, and what
//! an agent leaves in its own folders that makes it run something when it is started elsewhere: told once, at
//! the end of the turn, or of the command if that runs on.

use engine::{NoticeLevel, TerminalId};
use sandbox::{Mode, ProtectedEntries};

use super::Seat;
use crate::external::Folders;

impl Seat {
    /// Looks at the workspace before the agent works in it. While a command of an earlier turn runs, what was
    /// there before that turn counts.
    pub(super) async fn look_around(&self) {
        let mut before = self.before.lock().await;
        if before.is_some() && self.state().followed > 0 {
            return;
        }
        let policy = (self.shared.config.place)(Folders::of(&self.spec));
        let own = self.shared.config.own_settings.clone();
        let look = move || {
            // In a session that only reads, the agent writes its own folders all the same.
            let roots = if policy.mode.writes() { &policy.roots[..] } else { &[] };
            let fenced = policy.mode != Mode::Off;
            fenced.then(|| ProtectedEntries::look(roots).with_names_of_agent(&own))
        };
        *before = tokio::task::spawn_blocking(look).await.ok().flatten();
    }

    /// What is new and was not told, as a sentence for people.
    pub(super) async fn new_entries(&self) -> Option<String> {
        let mut before = self.before.lock().await;
        let mut entries = before.take()?;
        let look = move || {
            let text = entries.notice();
            (entries, text)
        };
        let (entries, text) = tokio::task::spawn_blocking(look).await.ok()?;
        *before = Some(entries);
        text
    }

    /// Looks after a command in a terminal of ours until it has ended.
    pub(super) fn follow(&self, terminal: &TerminalId) {
        let Some(ended) = self.desk.ended(terminal) else { return };
        self.state().followed += 1;
        let seat = self.me.clone();
        self.context.spawn(async move {
            ended.await;
            let Some(seat) = seat.upgrade() else { return };
            let text = seat.new_entries().await;
            seat.state().followed -= 1;
            if let Some(text) = text {
                seat.notice(NoticeLevel::Warning, text).await;
            }
        });
    }
}
