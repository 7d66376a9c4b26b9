//! Going away: never by one slip of the finger, and never with a turn ended unsaid.

use wire::plain::short_id;

use super::{App, Effect};

impl App {
    /// Ctrl-C: stops the turn, empties the field, and only then asks about leaving. Where it ends more than the client,
    /// it does that unless a turn runs.
    pub(super) fn interrupt(&mut self) -> Vec<Effect> {
        if self.help && !self.manner.interrupt_ends {
            self.help = false;
            return Vec::new();
        }
        if self.is_busy() && !self.is_stopping() {
            return self.cancel();
        }
        if self.manner.interrupt_ends {
            return self.leave_now();
        }
        if !self.composer.is_empty() {
            self.composer.clear();
            self.offers.close();
            return Vec::new();
        }
        if self.leave_asked {
            return self.leave_now();
        }
        self.leave_asked = true;
        self.say("Ctrl-C again leaves");
        Vec::new()
    }

    /// Ctrl-D: leaves, unless that would end a turn.
    pub(super) fn leave(&mut self) -> Vec<Effect> {
        if self.is_busy() && !self.manner.shared && !self.leave_asked {
            self.leave_asked = true;
            self.complain("A turn runs in this program and would end with it: Ctrl-D again leaves");
            return Vec::new();
        }
        self.leave_now()
    }

    fn leave_now(&mut self) -> Vec<Effect> {
        vec![Effect::Leave]
    }

    /// Somebody asked for it a moment ago.
    fn is_stopping(&self) -> bool {
        self.remark.as_ref().is_some_and(|remark| remark.text == "Stopping")
    }

    /// What is worth knowing after the screen is gone.
    pub fn last_words(&self) -> Option<String> {
        let session = self.session.as_deref()?;
        let short = short_id(session);
        if self.is_busy() && self.manner.shared {
            return Some(format!("the turn goes on; ropewalk attach {short}"));
        }
        let said = self.transcript.first().is_some();
        said.then(|| format!("to go on: ropewalk chat --resume {short}"))
    }
}
