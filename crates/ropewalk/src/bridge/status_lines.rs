//! Status lines of the bridge, on standard error. While a full screen is drawn, they wait until it ends, and the screen
//! shows the latest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bridge::StatusPrinter;
use engine::SessionId;
use service::BridgeStatuses;
use tokio::sync::{Notify, watch};

use crate::output;

/// Maximum number of waiting lines; older ones are dropped.
const KEPT_MAX: usize = 20;
/// The start of the line that reports a connection.
const CONNECTED: &str = "[ferret] bridge connected: ";
/// Part of the line that reports a lost connection.
const TRYING_AGAIN: &str = " Trying again in ";
/// The start of the line with the session's page at the hub, which comes before the connection line.
const SEEN_AT: &str = "[ferret] bridge: people ";

pub struct StatusLines {
    session: SessionId,
    bridges: BridgeStatuses,
    inner: Mutex<Inner>,
    decided: Notify,
    /// The lines that a full screen shows.
    status: watch::Sender<Vec<String>>,
}

#[derive(Default)]
struct Inner {
    drawing: bool,
    kept: VecDeque<String>,
    /// The connection status of the session, and its page at the hub if connected.
    connection: Vec<String>,
}

impl StatusLines {
    pub fn new(session: SessionId, bridges: BridgeStatuses) -> Self {
        let (inner, decided, status) = (Mutex::default(), Notify::new(), watch::Sender::default());
        Self { session, bridges, inner, decided, status }
    }

    /// The connection status, the session's page at the hub, and the latest other line, as they change.
    pub fn status(&self) -> watch::Receiver<Vec<String>> {
        self.status.subscribe()
    }

    pub fn teller(self: &Arc<Self>) -> StatusPrinter {
        let said = Arc::clone(self);
        Arc::new(move |text| said.line(text))
    }

    /// Waits until the first connection has succeeded or failed.
    pub async fn decided(&self) {
        self.decided.notified().await;
    }

    /// Sets whether a full screen is drawn.
    pub fn drawing(&self, drawing: bool) {
        let kept = {
            let mut inner = self.lock();
            inner.drawing = drawing;
            if drawing { VecDeque::new() } else { std::mem::take(&mut inner.kept) }
        };
        kept.iter().for_each(|line| output::say(&output::harmless(line)));
    }

    fn line(&self, text: &str) {
        tracing::info!(text, "bridge");
        let mut inner = self.lock();
        if inner.drawing {
            if inner.kept.len() == KEPT_MAX {
                inner.kept.pop_front();
            }
            inner.kept.push_back(text.to_owned());
        } else {
            output::say(&output::harmless(text));
        }
        if !text.starts_with(SEEN_AT) {
            self.show(text, &mut inner.connection);
            self.decided.notify_one();
        }
    }

    /// A connection change replaces all lines; any other line replaces the latest other line.
    fn show(&self, text: &str, connection: &mut Vec<String>) {
        let is_connected =
            text.starts_with(CONNECTED) && text.ends_with(&format!(" session={}", self.session));
        let mut lines = vec![text.to_owned()];
        if is_connected {
            let page = self.bridges.status(&self.session).ui_url.filter(|url| !url.is_empty());
            lines.extend(page.map(|url| format!("people can open the session at {url}")));
        }
        if is_connected || text.contains(TRYING_AGAIN) {
            connection.clone_from(&lines);
        } else {
            lines.splice(0..0, connection.iter().cloned());
        }
        self.status.send_replace(lines);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_told_how_the_connection_is_and_what_was_said_since() {
        let session = SessionId::parse("ferret-1").unwrap();
        let said = Arc::new(StatusLines::new(session, BridgeStatuses::default()));
        said.drawing(true);
        let (tell, status) = (said.teller(), said.status());
        let shown = |text: &str| {
            tell(text);
            status.borrow().join("\n")
        };
        let connected = "[ferret] bridge connected: https://h session=ferret-1";
        let cut = "bridge: WS closed (code=1006). Trying again in 5 s; check it";
        let approval = "[ferret] bridge: alice set the approval to full session=ferret-1";
        let other = "[ferret] bridge connected: https://h session=ferret-2";
        assert_eq!(shown(connected), connected);
        assert_eq!(shown("[ferret] bridge: people see the session at https://h/s"), connected);
        assert_eq!(shown(approval), [connected, approval].join("\n"));
        assert_eq!(shown(other), [connected, other].join("\n"));
        assert_eq!(shown(cut), cut);
        assert_eq!(shown(connected), connected);
        said.drawing(false);
    }
}
