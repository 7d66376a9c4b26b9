//! From a syntax tree to commands and doubts: statements, lists, pipes and groups.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use tree_sitter::{Language, Node, ParseOptions, Parser, Tree};

use super::{Doubt, LINE_BYTES_MAX, Pipe, Place, Script, Unread, Within};

/// Deeper nesting is not looked through; people nest five deep at most.
const DEPTH_MAX: usize = 64;
/// The parser reports about every hundredth step; a line of the greatest length needs far fewer.
const PARSER_REPORTS_MAX: u32 = 20_000;
/// What a doubt quotes of the line.
const SOURCE_CHARS_MAX: usize = 120;

thread_local! {
    static PARSER: RefCell<Option<Parser>> = const { RefCell::new(None) };
}

/// Takes a line apart.
pub fn read(line: &str) -> Script {
    let mut reader = Reader { text: line, script: Script::default(), pipes: 0, depth: 0 };
    if line.len() > LINE_BYTES_MAX {
        reader.doubt(Unread::TooLong, 0..0);
        return reader.script;
    }
    if line.chars().any(is_invisible) {
        reader.doubt(Unread::Invisible, 0..line.len());
    }
    match parse(line) {
        Some(tree) => reader.program(&tree),
        None => reader.doubt(Unread::Malformed, 0..line.len()),
    }
    reader.script
}

fn parse(line: &str) -> Option<Tree> {
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
    depth: usize,
}

/// Which line ends may stand between two parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    Blank,
    Lines,
}

impl<'a> Reader<'a> {
    pub(super) fn doubt(&mut self, reason: Unread, at: Range<usize>) {
        let source = self.text.get(at).unwrap_or_default().chars().take(SOURCE_CHARS_MAX).collect();
        self.script.doubts.push(Doubt { reason, source });
    }

    pub(super) fn source(&self, node: Node) -> &'a str {
        self.text.get(node.byte_range()).unwrap_or_default()
    }

    fn program(&mut self, tree: &Tree) {
        let root = tree.root_node();
        if root.has_error() {
            self.doubt(Unread::Malformed, 0..self.text.len());
        }
        self.block(root, 0..self.text.len(), Place::default());
    }

    /// Statements one after the other, with `;` or line ends between them.
    fn block(&mut self, node: Node, at: Range<usize>, place: Place) {
        let mut end = at.start;
        let mut open = false;
        for child in children(node) {
            let gap = self.gap(end..child.start_byte(), Gap::Lines);
            open &= !self.text.get(end..child.start_byte()).unwrap_or_default().contains('\n');
            end = child.end_byte();
            match child.kind() {
                ";" | "\n" => open = false,
                "&" => {
                    open = false;
                    self.doubt(Unread::Background, child.byte_range());
                }
                "comment" => self.comment(child),
                kind if child.is_named() => {
                    if open || !gap {
                        self.doubt(Unread::Malformed, child.byte_range());
                    }
                    open = !kind.starts_with("heredoc");
                    self.statement(child, place);
                }
                _ => self.doubt(Unread::Malformed, child.byte_range()),
            }
        }
        if !self.gap(end..at.end, Gap::Lines) {
            self.doubt(Unread::Malformed, end..at.end);
        }
    }

    /// A comment where the shell sees one too: after a blank, to the end of its line.
    fn comment(&mut self, node: Node) {
        let before = self.text.get(..node.start_byte()).unwrap_or_default();
        let begins = before.is_empty() || before.ends_with([' ', '\t', '\n', ';']);
        if !begins || before.ends_with("\\\n") || before.ends_with("\\ ") || self.source(node).contains('\n')
        {
            self.doubt(Unread::Malformed, node.byte_range());
        }
    }

    /// Whether a piece of text between two parts is nothing but blanks.
    pub(super) fn gap(&self, at: Range<usize>, allowed: Gap) -> bool {
        let mut rest = self.text.get(at).unwrap_or("?");
        while !rest.is_empty() {
            let blanks = rest.trim_start_matches([' ', '\t']);
            let next = blanks.strip_prefix("\\\n");
            let next = next.or_else(|| (allowed == Gap::Lines).then(|| blanks.strip_prefix('\n')).flatten());
            match next {
                Some(next) => rest = next,
                None => return blanks.is_empty(),
            }
        }
        true
    }

    pub(super) fn statement(&mut self, node: Node, place: Place) {
        if self.depth >= DEPTH_MAX {
            self.doubt(Unread::TooDeep, node.byte_range());
            return;
        }
        self.depth += 1;
        match node.kind() {
            "list" => self.list(node, place),
            "pipeline" => self.pipeline(node, place),
            "negated_command" => self.chain(node, place, &["!"]),
            "subshell" => self.group(node, place, ["(", ")"]),
            "compound_statement" if self.source(node).starts_with('{') => self.group(node, place, ["{", "}"]),
            "command"
            | "declaration_command"
            | "unset_command"
            | "test_command"
            | "redirected_statement"
            | "variable_assignment"
            | "variable_assignments" => self.simple(node, place),
            kind => self.doubtful(node, kind, place),
        }
        self.depth -= 1;
    }

    /// `a && b || c`: a chain leans to the left, so its depth is its length.
    fn list(&mut self, node: Node, place: Place) {
        let mut spine = vec![node];
        while let Some(first) =
            spine.last().and_then(|last| last.child(0)).filter(|first| first.kind() == "list")
        {
            spine.push(first);
        }
        for (nth, list) in spine.into_iter().rev().enumerate() {
            self.chain_from(list, place, &["&&", "||"], usize::from(nth > 0));
        }
    }

    fn pipeline(&mut self, node: Node, place: Place) {
        let pipe = match place.pipe {
            Some(outer) => outer,
            None => {
                self.pipes += 1;
                Pipe { number: self.pipes, stage: 0 }
            }
        };
        // `|&` is something else in sh.
        self.chain(node, Place { pipe: Some(pipe), ..place }, &["|"]);
    }

    fn chain(&mut self, node: Node, place: Place, operators: &[&str]) {
        self.chain_from(node, place, operators, 0);
    }

    /// Statements with operators between them; the first `skipped` children were read before.
    fn chain_from(&mut self, node: Node, mut place: Place, operators: &[&str], skipped: usize) {
        let mut end = node.start_byte();
        let mut allowed = Gap::Blank;
        for (nth, child) in children(node).into_iter().enumerate() {
            if !self.gap(end..child.start_byte(), allowed) {
                self.doubt(Unread::Malformed, child.byte_range());
            }
            end = child.end_byte();
            if operators.contains(&child.kind()) {
                allowed = if child.kind() == "!" { Gap::Blank } else { Gap::Lines };
                continue;
            }
            allowed = Gap::Blank;
            if nth < skipped {
                continue;
            }
            if !child.is_named() {
                self.doubt(Unread::Malformed, child.byte_range());
                continue;
            }
            if let Some(pipe) = &mut place.pipe {
                pipe.stage = self.stages(pipe.number);
            }
            self.statement(child, place);
        }
    }

    /// How many commands of a pipe were read: the number of the next stage.
    fn stages(&self, number: usize) -> usize {
        let of_pipe = |command: &&super::Simple| command.place.pipe.is_some_and(|pipe| pipe.number == number);
        self.script
            .commands
            .iter()
            .rev()
            .find(of_pipe)
            .map_or(0, |last| last.place.pipe.map_or(0, |pipe| pipe.stage + 1))
    }

    fn group(&mut self, node: Node, place: Place, [open, close]: [&str; 2]) {
        let source = self.source(node);
        let inner = node.start_byte() + open.len()..node.end_byte().saturating_sub(close.len());
        let plain = source.starts_with(open) && source.ends_with(close) && !source.starts_with("((");
        if !plain {
            self.doubt(Unread::Malformed, node.byte_range());
        }
        let within = if place.within == Within::Line { Within::Group } else { place.within };
        self.inner(node, inner, Place { within, ..place });
    }

    /// What is between two brackets.
    fn inner(&mut self, node: Node, at: Range<usize>, place: Place) {
        let mut end = at.start;
        let mut open = false;
        for child in children(node)
            .into_iter()
            .filter(|child| at.start <= child.start_byte() && child.end_byte() <= at.end)
        {
            let gap = self.text.get(end..child.start_byte()).unwrap_or("?");
            open &= !gap.contains('\n');
            let blank = self.gap(end..child.start_byte(), Gap::Lines);
            end = child.end_byte();
            match child.kind() {
                ";" | "\n" => open = false,
                _ if child.is_named() && blank && !open => {
                    open = true;
                    self.statement(child, place);
                }
                _ => {
                    self.doubt(Unread::Malformed, child.byte_range());
                    self.descend(child, place);
                }
            }
        }
    }

    /// Something that is not understood, with whatever commands are in it.
    fn doubtful(&mut self, node: Node, kind: &str, place: Place) {
        let reason = match kind {
            "for_statement" | "c_style_for_statement" | "while_statement" => Unread::Loop,
            "if_statement" | "case_statement" => Unread::Condition,
            "function_definition" if self.starts_itself(node) => Unread::ForkBomb,
            "function_definition" => Unread::Function,
            "compound_statement" => Unread::Arithmetic,
            "heredoc_redirect" => Unread::HereDocument,
            "ERROR" => Unread::Malformed,
            _ => Unread::Other,
        };
        self.doubt(reason, node.byte_range());
        let within = if place.within == Within::Line { Within::Doubtful } else { place.within };
        self.descend(node, Place { within, ..place });
    }

    /// `f() { f | f & }`
    fn starts_itself(&self, node: Node) -> bool {
        let Some(name) = node.child_by_field_name("name").map(|name| self.source(name)) else { return false };
        let Some(body) = node.child_by_field_name("body") else { return false };
        let names = descendants(body).into_iter().filter(|inner| inner.kind() == "command_name");
        names.filter(|inner| self.source(*inner) == name).count() >= 2
    }

    /// Every command below a node that was not understood itself.
    pub(super) fn descend(&mut self, node: Node, place: Place) {
        if self.depth >= DEPTH_MAX {
            self.doubt(Unread::TooDeep, node.byte_range());
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
                | "case_statement" => self.statement(child, place),
                "variable_assignment" if !within_command(node) => self.statement(child, place),
                _ if child.child_count() > 0 => self.descend(child, place),
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
