//! What the bridge says, on standard error; while a screen is drawn there, it waits for the screen's end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use net::bridge::Teller;
use tokio::sync::Notify;

use crate::terminal;

/// Lines that wait. The last ones say how things are.
const KEPT_MAX: usize = 20;

#[derive(Default)]
pub struct Said {
    inner: Mutex<Inner>,
    decided: Notify,
}

#[derive(Default)]
struct Inner {
    drawing: bool,
    kept: VecDeque<String>,
}

impl Said {
    pub fn teller(self: &Arc<Self>) -> Teller {
        let said = Arc::clone(self);
        Arc::new(move |text| said.line(text))
    }

    /// Waits until it is connected, or is not.
    pub async fn decided(&self) {
        self.decided.notified().await;
    }

    /// A screen is drawn from here on, or not any more.
    pub fn drawing(&self, drawing: bool) {
        let kept = {
            let mut inner = self.lock();
            inner.drawing = drawing;
            if drawing { VecDeque::new() } else { std::mem::take(&mut inner.kept) }
        };
        kept.iter().for_each(|line| terminal::say(&terminal::harmless(line)));
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
            terminal::say(&terminal::harmless(text));
        }
        drop(inner);
        if !text.starts_with("[ferret] bridge: people") {
            self.decided.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
