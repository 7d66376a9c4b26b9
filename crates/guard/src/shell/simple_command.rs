//! Reads the parts of one simple command: its words, assignments and redirections.

use std::ops::Range;

use tree_sitter::Node;

use super::parser::{AllowedGap, Reader, children, descendants};
use super::quoting::decode;
use super::{CommandPosition, DoubtReason, Nesting, Redirect, RedirectKind, SimpleCommand, Word};

/// Words that start something other than a simple command when they stand first.
const RESERVED: [&str; 21] = [
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while",
    "until", "do", "done", "function", "coproc", "in",
];

/// Word parts without a blank between them: together they are one word.
struct AdjacentParts<'tree> {
    at: Range<usize>,
    nodes: Vec<Node<'tree>>,
}

/// A command while its parts are collected.
struct CommandDraft<'tree> {
    command: SimpleCommand,
    end: usize,
    run: Option<AdjacentParts<'tree>>,
    /// Nodes whose substitutions are searched for commands after the command itself is listed.
    later: Vec<Node<'tree>>,
}

impl Reader<'_> {
    /// A command with everything that belongs to it.
    pub(super) fn simple(&mut self, node: Node, position: CommandPosition) {
        let command =
            SimpleCommand { argv: Vec::new(), assignments: Vec::new(), redirects: Vec::new(), position };
        let mut draft = CommandDraft { command, end: node.start_byte(), run: None, later: Vec::new() };
        if node.kind() != "redirected_statement" {
            self.body(node, &mut draft);
            return self.finish(draft);
        }
        let body = node.child_by_field_name("body");
        let simple = body.filter(|body| is_simple(body.kind()));
        if let Some(body) = simple {
            self.body(body, &mut draft);
        } else if let Some(body) = body {
            draft.end = body.end_byte();
        }
        for child in
            children(node).into_iter().filter(|child| body.is_none_or(|body| body.id() != child.id()))
        {
            self.part(child, &mut draft);
        }
        self.finish(draft);
        if let Some(body) = body.filter(|_| simple.is_none()) {
            self.doubt(DoubtReason::Other, node.byte_range());
            self.statement(body, position);
        }
    }

    fn finish(&mut self, mut draft: CommandDraft) {
        self.close_run(&mut draft, None);
        let position = draft.command.position;
        let nesting = Nesting::Substitution(Some(self.script.commands.len()));
        self.script.commands.push(draft.command);
        for node in draft.later {
            self.descend(node, CommandPosition { nesting, ..position });
        }
    }

    fn body<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        match node.kind() {
            "test_command" => {
                if !self.source(node).starts_with("[ ") {
                    self.doubt(DoubtReason::Test, node.byte_range());
                }
                self.flat(node, draft);
            }
            "variable_assignment" => self.assignment(node, draft),
            _ => {
                for child in children(node) {
                    self.part(child, draft);
                }
            }
        }
    }

    /// A test is a command like any other: its expression nodes are read as plain words again.
    fn flat<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        for child in children(node) {
            let nested = child.kind().ends_with("_expression");
            if nested { self.flat(child, draft) } else { self.word_part(child, draft) }
        }
    }

    fn part<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        match node.kind() {
            "file_redirect" => self.redirect(node, draft),
            "herestring_redirect" => {
                self.begin(node, draft);
                self.doubt(DoubtReason::HereDocument, node.byte_range());
                let text = node.child(1).map(|text| self.source(text)).unwrap_or_default();
                let target = decode(text).map_or_else(|| Word::Unknown(text.into()), Word::Literal);
                draft.command.redirects.push(Redirect { kind: RedirectKind::InlineText, target });
                draft.later.push(node);
            }
            "heredoc_redirect" => self.here_document(node, draft),
            "variable_assignment" if draft.command.argv.is_empty() && draft.run.is_none() => {
                self.assignment(node, draft);
            }
            "comment" | "ERROR" => {
                self.begin(node, draft);
                self.doubt(DoubtReason::Malformed, node.byte_range());
                draft.later.push(node);
            }
            _ => self.word_part(node, draft),
        }
    }

    /// Checks that nothing stands between the last part and this one.
    fn begin<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        if !self.gap(draft.end..node.start_byte(), AllowedGap::Blank) {
            self.doubt(DoubtReason::Malformed, node.byte_range());
        }
        self.close_run(draft, Some(node));
        draft.end = node.end_byte();
    }

    fn word_part<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        if node.is_missing() || node.byte_range().is_empty() {
            self.doubt(DoubtReason::Malformed, draft.end..node.end_byte());
            return;
        }
        match &mut draft.run {
            Some(run) if run.at.end == node.start_byte() => {
                run.at.end = node.end_byte();
                run.nodes.push(node);
                draft.end = node.end_byte();
            }
            _ => {
                self.begin(node, draft);
                draft.run = Some(AdjacentParts { at: node.byte_range(), nodes: vec![node] });
            }
        }
    }

    /// The parts up to here are one word.
    fn close_run<'tree>(&mut self, draft: &mut CommandDraft<'tree>, next: Option<Node<'tree>>) {
        let Some(run) = draft.run.take() else { return };
        let source = self.text.get(run.at.clone()).unwrap_or_default();
        let first = draft.command.argv.is_empty();
        // Without a blank, `2>` and `{fd}>` are parts of the redirection that follows.
        let joined =
            next.is_some_and(|next| next.kind() == "file_redirect" && next.start_byte() == run.at.end);
        let descriptor =
            joined && (source.ends_with('}') || source.bytes().all(|byte| byte.is_ascii_digit()));
        let assigns = first && looks_like_assignment(source);
        let word = decode(source).filter(|_| !descriptor && !assigns);
        // `%1` as a command wakes a job; `sh -c` takes a line that begins with a sign for an option.
        if first && (RESERVED.contains(&source) || source.starts_with(['%', '-', '+'])) {
            self.doubt(DoubtReason::Other, run.at.clone());
        }
        if descriptor || assigns {
            self.doubt(DoubtReason::Malformed, run.at.clone());
        }
        if word.is_none() {
            self.expansions(&run.nodes);
            draft.later.extend(run.nodes);
        }
        draft.command.argv.push(word.map_or_else(|| Word::Unknown(source.into()), Word::Literal));
    }

    /// Variables and patterns only make a word unknown; an expansion that may run commands is a doubt.
    fn expansions(&mut self, nodes: &[Node]) {
        for inner in nodes.iter().flat_map(|node| descendants(*node)) {
            let reason = match inner.kind() {
                "command_substitution" | "process_substitution" => DoubtReason::Substitution,
                "arithmetic_expansion" | "subscript" => DoubtReason::Arithmetic,
                "expansion" if inner.named_child_count() > 1 => DoubtReason::Expansion,
                "expansion" if self.source(inner).contains(['@', '!', '*', '[', ':', '(']) => {
                    DoubtReason::Expansion
                }
                "subshell" | "array" | "extglob_pattern" | "regex" | "ERROR" => DoubtReason::Other,
                _ => continue,
            };
            self.doubt(reason, inner.byte_range());
        }
    }

    fn assignment<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        self.begin(node, draft);
        let source = self.source(node);
        let (name, value) = source.split_once('=').unwrap_or((source, ""));
        let word = if value.is_empty() { Some(String::new()) } else { decode(value) };
        // The shell computes what stands in brackets behind the name, too.
        if word.is_none() || name.contains('[') {
            self.expansions(&[node]);
            draft.later.push(node);
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            self.doubt(DoubtReason::Other, node.byte_range());
        }
        let word = word.map_or_else(|| Word::Unknown(value.into()), Word::Literal);
        draft.command.assignments.push((name.trim_end_matches('+').into(), word));
    }

    /// What follows the target of a redirection is a word of the command again.
    fn redirect<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        // Shells disagree about `2>&1>&2`.
        if draft.run.is_none() && draft.end == node.start_byte() && !draft.command.redirects.is_empty() {
            self.doubt(DoubtReason::Malformed, node.byte_range());
        }
        self.begin(node, draft);
        draft.end = node.start_byte();
        let mut kind = None;
        let mut operator_end = node.start_byte();
        let mut words = Vec::new();
        for child in children(node) {
            match child.kind() {
                // sh knows no more than one digit, and the grammar takes some words for descriptors.
                "file_descriptor" if kind.is_none() && is_digit(self.source(child)) => {}
                "file_descriptor" => self.doubt(DoubtReason::Malformed, child.byte_range()),
                operator if !child.is_named() && kind.is_none() => {
                    kind = Some(operator);
                    operator_end = child.end_byte();
                    if operator.starts_with('&') {
                        // In sh, `&>` is a background command and a redirection.
                        self.doubt(DoubtReason::Other, node.byte_range());
                    }
                }
                _ => words.push(child),
            }
        }
        draft.end = operator_end;
        let argv = std::mem::take(&mut draft.command.argv);
        for word in words {
            self.word_part(word, draft);
        }
        self.close_run(draft, None);
        draft.end = draft.end.max(node.end_byte());
        let mut taken = std::mem::replace(&mut draft.command.argv, argv).into_iter();
        let Some(target) = taken.next() else {
            // `2>&-` closes a descriptor and has no target; the program may not even start then.
            let closes = self.source(node).ends_with("&-");
            self.doubt(if closes { DoubtReason::Other } else { DoubtReason::Malformed }, node.byte_range());
            return;
        };
        draft.command.argv.extend(taken);
        let kind = direction(kind.unwrap_or_default(), &target);
        // Others may not be open, and then the command does not run.
        if kind == RedirectKind::Duplicate && !matches!(target.text(), "0" | "1" | "2") {
            self.doubt(DoubtReason::Other, node.byte_range());
        }
        draft.command.redirects.push(Redirect { kind, target });
    }

    /// The body is text for the program, but the rest of its first line is still part of the line.
    fn here_document<'tree>(&mut self, node: Node<'tree>, draft: &mut CommandDraft<'tree>) {
        self.close_run(draft, None);
        draft.end = node.end_byte();
        self.doubt(DoubtReason::HereDocument, node.byte_range());
        for child in children(node) {
            match child.kind() {
                "heredoc_body" => {
                    let text = self.source(child).to_owned();
                    draft
                        .command
                        .redirects
                        .push(Redirect { kind: RedirectKind::InlineText, target: Word::Unknown(text) });
                }
                "file_redirect" => {
                    draft.end = child.start_byte();
                    self.redirect(child, draft);
                    draft.end = node.end_byte();
                }
                _ => {}
            }
        }
        draft.later.push(node);
    }
}

fn is_digit(text: &str) -> bool {
    matches!(text.as_bytes(), [digit] if digit.is_ascii_digit())
}

fn is_simple(kind: &str) -> bool {
    matches!(
        kind,
        "command"
            | "declaration_command"
            | "unset_command"
            | "test_command"
            | "variable_assignment"
            | "variable_assignments"
    )
}

/// `a=b`, `a+=b` and `a[i]=b` as a first word assign, whatever the parser made of it.
fn looks_like_assignment(source: &str) -> bool {
    let name = source.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
    let rest = source.get(name..).unwrap_or_default();
    name > 0
        && !source.starts_with(|c: char| c.is_ascii_digit())
        && rest.starts_with(['=', '+', '['])
        && rest.contains('=')
}

fn direction(operator: &str, target: &Word) -> RedirectKind {
    let descriptor = target.literal().is_some_and(|text| {
        text == "-" || (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
    });
    match operator {
        ">&" | "<&" if descriptor => RedirectKind::Duplicate,
        "<" | "<&" => RedirectKind::Read,
        // Whatever is not known to read, writes.
        _ => RedirectKind::Write,
    }
}
