//! Reports files that an agent created and that can make another program run something: in the workspace, and
//! in the agent's own folders (where they take effect when it is started elsewhere). Each is reported once,
//! at the end of the turn, or at the end of the command if that outlives the turn.

use engine::{NoticeLevel, TerminalId};
use sandbox::{Mode, ProtectedEntries};

use super::ExternalSession;
use crate::backend::Folders;

impl ExternalSession {
    /// Records what the workspace contains before the agent works in it. While a command of an earlier turn
    /// runs, the record from before that turn is kept.
    pub(super) async fn record_protected_entries(&self) {
        let mut before = self.protected_before.lock().await;
        if before.is_some() && self.state().watched_commands > 0 {
            return;
        }
        let policy = (self.shared.config.policy_factory)(Folders::of(&self.spec));
        let own = self.shared.config.own_settings.clone();
        let look = move || {
            // In a read-only session the agent still writes to its own folders.
            let roots = if policy.mode.writes() { &policy.roots[..] } else { &[] };
            let fenced = policy.mode != Mode::Off;
            fenced.then(|| ProtectedEntries::scan(roots).with_names_of_agent(&own))
        };
        *before = tokio::task::spawn_blocking(look).await.ok().flatten();
    }

    /// What is new and was not reported yet, as a sentence for people.
    pub(super) async fn new_entries(&self) -> Option<String> {
        let mut before = self.protected_before.lock().await;
        let mut protected_entries = before.take()?;
        let look = move || {
            let text = protected_entries.describe_new();
            (protected_entries, text)
        };
        let (protected_entries, text) = tokio::task::spawn_blocking(look).await.ok()?;
        *before = Some(protected_entries);
        text
    }

    /// Watches a command in one of our terminals until it has ended.
    pub(super) fn watch_command(&self, terminal: &TerminalId) {
        let Some(ended) = self.host_services.command_ended(terminal) else { return };
        self.state().watched_commands += 1;
        let session = self.me.clone();
        self.context.spawn(async move {
            ended.await;
            let Some(session) = session.upgrade() else { return };
            let text = session.new_entries().await;
            session.state().watched_commands -= 1;
            if let Some(text) = text {
                session.notice(NoticeLevel::Warning, text).await;
            }
        });
    }
}
