//! Entry points of the fuzz targets. The seeds under `fuzz/corpus/` run through the same functions as an ordinary
//! test, so every finding stays covered. Not part of the crate's interface.

use std::path::{Path, PathBuf};

use engine::Risk;

use crate::shell::{self, RedirectKind};
use crate::{CommandScope, Workplace, assess_command, covers, scope_of_always};

/// A line of shell.
pub fn shell(data: &[u8]) {
    let Ok(line) = std::str::from_utf8(data) else { return };
    let script = shell::read(line);
    let cwd = PathBuf::from("/home/me/project");
    let place = Workplace { cwd: &cwd, roots: std::slice::from_ref(&cwd), home: Some(Path::new("/home/me")) };
    let said = assess_command(line, &place);
    assert!(!said.reason.chars().any(char::is_control), "the reason can be shown: {:?}", said.reason);
    let control = line.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
    let words = || script.commands.iter().flat_map(|command| &command.argv);
    if said.risk == Risk::Low {
        assert!(!control, "an invisible character is never harmless: {line:?}");
        assert!(script.doubts.is_empty(), "what is not understood is never harmless: {line:?}");
        assert!(words().all(|word| word.literal().is_some()), "an unknown word is never harmless: {line:?}");
        for command in &script.commands {
            assert!(command.assignments.is_empty(), "an assignment is never harmless: {line:?}");
            let quiet = command
                .redirects
                .iter()
                .all(|redirect| redirect.kind != RedirectKind::InlineText && !redirect.writes());
            assert!(quiet, "a redirection into a file is never harmless: {line:?}");
        }
    }
    match scope_of_always(line) {
        CommandScope::Exact => {}
        CommandScope::Program(tokens) => {
            assert!(covers(&tokens, line), "a rule covers the line that it was made of: {line:?}");
            assert!(said.risk < Risk::High, "a dangerous line is only ever allowed exactly: {line:?}");
        }
    }
}
