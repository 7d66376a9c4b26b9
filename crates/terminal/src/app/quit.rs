//! Leaving the client: never by one slip of the finger, and never ending a turn without saying so.

use wire::transcript_text::short_id;

use super::{App, Effect};

impl App {
    /// Ctrl-C: stops the turn, then empties the field, and only then asks about leaving. With `interrupt_ends`, it leaves
    /// at once unless a turn runs.
    pub(super) fn interrupt(&mut self) -> Vec<Effect> {
        if self.help && !self.options.interrupt_ends {
            self.help = false;
            return Vec::new();
        }
        if self.is_busy() && !self.is_stopping() {
            return self.cancel();
        }
        if self.options.interrupt_ends {
            return self.leave_now();
        }
        if !self.composer.is_empty() {
            self.composer.clear();
            self.completions.close();
            return Vec::new();
        }
        if self.leave_armed {
            return self.leave_now();
        }
        self.leave_armed = true;
        self.show_message("Press Ctrl-C again to quit");
        Vec::new()
    }

    /// Ctrl-D: leaves, unless that would end a turn.
    pub(super) fn leave(&mut self) -> Vec<Effect> {
        if self.is_busy() && !self.options.shared && !self.leave_armed {
            self.leave_armed = true;
            self.show_error("A turn is running and would stop. Press Ctrl-D again to quit");
            return Vec::new();
        }
        self.leave_now()
    }

    fn leave_now(&mut self) -> Vec<Effect> {
        vec![Effect::Leave]
    }

    /// Whether a stop was requested a moment ago.
    fn is_stopping(&self) -> bool {
        self.status_message.as_ref().is_some_and(|status_message| status_message.text == "Stopping")
    }

    /// A hint to print after the screen is closed.
    pub fn last_words(&self) -> Option<String> {
        let session = self.session.as_deref()?;
        let short = short_id(session);
        if self.is_busy() && self.options.shared {
            return Some(format!("the turn continues; to follow it: ropewalk attach {short}"));
        }
        let said = self.transcript.first().is_some();
        said.then(|| format!("to continue: ropewalk chat --resume {short}"))
    }
}
