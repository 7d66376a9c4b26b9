//! What the helper reports to the program that started it.

use crate::helper_frames::{MalformedFrame, Reader, Writer};
use crate::violation::Violation;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HelperReport {
    /// The fence stands and the command runs inside.
    Started,
    Refused(Violation),
    /// The command held more memory than it may, and was ended.
    TooMuchMemory,
    /// The command had more processes than it may, and was ended.
    TooManyProcesses,
    /// The program itself could not be started; an error number.
    NotStarted(i32),
    /// The fence could not be built, so nothing was started.
    NoFence(String),
}

impl HelperReport {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Started => writer.number(0),
            Self::Refused(violation) => {
                writer.number(1);
                violation.write(&mut writer);
            }
            Self::TooMuchMemory => writer.number(2),
            Self::TooManyProcesses => writer.number(3),
            Self::NotStarted(error) => {
                writer.number(4);
                writer.number(u64::from(error.unsigned_abs()));
            }
            Self::NoFence(reason) => {
                writer.number(5);
                writer.text(reason.as_bytes());
            }
        }
        writer.frame()
    }

    pub(crate) fn read(body: &[u8]) -> Result<Self, MalformedFrame> {
        let mut reader = Reader::new(body);
        Ok(match reader.number()? {
            0 => Self::Started,
            1 => Self::Refused(Violation::read(&mut reader)?),
            2 => Self::TooMuchMemory,
            3 => Self::TooManyProcesses,
            4 => Self::NotStarted(i32::try_from(reader.number()?).map_err(|_| MalformedFrame)?),
            5 => Self::NoFence(reader.string()?),
            _ => return Err(MalformedFrame),
        })
    }
}
