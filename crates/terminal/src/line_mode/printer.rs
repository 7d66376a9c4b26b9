//! Prints a session's rows, and parses the answers that people type.

use std::collections::HashMap;

use wire::native::{
    AskView, Decision, NoticeSeverity, Row, RowContent, TextAppend, ToolCallState, ToolCallView, TurnSummary,
};
use wire::transcript_text::short_id;

use super::LineModeOptions;
use crate::NAME;
use crate::formatting;
use crate::sanitize::{one_line, sanitize, sanitize_keep_tabs};
use crate::wrap::cut;

const LINE_CELLS_MAX: usize = 160;
/// Ends of turns that are kept until it is known which turn is ours.
const ENDED_MAX: usize = 64;

/// Something to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A message of the agent, to standard output.
    Out(String),
    /// A line of information, to standard error.
    Err { text: String, colour: Option<&'static str> },
}

impl Output {
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
pub struct LinePrinter {
    screen: bool,
    one_screen: bool,
    colour: bool,
    /// The rows that were printed; for messages, how many bytes of each.
    told: HashMap<u64, usize>,
    states: HashMap<u64, ToolCallState>,
    speaking: Option<u64>,
    mid_line: bool,
    /// Prompts of this terminal that are not in the session yet. They are matched by text, because another terminal has the same name.
    sent: Vec<String>,
    /// Messages of which the server has more than it sent.
    pub shortened: Vec<u64>,
    /// Turns that ended and were not checked yet.
    pub ended: Vec<(Option<u64>, TurnSummary)>,
    /// Turns with a note in the session: a prompt that was withdrawn before its turn began has no other end.
    pub noted: Vec<u64>,
}

impl LinePrinter {
    pub fn new(options: &LineModeOptions) -> Self {
        Self {
            screen: options.screen,
            one_screen: options.one_screen,
            colour: options.colour,
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

    /// Remembers a prompt that is sent from here, so that it is not printed again.
    pub fn will_send(&mut self, text: &str) {
        self.sent.push(text.to_owned());
    }

    fn is_own(&mut self, from: &str, text: &str) -> bool {
        let sent = self.sent.iter().position(|sent| from == NAME && sent.starts_with(text));
        sent.map(|at| self.sent.remove(at)).is_some()
    }

    /// Marks rows as printed that were there before.
    pub fn skip(&mut self, rows: &[Row]) {
        for row in rows {
            let length = if let RowContent::AgentMessage { text, .. } = &row.what { text.len() } else { 0 };
            self.told.insert(row.id, length);
            if let RowContent::Tool(tool) = &row.what {
                self.states.insert(row.id, tool.state);
            }
        }
    }

    pub fn view(&mut self, rows: Vec<Row>, appends: &[TextAppend]) -> Vec<Output> {
        let mut outputs = self.rows(rows);
        for append in appends {
            let told = self.told.get_mut(&append.row);
            if let Some(told) = told.filter(|_| self.speaking == Some(append.row)) {
                *told += append.text.len();
                outputs.extend(self.say(append.row, &append.text));
            }
        }
        outputs
    }

    pub fn rows(&mut self, rows: Vec<Row>) -> Vec<Output> {
        rows.into_iter().flat_map(|row| self.row(row)).collect()
    }

    fn row(&mut self, row: Row) -> Vec<Output> {
        let is_new = !self.told.contains_key(&row.id);
        let told = *self.told.entry(row.id).or_default();
        match row.what {
            // Messages of a sub-agent are for the agent.
            RowContent::AgentMessage { text, more } if row.under.is_none() => {
                self.shortened.retain(|id| *id != row.id);
                if more > 0 {
                    self.shortened.push(row.id);
                }
                let more = text.get(told..).unwrap_or_default().to_owned();
                self.told.insert(row.id, text.len().max(told));
                self.say(row.id, &more)
            }
            RowContent::Prompt { from, text, more, attached } if is_new && !self.is_own(&from, &text) => {
                prompt(&from, &text, more, &attached)
            }
            RowContent::Tool(tool) => self.tool(row.id, row.under.is_some(), &tool),
            RowContent::Notice { level, text } if is_new => {
                let text = line(&text);
                vec![match level {
                    NoticeSeverity::Info => Output::quiet(text),
                    NoticeSeverity::Warning => Output::warn(format!("warning: {text}")),
                    NoticeSeverity::Error => Output::bad(format!("error: {text}")),
                }]
            }
            RowContent::TurnEnd(ended) if is_new => {
                self.ended.push((row.turn, ended));
                keep_last(&mut self.ended);
                Vec::new()
            }
            RowContent::Note { .. } if is_new => {
                self.noted.extend(row.turn);
                keep_last(&mut self.noted);
                Vec::new()
            }
            RowContent::AgentMessage { .. }
            | RowContent::Prompt { .. }
            | RowContent::Thought { .. }
            | RowContent::Plan(_)
            | RowContent::Question { .. }
            | RowContent::Notice { .. }
            | RowContent::Note { .. }
            | RowContent::TurnEnd(_) => Vec::new(),
        }
    }

    fn say(&mut self, row: u64, text: &str) -> Vec<Output> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut out = String::new();
        if self.speaking.replace(row).is_some_and(|last| last != row) {
            out.push_str(if self.mid_line { "\n\n" } else { "\n" });
        }
        // A file or another program gets the text unchanged.
        out.push_str(&if self.screen { sanitize_keep_tabs(text) } else { text.into() });
        self.mid_line = !out.ends_with('\n');
        vec![Output::Out(out)]
    }

    fn tool(&mut self, id: u64, below: bool, tool: &ToolCallView) -> Vec<Output> {
        let step = if below { "  " } else { "" };
        let before = self.states.insert(id, tool.state);
        let mut outputs = Vec::new();
        if before.is_none() {
            outputs.push(Output::quiet(format!("{step}• {}", line(&tool.title))));
        }
        if before != Some(tool.state) && matches!(tool.state, ToolCallState::Failed | ToolCallState::Refused)
        {
            let why = match (&tool.reason, tool.exit) {
                (Some(reason), _) => one_line(reason),
                (None, Some(code)) => format!("exit {code}"),
                (None, None) => "failed".into(),
            };
            outputs.push(Output::bad(line(&format!("{step}✗ {}: {why}", tool.title))));
        }
        outputs
    }

    /// The end of the turn, after the line that was being written.
    pub fn end(&mut self, ended: &TurnSummary, session: &str) -> Vec<Output> {
        let mut parts = vec![match (&ended.error, ended.stop.as_str()) {
            (Some(error), _) => line(error),
            (None, "endTurn") => format!("done in {}", formatting::elapsed(ended.elapsed_ms)),
            (None, "cancelled") => "stopped".into(),
            (None, other) => one_line(other),
        }];
        if ended.tools > 0 {
            parts.push(formatting::counted(ended.tools, "action"));
        }
        parts.extend(ended.cost_usd.map(formatting::money));
        parts.push(format!("session {}", short_id(session)));
        let text = parts.join(" · ");
        self.speaking = None;
        let mut outputs = Vec::new();
        if std::mem::take(&mut self.mid_line) {
            outputs.push(Output::Out("\n".into()));
        }
        outputs.push(if ended.stop == "endTurn" { Output::quiet(text) } else { Output::bad(text) });
        outputs
    }

    /// The output in its final form: coloured if wanted, and on a new line.
    pub fn painted(&mut self, output: Output) -> Output {
        let Output::Err { text, colour } = output else { return output };
        let open = self.mid_line && self.one_screen;
        self.mid_line &= !open;
        let before = if open { "\n" } else { "" };
        let text = match colour.filter(|_| self.colour) {
            Some(code) => format!("{before}\u{1b}[{code}m{text}\u{1b}[0m"),
            None => format!("{before}{text}"),
        };
        Output::Err { text, colour: None }
    }
}

/// A prompt of somebody else, and by whom. Our own is on the screen already.
fn prompt(from: &str, text: &str, more: u64, attached: &[String]) -> Vec<Output> {
    let shown = sanitize(text);
    let lines = shown.trim_end().split('\n').enumerate();
    let mark = |at: usize| if at == 0 { format!("{} › ", one_line(from)) } else { "  ".into() };
    let mut outputs: Vec<Output> =
        lines.map(|(at, text)| Output::Err { text: mark(at) + text, colour: Some("36") }).collect();
    outputs.extend((more > 0).then(|| Output::quiet(format!("  {}", formatting::unshown(more)))));
    outputs.extend(attached.iter().map(|attached| Output::quiet(format!("  + {}", line(attached)))));
    outputs
}

/// The text of an ask. `makes_rules` tells how long an "always" answer holds.
pub fn question(ask: &AskView, makes_rules: bool) -> Vec<Output> {
    let mut outputs = Vec::new();
    if let Some(question) = &ask.question {
        outputs.push(Output::warn(format!("? {}", one_line(&question.text))));
        for (at, choice) in question.choices.iter().enumerate() {
            outputs.push(Output::warn(format!("  {} {}", at + 1, one_line(choice))));
        }
        outputs.push(Output::quiet("type a number, or your own answer"));
        return outputs;
    }
    outputs.push(Output::warn(format!(
        "? {} ({} risk: {})",
        line(&ask.title),
        one_line(&ask.risk),
        line(&ask.reason)
    )));
    for text in sanitize(&ask.subject).split('\n') {
        outputs.push(Output::warn(format!("  {text}")));
    }
    for diff in &ask.diffs {
        outputs.push(Output::warn(format!("  {} +{} −{}", one_line(&diff.path), diff.added, diff.removed)));
    }
    outputs.extend((ask.more > 0).then(|| Output::bad(format!("  {}", formatting::unshown(ask.more)))));
    let exactly = || format!("{} {}", ask.tool, ask.subject);
    let rule = line(&ask.rule.clone().filter(|_| makes_rules).unwrap_or_else(exactly));
    let always = format!("always {} ({rule})", formatting::lasts(makes_rules));
    outputs.push(Output::quiet(match needs_words(ask) {
        true => format!("yes to allow once, {always}, n to deny, n REASON to say why"),
        false => format!("y to allow once, a for {always}, n to deny, n REASON to say why"),
    }));
    outputs
}

/// Whether an ask needs a whole word: it is risky, or cannot be shown whole.
fn needs_words(ask: &AskView) -> bool {
    ask.more > 0 || !matches!(ask.risk.as_str(), "low" | "medium")
}

/// Parses a typed answer. A risky ask needs the whole word.
pub fn parse_answer(ask: &AskView, text: &str) -> Option<(Decision, Option<String>)> {
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

    fn printer(screen: bool) -> LinePrinter {
        let options = LineModeOptions { attended: false, screen, one_screen: false, colour: false, seed: 1 };
        LinePrinter::new(&options)
    }

    fn said(id: u64, text: &str, more: u64) -> Row {
        row(json!({"id": id, "is": "said", "text": text, "more": more}))
    }

    fn row(different: Value) -> Row {
        let mut row = json!({"rev": 1, "at": 1, "turn": 1, "under": null});
        row.as_object_mut().unwrap().append(&mut different.as_object().unwrap().clone());
        serde_json::from_value(row).unwrap()
    }

    fn out(outputs: Vec<Output>) -> String {
        let text = |output| if let Output::Out(text) = output { text } else { String::new() };
        outputs.into_iter().map(text).collect()
    }

    #[test]
    fn what_grows_is_written_once() {
        let mut printer = printer(true);
        let mut written = out(printer.view(vec![said(1, "one", 0)], &[]));
        let more = TextAppend { row: 1, rev: 2, text: " two\x1b".into() };
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
        let texts = |outputs: Vec<Output>| -> Vec<String> {
            let text =
                |output| if let Output::Err { text, .. } = output { text } else { panic!("{output:?}") };
            outputs.into_iter().map(text).collect()
        };
        let mut printer = printer(true);
        let theirs = || prompt(1, "alice\x1b (bridge)", "mend\x1b[2J it\nand test\n");
        let expected = ["alice␛ (bridge) › mend␛[2J it", "  and test", "  + a.png, 2 KB"];
        assert_eq!(texts(printer.view(vec![theirs()], &[])), expected);
        // Once, and ours is on the screen because it was typed there.
        printer.will_send("also that");
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
        assert_eq!(parse_answer(&cut, "y"), None);
        assert!(question(&cut, true).contains(&Output::bad("  … 1 byte is not shown")));
        let decided = |risk: &str, text: &str| parse_answer(&ask(risk), text).map(|(decision, _)| decision);
        assert_eq!(decided("low", "y"), Some(Decision::AllowOnce));
        assert_eq!(decided("high", "y"), None);
        assert_eq!(decided("high", "yes"), Some(Decision::AllowOnce));
        assert_eq!(decided("low", "a"), Some(Decision::AllowAlways));
        assert_eq!(decided("low", "perhaps"), None);
        let (_, reason) = parse_answer(&ask("low"), "n not yet").unwrap();
        assert_eq!(reason.unwrap(), "not yet");
    }
}
