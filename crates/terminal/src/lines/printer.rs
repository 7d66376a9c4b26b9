//! What is written of a session's rows, and what the answers that people type mean.

use std::collections::HashMap;

use wire::native::{Append, AskView, Decision, Ended, Level, Row, Tool, ToolState, What};
use wire::plain::short_id;

use super::LineManner;
use crate::NAME;
use crate::clean::{clean, clean_but_tabs, one_line};
use crate::words;
use crate::wrap::cut;

const LINE_CELLS_MAX: usize = 160;
/// Ends of turns that are kept until it is known which is ours.
const ENDED_MAX: usize = 64;

/// Something to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Put {
    /// Said by the agent, to standard output.
    Out(String),
    /// A line about it, to standard error.
    Err { text: String, colour: Option<&'static str> },
}

impl Put {
    pub fn quiet(text: impl Into<String>) -> Self {
        Self::Err { text: text.into(), colour: Some("2") }
    }

    pub fn bad(text: impl Into<String>) -> Self {
        Self::Err { text: text.into(), colour: Some("31") }
    }

    fn warn(text: impl Into<String>) -> Self {
        Self::Err { text: text.into(), colour: Some("33") }
    }
}

#[derive(Debug)]
pub struct Printer {
    screen: bool,
    one_screen: bool,
    colour: bool,
    /// Of messages: how many bytes are written. Of others: that they were told.
    told: HashMap<u64, usize>,
    states: HashMap<u64, ToolState>,
    speaking: Option<u64>,
    mid_line: bool,
    /// Prompts of this terminal that are not in the session yet: another terminal has the same name.
    sent: Vec<String>,
    /// Messages of which the server has more than it showed.
    pub shortened: Vec<u64>,
    /// Turns that ended and were not looked at yet, and how.
    pub ended: Vec<(Option<u64>, Ended)>,
    /// Turns about which the session noted something: one that never began has no other end.
    pub noted: Vec<u64>,
}

impl Printer {
    pub fn new(manner: &LineManner) -> Self {
        Self {
            screen: manner.screen,
            one_screen: manner.one_screen,
            colour: manner.colour,
            told: HashMap::new(),
            states: HashMap::new(),
            speaking: None,
            mid_line: false,
            sent: Vec::new(),
            shortened: Vec::new(),
            ended: Vec::new(),
            noted: Vec::new(),
        }
    }

    /// This is about to be prompted from here, where it can be read already.
    pub fn sends(&mut self, text: &str) {
        self.sent.push(text.to_owned());
    }

    fn is_own(&mut self, from: &str, text: &str) -> bool {
        let sent = self.sent.iter().position(|sent| from == NAME && sent.starts_with(text));
        sent.map(|at| self.sent.remove(at)).is_some()
    }

    /// These were there before.
    pub fn skip(&mut self, rows: &[Row]) {
        for row in rows {
            let length = if let What::Said { text, .. } = &row.what { text.len() } else { 0 };
            self.told.insert(row.id, length);
            if let What::Tool(tool) = &row.what {
                self.states.insert(row.id, tool.state);
            }
        }
    }

    pub fn view(&mut self, rows: Vec<Row>, appends: &[Append]) -> Vec<Put> {
        let mut puts = self.rows(rows);
        for append in appends {
            let told = self.told.get_mut(&append.row);
            if let Some(told) = told.filter(|_| self.speaking == Some(append.row)) {
                *told += append.text.len();
                puts.extend(self.say(append.row, &append.text));
            }
        }
        puts
    }

    pub fn rows(&mut self, rows: Vec<Row>) -> Vec<Put> {
        rows.into_iter().flat_map(|row| self.row(row)).collect()
    }

    fn row(&mut self, row: Row) -> Vec<Put> {
        let is_new = !self.told.contains_key(&row.id);
        let told = *self.told.entry(row.id).or_default();
        match row.what {
            // What a sub-agent says is for the agent.
            What::Said { text, more } if row.under.is_none() => {
                self.shortened.retain(|id| *id != row.id);
                if more > 0 {
                    self.shortened.push(row.id);
                }
                let more = text.get(told..).unwrap_or_default().to_owned();
                self.told.insert(row.id, text.len().max(told));
                self.say(row.id, &more)
            }
            What::Prompt { from, text, more, attached } if is_new && !self.is_own(&from, &text) => {
                prompt(&from, &text, more, &attached)
            }
            What::Tool(tool) => self.tool(row.id, row.under.is_some(), &tool),
            What::Notice { level, text } if is_new => {
                let text = line(&text);
                vec![match level {
                    Level::Info => Put::quiet(text),
                    Level::Warning => Put::warn(format!("warning: {text}")),
                    Level::Error => Put::bad(format!("error: {text}")),
                }]
            }
            What::Ended(ended) if is_new => {
                self.ended.push((row.turn, ended));
                keep_last(&mut self.ended);
                Vec::new()
            }
            What::Note { .. } if is_new => {
                self.noted.extend(row.turn);
                keep_last(&mut self.noted);
                Vec::new()
            }
            What::Said { .. }
            | What::Prompt { .. }
            | What::Thought { .. }
            | What::Plan(_)
            | What::Question { .. }
            | What::Notice { .. }
            | What::Note { .. }
            | What::Ended(_) => Vec::new(),
        }
    }

    fn say(&mut self, row: u64, text: &str) -> Vec<Put> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut out = String::new();
        if self.speaking.replace(row).is_some_and(|last| last != row) {
            out.push_str(if self.mid_line { "\n\n" } else { "\n" });
        }
        // A file or another program gets what was said, and not what a terminal would be shown of it.
        out.push_str(&if self.screen { clean_but_tabs(text) } else { text.into() });
        self.mid_line = !out.ends_with('\n');
        vec![Put::Out(out)]
    }

    fn tool(&mut self, id: u64, below: bool, tool: &Tool) -> Vec<Put> {
        let step = if below { "  " } else { "" };
        let before = self.states.insert(id, tool.state);
        let mut puts = Vec::new();
        if before.is_none() {
            puts.push(Put::quiet(format!("{step}• {}", line(&tool.title))));
        }
        if before != Some(tool.state) && matches!(tool.state, ToolState::Failed | ToolState::Refused) {
            let why = match (&tool.reason, tool.exit) {
                (Some(reason), _) => one_line(reason),
                (None, Some(code)) => format!("exit {code}"),
                (None, None) => "failed".into(),
            };
            puts.push(Put::bad(line(&format!("{step}✗ {}: {why}", tool.title))));
        }
        puts
    }

    /// How the turn ended, after the line that was being written.
    pub fn end(&mut self, ended: &Ended, session: &str) -> Vec<Put> {
        let mut parts = vec![match (&ended.error, ended.stop.as_str()) {
            (Some(error), _) => line(error),
            (None, "endTurn") => format!("done in {}", words::elapsed(ended.elapsed_ms)),
            (None, "cancelled") => "stopped".into(),
            (None, other) => one_line(other),
        }];
        if ended.tools > 0 {
            parts.push(words::counted(ended.tools, "action"));
        }
        parts.extend(ended.cost_usd.map(words::money));
        parts.push(format!("session {}", short_id(session)));
        let text = parts.join(" · ");
        self.speaking = None;
        let mut puts = Vec::new();
        if std::mem::take(&mut self.mid_line) {
            puts.push(Put::Out("\n".into()));
        }
        puts.push(if ended.stop == "endTurn" { Put::quiet(text) } else { Put::bad(text) });
        puts
    }

    /// As it is written: in colours if there are any, and after the line that was being written.
    pub fn painted(&mut self, put: Put) -> Put {
        let Put::Err { text, colour } = put else { return put };
        let open = self.mid_line && self.one_screen;
        self.mid_line &= !open;
        let before = if open { "\n" } else { "" };
        let text = match colour.filter(|_| self.colour) {
            Some(code) => format!("{before}\u{1b}[{code}m{text}\u{1b}[0m"),
            None => format!("{before}{text}"),
        };
        Put::Err { text, colour: None }
    }
}

/// What somebody else said to the agent: as it is typed here, and by whom. Our own stands on the screen already.
fn prompt(from: &str, text: &str, more: u64, attached: &[String]) -> Vec<Put> {
    let shown = clean(text);
    let lines = shown.trim_end().split('\n').enumerate();
    let mark = |at: usize| if at == 0 { format!("{} › ", one_line(from)) } else { "  ".into() };
    let mut puts: Vec<Put> =
        lines.map(|(at, text)| Put::Err { text: mark(at) + text, colour: Some("36") }).collect();
    puts.extend((more > 0).then(|| Put::quiet(format!("  {}", words::unshown(more)))));
    puts.extend(attached.iter().map(|attached| Put::quiet(format!("  + {}", line(attached)))));
    puts
}

/// What a person is asked. Whether an answer for good becomes a rule decides how long it holds.
pub fn question(ask: &AskView, makes_rules: bool) -> Vec<Put> {
    let mut puts = Vec::new();
    if let Some(question) = &ask.question {
        puts.push(Put::warn(format!("? {}", one_line(&question.text))));
        for (at, choice) in question.choices.iter().enumerate() {
            puts.push(Put::warn(format!("  {} {}", at + 1, one_line(choice))));
        }
        puts.push(Put::quiet("a number, or an answer in words"));
        return puts;
    }
    puts.push(Put::warn(format!(
        "? {} ({} risk: {})",
        line(&ask.title),
        one_line(&ask.risk),
        line(&ask.reason)
    )));
    for text in clean(&ask.subject).split('\n') {
        puts.push(Put::warn(format!("  {text}")));
    }
    for diff in &ask.diffs {
        puts.push(Put::warn(format!("  {} +{} −{}", one_line(&diff.path), diff.added, diff.removed)));
    }
    puts.extend((ask.more > 0).then(|| Put::bad(format!("  {}", words::unshown(ask.more)))));
    let exactly = || format!("{} {}", ask.tool, ask.subject);
    let rule = line(&ask.rule.clone().filter(|_| makes_rules).unwrap_or_else(exactly));
    let always = format!("always {} ({rule})", words::lasts(makes_rules));
    puts.push(Put::quiet(match needs_words(ask) {
        true => format!("yes allow once, {always}, n deny, or n and why"),
        false => format!("y allow once, a {always}, n deny, or n and why"),
    }));
    puts
}

/// What is risky, or cannot be shown whole, is not allowed with one letter.
fn needs_words(ask: &AskView) -> bool {
    ask.more > 0 || !matches!(ask.risk.as_str(), "low" | "medium")
}

/// What a typed answer means. What is risky needs the whole word.
pub fn understood(ask: &AskView, text: &str) -> Option<(Decision, Option<String>)> {
    if let Some(question) = &ask.question {
        let number =
            text.parse::<usize>().ok().and_then(|number| question.choices.get(number.checked_sub(1)?));
        return match (number, text) {
            (Some(choice), _) => Some((Decision::Reply, Some(choice.clone()))),
            (None, "") => None,
            (None, text) => question.free_text.then(|| (Decision::Reply, Some(text.to_owned()))),
        };
    }
    let risky = needs_words(ask);
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    match word {
        "yes" => Some((Decision::AllowOnce, None)),
        "y" if !risky => Some((Decision::AllowOnce, None)),
        "a" if !risky => Some((Decision::AllowAlways, None)),
        "always" => Some((Decision::AllowAlways, None)),
        "n" | "d" | "no" => {
            Some((Decision::DenyOnce, Some(rest.trim().to_owned()).filter(|reason| !reason.is_empty())))
        }
        _ => None,
    }
}

fn keep_last<T>(list: &mut Vec<T>) {
    list.drain(..list.len().saturating_sub(ENDED_MAX));
}

fn line(text: &str) -> String {
    cut(&one_line(text), LINE_CELLS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printer(screen: bool) -> Printer {
        let manner = LineManner { attended: false, screen, one_screen: false, colour: false, seed: 1 };
        Printer::new(&manner)
    }

    fn said(id: u64, text: &str, more: u64) -> Row {
        row(json!({"id": id, "is": "said", "text": text, "more": more}))
    }

    fn row(different: Value) -> Row {
        let mut row = json!({"rev": 1, "at": 1, "turn": 1, "under": null});
        row.as_object_mut().unwrap().append(&mut different.as_object().unwrap().clone());
        serde_json::from_value(row).unwrap()
    }

    fn out(puts: Vec<Put>) -> String {
        let text = |put| if let Put::Out(text) = put { text } else { String::new() };
        puts.into_iter().map(text).collect()
    }

    #[test]
    fn what_grows_is_written_once() {
        let mut printer = printer(true);
        let mut written = out(printer.view(vec![said(1, "one", 0)], &[]));
        let more = Append { row: 1, rev: 2, text: " two\x1b".into() };
        written += &out(printer.view(Vec::new(), &[more]));
        written += &out(printer.view(vec![said(1, "one two\x1b three", 0)], &[]));
        written += &out(printer.view(vec![said(5, "four", 0)], &[]));
        assert_eq!(written, "one two␛ three\n\nfour");
    }

    #[test]
    fn a_pipe_gets_what_was_said_and_a_terminal_only_what_it_can_show() {
        let text = "\u{feff}all:\n\tcc\u{200b} \x1b[1mx\r\n";
        assert_eq!(out(printer(false).rows(vec![said(1, text, 0)])), text);
        let shown = "\u{fffd}all:\n\tcc\u{fffd} ␛[1mx\n";
        assert_eq!(out(printer(true).rows(vec![said(1, text, 0)])), shown);
    }

    #[test]
    fn a_message_that_was_shortened_is_completed() {
        let mut printer = printer(false);
        let mut written = out(printer.rows(vec![said(1, "beginning", 4)]));
        assert_eq!(printer.shortened, [1]);
        written += &out(printer.rows(vec![said(1, "beginning end", 0)]));
        assert_eq!((written.as_str(), printer.shortened.len()), ("beginning end", 0));
    }

    #[test]
    fn what_others_say_to_the_agent_is_shown_with_who_said_it() {
        let prompt = |id: u64, from: &str, text: &str| {
            row(
                json!({"id": id, "is": "prompt", "from": from, "text": text, "more": 0, "attached": ["a.png, 2 KB"]}),
            )
        };
        let texts = |puts: Vec<Put>| -> Vec<String> {
            let text = |put| if let Put::Err { text, .. } = put { text } else { panic!("{put:?}") };
            puts.into_iter().map(text).collect()
        };
        let mut printer = printer(true);
        let theirs = || prompt(1, "alice\x1b (bridge)", "mend\x1b[2J it\nand test\n");
        let expected = ["alice␛ (bridge) › mend␛[2J it", "  and test", "  + a.png, 2 KB"];
        assert_eq!(texts(printer.view(vec![theirs()], &[])), expected);
        // Once, and ours is on the screen because it was typed there.
        printer.sends("also that");
        let shortened = prompt(2, NAME, "also");
        assert_eq!(printer.view(vec![theirs(), shortened], &[]), []);
        let other_terminal = prompt(3, NAME, "also that");
        assert_eq!(texts(printer.view(vec![other_terminal], &[]))[0], "terminal › also that");
    }

    #[test]
    fn what_was_there_before_is_not_said_again() {
        let mut printer = printer(false);
        let rows = vec![said(1, "old", 0)];
        printer.skip(&rows);
        assert_eq!(printer.view(rows, &[]), []);
    }

    #[test]
    fn answers_are_understood_and_risk_takes_the_whole_word() {
        let ask = |risk: &str| -> AskView {
            serde_json::from_value(json!({"session": "s", "ask": 1, "at": 1, "row": null, "tool": "shell",
                "title": "t", "kind": "execute", "risk": risk, "reason": "", "subject": "rm", "folder": "/",
                "input": "", "diffs": [], "text": "", "more": 0, "question": null}))
            .unwrap()
        };
        let cut = AskView { more: 1, ..ask("low") };
        assert_eq!(understood(&cut, "y"), None);
        assert!(question(&cut, true).contains(&Put::bad("  … 1 byte is not shown")));
        let decided = |risk: &str, text: &str| understood(&ask(risk), text).map(|(decision, _)| decision);
        assert_eq!(decided("low", "y"), Some(Decision::AllowOnce));
        assert_eq!(decided("high", "y"), None);
        assert_eq!(decided("high", "yes"), Some(Decision::AllowOnce));
        assert_eq!(decided("low", "a"), Some(Decision::AllowAlways));
        assert_eq!(decided("low", "perhaps"), None);
        let (_, reason) = understood(&ask("low"), "n not yet").unwrap();
        assert_eq!(reason.unwrap(), "not yet");
    }
}
