//! Styles by meaning. Only the sixteen colours that every terminal has and its owner chose; without colours, only
//! weight and underlining.

use ratatui_core::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Theme {
    pub colour: bool,
}

impl Theme {
    pub fn plain(self) -> Style {
        Style::new()
    }

    pub fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn good(self) -> Style {
        self.painted(Color::Green)
    }

    pub fn bad(self) -> Style {
        self.painted(Color::Red)
    }

    pub fn warn(self) -> Style {
        self.painted(Color::Yellow)
    }

    pub fn accent(self) -> Style {
        self.painted(Color::Cyan)
    }

    pub fn code(self) -> Style {
        self.painted(Color::Blue)
    }

    pub fn link(self) -> Style {
        self.painted(Color::Cyan).add_modifier(Modifier::UNDERLINED)
    }

    /// The row or choice that keys act on.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A style from a program's output.
    pub fn foreign(self, style: Style) -> Style {
        if self.colour { style } else { Style { fg: None, bg: None, ..style } }
    }

    fn painted(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}
