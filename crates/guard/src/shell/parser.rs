//! Turns a syntax tree into commands and doubts: statements, lists, pipelines and groups.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use tree_sitter::{Language, Node, ParseOptions, Parser, Tree};

use super::{CommandPosition, Doubt, DoubtReason, LINE_BYTES_MAX, Nesting, PipePosition, Script};

/// Deeper nesting is not parsed; people nest five levels at most.
const DEPTH_MAX: usize = 64;
/// The parser takes the square of this in time when a mistake comes last, and cannot be interrupted
/// meanwhile: 4000 take it a quarter of a second in a debug build.
const PIECES_MAX: usize = 4096;
/// How much of a line that is too long is read.
const BEGINNING_BYTES_MAX: usize = 2048;
/// The parser reports about every hundredth step; a line of the greatest length needs far fewer.
const PARSER_REPORTS_MAX: u32 = 20_000;
/// How much of the line a doubt quotes.
const SOURCE_CHARS_MAX: usize = 120;

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Parses a line. Of a line that is too long only the beginning is read, and the rest is a doubt.
pub fn read(line: &str) -> Script {
    let whole = line.len() <= LINE_BYTES_MAX && pieces(line) <= PIECES_MAX;
    let text = if whole { line } else { beginning(line) };
    let mut reader = Reader { text, script: Script::default(), pipes: 0, stages: 0, depth: 0 };
    if !whole {
        reader.doubt(DoubtReason::TooLong, 0..text.len());
    }
    if line.chars().any(is_invisible) {
        reader.doubt(DoubtReason::Invisible, 0..text.len());
    }
    match parse(text) {
        Some(tree) => reader.program(&tree),
        None => reader.doubt(DoubtReason::Malformed, 0..text.len()),
    }
    reader.script
}

/// About how many tokens a line has, and not fewer.
fn pieces(line: &str) -> usize {
    let mut pieces = 0;
    let mut blank = true;
    for byte in line.bytes() {
        let operator = b"|&;<>(){}$`\"'\n".contains(&byte);
        let next = matches!(byte, b' ' | b'\t');
        pieces += usize::from(operator || (blank && !next));
        blank = next || operator;
    }
    pieces
}

/// The first line of the text: its commands get the rest as their input.
fn beginning(line: &str) -> &str {
    let first = line.trim_start().lines().next().unwrap_or_default();
    first.get(..first.floor_char_boundary(BEGINNING_BYTES_MAX)).unwrap_or_default()
}

fn parse(line: &str) -> Option<Tree> {
    let line = &masked(line);
    PARSER.with_borrow_mut(|kept| {
        let mut parser = match kept.take() {
            Some(parser) => parser,
            None => {
                let mut parser = Parser::new();
                parser.set_language(&Language::new(tree_sitter_bash::LANGUAGE)).ok()?;
                parser
            }
        };
        let mut reports = 0;
        let mut patience = |_: &_| {
            reports += 1;
            if reports > PARSER_REPORTS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let options = ParseOptions::new().progress_callback(&mut patience);
        let tree =
            parser.parse_with_options(&mut |from, _| line.get(from..).unwrap_or(""), None, Some(options));
        parser.reset();
        *kept = Some(parser);
        tree
    })
}

/// The same line with every non-ASCII byte replaced by a plain sign; the length stays the same. To a shell these
/// bytes are parts of words and nothing else. The grammar's scanner asks `isdigit` about any character,
/// which reads outside of the C library's table and ends the process: `echo {\u{10ffff}`.
fn masked(line: &str) -> Cow<'_, str> {
    if line.is_ascii() {
        return Cow::Borrowed(line);
    }
    let mask = |c: char| std::iter::repeat_n(if c.is_ascii() { c } else { '%' }, c.len_utf8());
    Cow::Owned(line.chars().flat_map(mask).collect())
}

/// Characters that a person cannot see, or that change how the rest is shown.
pub(crate) fn is_invisible(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{115f}' | '\u{1160}' | '\u{3164}'
        | '\u{ffa0}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control() || (other.is_whitespace() && other != ' '),
    }
}

pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) script: Script,
    pipes: usize,
    /// How many stages the pipe that is read has so far.
    stages: usize,
    depth: usize,
}

/// What may stand between two parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AllowedGap {
    Blank,
    Lines,
}

impl<'a> Reader<'a> {
    pub(super) fn doubt(&mut self, reason: DoubtReason, at: Range<usize>) {
        let source = self.text.get(at).unwrap_or_default().chars().take(SOURCE_CHARS_MAX).collect();
        self.script.doubts.push(Doubt { reason, source });
    }

    pub(super) fn source(&self, node: Node) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    fn program(&mut self, tree: &Tree) {
        let root = tree.root_node();
        if root.has_error() {
            self.doubt(DoubtReason::Malformed, 0..self.text.len());
        }
        self.block(root, 0..self.text.len(), CommandPosition::default());
    }

    /// Statements one after the other, with `;` or line ends between them.
    fn block(&mut self, node: Node, at: Range<usize>, position: CommandPosition) {
        let mut end = at.start;
        let mut open = false;
        let inside = |child: &Node| at.start <= child.start_byte() && child.end_byte() <= at.end;
        for child in children(node).into_iter().filter(inside) {
            if !self.gap(end..child.start_byte(), AllowedGap::Lines) {
                self.doubt(DoubtReason::Malformed, end..child.start_byte());
            }
            open &= !self.text.get(end..child.start_byte()).unwrap_or_default().contains('\n');
            end = child.end_byte();
            match child.kind() {
                ";" | "\n" => open = false,
                "&" => {
                    open = false;
                    self.doubt(DoubtReason::Background, child.byte_range());
                }
                "comment" => self.comment(child),
                kind if child.is_named() => {
                    if open {
                        self.doubt(DoubtReason::Malformed, child.byte_range());
                    }
                    open = !kind.starts_with("heredoc");
                    self.statement(child, position);
                }
                _ => self.doubt(DoubtReason::Malformed, child.byte_range()),
            }
        }
        if !self.gap(end..at.end, AllowedGap::Lines) {
            self.doubt(DoubtReason::Malformed, end..at.end);
        }
    }

    /// A comment where the shell sees one too: after a blank, to the end of its line.
    fn comment(&mut self, node: Node) {
        let before = self.text.get(..node.start_byte()).unwrap_or_default();
        let begins = before.is_empty() || before.ends_with([' ', '\t', '\n', ';']);
        if !begins || before.ends_with("\\\n") || before.ends_with("\\ ") || self.source(node).contains('\n')
        {
            self.doubt(DoubtReason::Malformed, node.byte_range());
        }
    }

    /// Whether a piece of text between two parts is nothing but blanks.
    pub(super) fn gap(&self, at: Range<usize>, allowed: AllowedGap) -> bool {
        let mut rest = self.text.get(at).unwrap_or("?");
        // The shell takes continuations out before it looks for words: without a blank, two become one.
        if rest.starts_with('\\') && !rest.contains([' ', '\t']) {
            return false;
        }
        while !rest.is_empty() {
            let blanks = rest.trim_start_matches([' ', '\t']);
            let next = blanks.strip_prefix("\\\n");
            let next =
                next.or_else(|| (allowed == AllowedGap::Lines).then(|| blanks.strip_prefix('\n')).flatten());
            match next {
                Some(next) => rest = next,
                None => return blanks.is_empty(),
            }
        }
        true
    }

    pub(super) fn statement(&mut self, node: Node, position: CommandPosition) {
        if self.depth >= DEPTH_MAX {
            self.doubt(DoubtReason::TooDeep, node.byte_range());
            return;
        }
        self.depth += 1;
        match node.kind() {
            "list" => self.list(node, position),
            "pipeline" => self.pipeline(node, position),
            "negated_command" => self.chain(node, position, &["!"]),
            "subshell" => self.group(node, position, ["(", ")"]),
            "compound_statement" if self.source(node).starts_with('{') => {
                self.group(node, position, ["{", "}"])
            }
            "command"
            | "declaration_command"
            | "unset_command"
            | "test_command"
            | "redirected_statement"
            | "variable_assignment"
            | "variable_assignments" => self.simple(node, position),
            kind => self.doubtful(node, kind, position),
        }
        self.depth -= 1;
    }

    /// `a && b || c`: a chain leans to the left, so its depth is its length.
    fn list(&mut self, node: Node, position: CommandPosition) {
        let mut spine = vec![node];
        while let Some(first) =
            spine.last().and_then(|last| last.child(0)).filter(|first| first.kind() == "list")
        {
            spine.push(first);
        }
        for (nth, list) in spine.into_iter().rev().enumerate() {
            self.chain_from(list, position, &["&&", "||"], usize::from(nth > 0));
        }
    }

    fn pipeline(&mut self, node: Node, position: CommandPosition) {
        let pipe = match position.pipe {
            Some(outer) => outer,
            None => {
                self.pipes += 1;
                self.stages = 0;
                PipePosition { number: self.pipes, stage: 0 }
            }
        };
        // `|&` is something else in sh.
        self.chain(node, CommandPosition { pipe: Some(pipe), ..position }, &["|"]);
    }

    fn chain(&mut self, node: Node, position: CommandPosition, operators: &[&str]) {
        self.chain_from(node, position, operators, 0);
    }

    /// Statements with operators between them; the first `skipped` children were read before.
    fn chain_from(&mut self, node: Node, mut position: CommandPosition, operators: &[&str], skipped: usize) {
        let mut end = node.start_byte();
        let mut allowed = AllowedGap::Blank;
        for (nth, child) in children(node).into_iter().enumerate() {
            if !self.gap(end..child.start_byte(), allowed) {
                self.doubt(DoubtReason::Malformed, child.byte_range());
            }
            end = child.end_byte();
            if operators.contains(&child.kind()) {
                allowed = if child.kind() == "!" { AllowedGap::Blank } else { AllowedGap::Lines };
                continue;
            }
            allowed = AllowedGap::Blank;
            if nth < skipped {
                continue;
            }
            if !child.is_named() {
                self.doubt(DoubtReason::Malformed, child.byte_range());
                continue;
            }
            if let Some(pipe) = &mut position.pipe {
                pipe.stage = self.stages;
                self.stages += 1;
            }
            self.statement(child, position);
        }
    }

    fn group(&mut self, node: Node, position: CommandPosition, [open, close]: [&str; 2]) {
        let source = self.source(node);
        let inner = node.start_byte() + open.len()..node.end_byte().saturating_sub(close.len());
        // `{` is a word like any other unless a blank follows it, and `((` is arithmetic.
        let brace = source.starts_with("{ ") || source.starts_with("{\n") || source.starts_with("{\t");
        let plain =
            (brace || source.starts_with('(') && !source.starts_with("((")) && source.ends_with(close);
        let body = self.text.get(inner.clone()).unwrap_or_default().trim_end_matches([' ', '\t']);
        let ended =
            open == "(" || body.ends_with([';', '\n']) && !body.ends_with("\\\n") && !body.ends_with("\\;");
        if !plain || !ended || body.trim().is_empty() {
            self.doubt(DoubtReason::Malformed, node.byte_range());
        }
        let nesting = if position.nesting == Nesting::Line { Nesting::Group } else { position.nesting };
        self.block(node, inner, CommandPosition { nesting, ..position });
    }

    /// A part that is not understood, with the commands inside it.
    fn doubtful(&mut self, node: Node, kind: &str, position: CommandPosition) {
        let reason = match kind {
            "for_statement" | "c_style_for_statement" | "while_statement" => DoubtReason::Loop,
            "if_statement" | "case_statement" => DoubtReason::Condition,
            "function_definition" if self.starts_itself(node) => DoubtReason::ForkBomb,
            "function_definition" => DoubtReason::Function,
            "compound_statement" => DoubtReason::Arithmetic,
            "heredoc_redirect" => DoubtReason::HereDocument,
            "ERROR" => DoubtReason::Malformed,
            _ => DoubtReason::Other,
        };
        self.doubt(reason, node.byte_range());
        let nesting = if position.nesting == Nesting::Line { Nesting::Doubtful } else { position.nesting };
        self.descend(node, CommandPosition { nesting, ..position });
    }

    /// `f() { f | f & }`
    fn starts_itself(&self, node: Node) -> bool {
        let Some(name) = node.child_by_field_name("name").map(|name| self.source(name)) else { return false };
        let Some(body) = node.child_by_field_name("body") else { return false };
        let names = descendants(body).into_iter().filter(|inner| inner.kind() == "command_name");
        names.filter(|inner| self.source(*inner) == name).count() >= 2
    }

    /// Lists every command below a node that was not understood.
    pub(super) fn descend(&mut self, node: Node, position: CommandPosition) {
        if self.depth >= DEPTH_MAX {
            self.doubt(DoubtReason::TooDeep, node.byte_range());
            return;
        }
        self.depth += 1;
        for child in children(node) {
            match child.kind() {
                "list"
                | "pipeline"
                | "negated_command"
                | "subshell"
                | "compound_statement"
                | "command"
                | "declaration_command"
                | "unset_command"
                | "test_command"
                | "redirected_statement"
                | "function_definition"
                | "for_statement"
                | "c_style_for_statement"
                | "while_statement"
                | "if_statement"
                | "case_statement" => self.statement(child, position),
                "variable_assignment" if !within_command(node) => self.statement(child, position),
                _ if child.child_count() > 0 => self.descend(child, position),
                _ => {}
            }
        }
        self.depth -= 1;
    }
}

fn within_command(node: Node) -> bool {
    matches!(node.kind(), "command" | "declaration_command" | "variable_assignments")
}

pub(super) fn children(node: Node) -> Vec<Node> {
    let mut cursor = node.walk();
    node.children(&mut cursor).collect()
}

/// Every node below this one. Only used below the depth that `descend` guards.
pub(super) fn descendants(node: Node) -> Vec<Node> {
    let mut found = Vec::new();
    let mut open = vec![node];
    while let Some(next) = open.pop() {
        found.push(next);
        open.extend(children(next));
    }
    found
}
