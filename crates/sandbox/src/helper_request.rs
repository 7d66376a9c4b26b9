//! The message that tells the helper which command to run behind which fence. It is a message, and not arguments, so that
//! neither paths nor environment variables can be seen in the list of processes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::command::{ChildCommand, Program};
use crate::helper_frames::{MalformedFrame, Reader, Writer};
use crate::policy::{Mode, Policy};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HelperRequest {
    pub(crate) policy: Policy,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) processes_max: u64,
    pub(crate) memory_bytes_max: u64,
    pub(crate) file_bytes_max: u64,
    pub(crate) input: Input,
}

/// What the command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Nothing,
    /// The helper's standard output is a terminal, which is to be the command's.
    Terminal,
    /// A file that comes right after this message.
    Handed,
}

impl HelperRequest {
    pub(crate) fn new(command: &ChildCommand, policy: &Policy, input: Input) -> Self {
        let arguments = match &command.program {
            Program::Shell(line) => vec!["/bin/sh".into(), "-c".into(), "--".into(), line.into()],
            Program::Exec { program, arguments } => {
                std::iter::once(program.into()).chain(arguments.iter().cloned()).collect()
            }
        };
        Self {
            policy: policy.clone(),
            arguments,
            cwd: command.cwd.clone(),
            environment: command.environment.clone(),
            processes_max: command.limits.processes_max.into(),
            memory_bytes_max: command.limits.memory_bytes_max,
            file_bytes_max: command.limits.file_bytes_max,
            input,
        }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsString> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.text(self.policy.mode.name().as_bytes());
        writer.list(&self.policy.roots, |writer, path| writer.path(path));
        writer.list(&self.policy.hidden, |writer, path| writer.path(path));
        writer.list(&self.policy.locked, |writer, path| writer.path(path));
        writer.list(&self.policy.homes, |writer, path| writer.path(path));
        writer.list(&self.arguments, |writer, argument| writer.text(argument.as_bytes()));
        writer.path(&self.cwd);
        writer.list(&self.environment, |writer, (key, value)| {
            writer.text(key.as_bytes());
            writer.text(value.as_bytes());
        });
        writer.number(self.processes_max);
        writer.number(self.memory_bytes_max);
        writer.number(self.file_bytes_max);
        writer.number(match self.input {
            Input::Nothing => 0,
            Input::Terminal => 1,
            Input::Handed => 2,
        });
        writer.frame()
    }

    pub(crate) fn read(body: &[u8]) -> Result<Self, MalformedFrame> {
        let mut reader = Reader::new(body);
        let mode: Mode = reader.string()?.parse().map_err(|_| MalformedFrame)?;
        let policy = Policy {
            mode,
            roots: reader.list(Reader::path)?,
            hidden: reader.list(Reader::path)?,
            locked: reader.list(Reader::path)?,
            homes: reader.list(Reader::path)?,
            // Roots were compared with it when they were opened; the helper takes their real paths and follows no link.
            within: None,
        };
        Ok(Self {
            policy,
            arguments: reader.list(Reader::os_string)?,
            cwd: reader.path()?,
            environment: reader.list(|reader| Ok((reader.os_string()?, reader.os_string()?)))?,
            processes_max: reader.number()?,
            memory_bytes_max: reader.number()?,
            file_bytes_max: reader.number()?,
            input: match reader.number()? {
                0 => Input::Nothing,
                1 => Input::Terminal,
                2 => Input::Handed,
                _ => return Err(MalformedFrame),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_reads_what_was_written() {
        let spec = HelperRequest {
            policy: Policy {
                mode: Mode::WorkspaceWriteNetwork,
                roots: vec!["/a b".into()],
                hidden: vec!["/c".into(), "/d\n".into()],
                locked: vec!["/e".into()],
                homes: vec!["/f".into(), "/g".into()],
                within: None,
            },
            arguments: vec!["sh".into(), "".into()],
            cwd: "/".into(),
            environment: vec![("A".into(), "b=c".into())],
            processes_max: 1,
            memory_bytes_max: u64::MAX,
            file_bytes_max: 3,
            input: Input::Handed,
        };
        let frame = spec.frame();
        for input in [Input::Nothing, Input::Terminal, Input::Handed] {
            let spec = HelperRequest { input, ..spec.clone() };
            assert_eq!(HelperRequest::read(&spec.frame()[4..]), Ok(spec));
        }
        assert_eq!(HelperRequest::read(&frame[4..frame.len() - 1]), Err(MalformedFrame));
    }
}
