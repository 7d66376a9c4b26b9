//! The real terminal: switches to the alternate screen while the client runs, and restores the terminal however it ends.

use std::io::{self, Stdout, Write, stdout};
use std::panic;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossterm::event::{
    DisableBracketedPaste, DisableFocusChange, DisableMouseCapture, EnableBracketedPaste, EnableFocusChange,
    EnableMouseCapture, Event, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags, poll, read,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use tokio::sync::mpsc;

use crate::app::App;
use crate::draw::draw;
use crate::sanitize::one_line;
use crate::wrap::cut;

/// Events that wait. A person cannot type faster than they are handled.
const EVENTS_MAX: usize = 256;
/// How often the reading thread checks whether its receiver still exists.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
const NOTICE_CELLS_MAX: usize = 120;

pub struct TerminalScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl TerminalScreen {
    pub fn open() -> io::Result<Self> {
        restore_on_panic();
        enable_raw_mode()?;
        let opened = execute!(
            stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            EnableMouseCapture,
            EnableFocusChange,
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES)
        );
        let terminal = opened.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub fn draw(&mut self, app: &mut App) -> io::Result<()> {
        execute!(stdout(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            // The size for this drawing: the terminal may be resized at any moment.
            let area = frame.area();
            app.prepare(area.width, area.height);
            if let Some(at) = draw(app, frame.buffer_mut()) {
                frame.set_cursor_position(at);
            }
        })?;
        execute!(stdout(), EndSynchronizedUpdate)
    }

    pub fn repaint(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    /// Copies a text to the clipboard, by the terminal sequence OSC 52.
    pub fn copy(&self, text: &str) -> io::Result<()> {
        let mut out = stdout();
        write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
        out.flush()
    }

    /// Rings the bell, and sends a notification (OSC 9) for terminals that show them.
    pub fn notify(&self, text: &str) -> io::Result<()> {
        // The sanitized text cannot contain anything that would end the sequence.
        let text = cut(&one_line(text), NOTICE_CELLS_MAX);
        let mut out = stdout();
        write!(out, "\x1b]9;{text}\x1b\\\x07")?;
        out.flush()
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. Errors are ignored: they cannot be shown.
fn restore() {
    drop(execute!(
        stdout(),
        PopKeyboardEnhancementFlags,
        DisableFocusChange,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    ));
    drop(disable_raw_mode());
}

/// Restores the terminal before a panic is printed, so that it can be read.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

/// The terminal's events, until it is gone or the receiver is dropped. Reading blocks, so it has a thread.
pub fn events() -> io::Result<mpsc::Receiver<Event>> {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    thread::Builder::new().name("terminal".into()).spawn(move || {
        while !sender.is_closed() {
            let event = match poll(POLL_TIMEOUT) {
                Ok(false) => continue,
                Ok(true) => read(),
                Err(error) => Err(error),
            };
            let Ok(event) = event else { return };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}
