//! What a command tried and was refused, in words for people and as data for logs.
//!
//! The path was read from the memory of the command, which may change it at any time. It is shown and logged, and never
//! decides anything: the kernel has refused already.

use std::fmt::{self, Write as _};
use std::path::PathBuf;

use crate::helper_frames::{MalformedFrame, Reader, Writer};
use crate::policy::DenialReason;

#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    pub op: RefusedOperation,
    pub path: Option<PathBuf>,
    /// What was tried, where there is no path to say it: `a connection over IPv4`.
    pub detail: String,
    pub reason: Option<DenialReason>,
    /// The name of the program that tried.
    pub program: String,
}

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedOperation {
    Read,
    Write,
    Create,
    Remove,
    Rename,
    Link,
    Permissions,
    /// Times and extended attributes.
    Attributes,
    Network,
    Signal,
    Trace,
    Mount,
    Namespace,
    Kernel,
    Terminal,
    /// There were more refusals than are reported one by one.
    More,
}

impl RefusedOperation {
    pub const ALL: [RefusedOperation; 16] = [
        RefusedOperation::Read,
        RefusedOperation::Write,
        RefusedOperation::Create,
        RefusedOperation::Remove,
        RefusedOperation::Rename,
        RefusedOperation::Link,
        RefusedOperation::Permissions,
        RefusedOperation::Attributes,
        RefusedOperation::Network,
        RefusedOperation::Signal,
        RefusedOperation::Trace,
        RefusedOperation::Mount,
        RefusedOperation::Namespace,
        RefusedOperation::Kernel,
        RefusedOperation::Terminal,
        RefusedOperation::More,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::Permissions => "permissions",
            Self::Attributes => "attributes",
            Self::Network => "network",
            Self::Signal => "signal",
            Self::Trace => "trace",
            Self::Mount => "mount",
            Self::Namespace => "namespace",
            Self::Kernel => "kernel",
            Self::Terminal => "terminal",
            Self::More => "more",
        }
    }

    /// The words before a path.
    fn phrase(self) -> &'static str {
        match self {
            Self::Read => "reading",
            Self::Write => "write to",
            Self::Create => "creating",
            Self::Remove => "removing",
            Self::Rename => "renaming",
            Self::Link => "linking",
            Self::Permissions => "changing the permissions of",
            Self::Attributes => "changing the attributes of",
            Self::Network
            | Self::Signal
            | Self::Trace
            | Self::Mount
            | Self::Namespace
            | Self::Kernel
            | Self::Terminal
            | Self::More => "reaching",
        }
    }
}

/// By hand, because log lines name the reason `broken`.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Violation")
            .field("op", &self.op)
            .field("path", &self.path)
            .field("detail", &self.detail)
            .field("broken", &self.reason)
            .field("program", &self.program)
            .finish()
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.op == RefusedOperation::More {
            return f.write_str("more actions were refused than are listed here");
        }
        match &self.path {
            Some(path) => write!(f, "{} {}", self.op.phrase(), Escaped(&path.to_string_lossy()))?,
            None => write!(f, "{}", Escaped(&self.detail))?,
        }
        match self.reason {
            Some(reason) => write!(f, " refused: {reason}"),
            None => f.write_str(" refused by the sandbox"),
        }
    }
}

/// Text from a command, with characters escaped that control a terminal or change the direction of the text.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            let steers = c.is_control()
                || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{61c}' | '\u{feff}');
            if steers { write!(f, "{}", c.escape_unicode())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

const REASONS: [DenialReason; 4] =
    [DenialReason::Hidden, DenialReason::ReadOnly, DenialReason::Outside, DenialReason::Protected];

impl Violation {
    pub(crate) fn write(&self, writer: &mut Writer) {
        writer.number(RefusedOperation::ALL.iter().position(|op| *op == self.op).unwrap_or(0) as u64);
        writer.number(u64::from(self.path.is_some()));
        if let Some(path) = &self.path {
            writer.path(path);
        }
        writer.text(self.detail.as_bytes());
        let reason = self.reason.and_then(|reason| REASONS.iter().position(|known| *known == reason));
        writer.number(reason.map_or(0, |at| at as u64 + 1));
        writer.text(self.program.as_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, MalformedFrame> {
        let nth = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let op = *RefusedOperation::ALL.get(nth(reader.number()?)).ok_or(MalformedFrame)?;
        let path = if reader.number()? == 1 { Some(reader.path()?) } else { None };
        let detail = reader.string()?;
        let reason = match reader.number()? {
            0 => None,
            at => Some(*REASONS.get(nth(at - 1)).ok_or(MalformedFrame)?),
        };
        Ok(Self { op, path, detail, reason, program: reader.string()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(op: RefusedOperation, path: Option<&str>) -> Violation {
        Violation {
            op,
            path: path.map(Into::into),
            detail: "a connection over IPv4".into(),
            reason: path.map(|_| DenialReason::Outside),
            program: "sh".into(),
        }
    }

    #[test]
    fn people_understand_what_was_refused() {
        let text = |op, path| violation(op, path).to_string();
        assert_eq!(
            text(RefusedOperation::Write, Some("/etc/x")),
            "write to /etc/x refused: it is outside the workspace"
        );
        assert_eq!(text(RefusedOperation::Network, None), "a connection over IPv4 refused by the sandbox");
        let hostile = text(RefusedOperation::Create, Some("/a\u{1b}[2J\n\u{202e}b"));
        assert_eq!(hostile, "creating /a\\u{1b}[2J\\u{a}\\u{202e}b refused: it is outside the workspace");
    }

    #[test]
    fn violations_survive_the_way_from_the_helper() {
        for op in RefusedOperation::ALL {
            for path in [None, Some("/a\u{fffd}")] {
                let violation = violation(op, path);
                let mut writer = Writer::default();
                violation.write(&mut writer);
                assert_eq!(Violation::read(&mut Reader::new(&writer.body())), Ok(violation));
            }
        }
    }
}
