//! How the places in a stream are called in its events' ids.
//!
//! A place in a log means the same after a restart. Frames that are not made from the log are counted,
//! and by each process anew: their ids say which process counted. What an earlier one counted was for a
//! client that has it, or has asked again; of what this one has said, such a client has nothing.

use wire::cursor::{Cursor, More, number};

#[derive(Debug, Clone, Copy)]
pub(super) enum Places {
    /// Of the connection's own stream: nothing there stands in a log.
    Connection {
        epoch: i64,
    },
    Session {
        epoch: i64,
    },
}

impl Places {
    pub(super) fn name(self, position: Cursor) -> String {
        match (self, position.more) {
            (Self::Connection { epoch }, More::Extras(count)) => format!("{epoch:x}-{count}"),
            (Self::Connection { epoch }, More::Nothing | More::Frames(_)) => format!("{epoch:x}-0"),
            (Self::Session { epoch }, More::Extras(count)) => {
                format!("{}+{epoch:x}-{count}", position.seq)
            }
            (Self::Session { .. }, More::Nothing | More::Frames(_)) => position.to_string(),
        }
    }

    pub(super) fn parse(self, text: &str) -> Option<Cursor> {
        match self {
            Self::Connection { epoch } => {
                let more = More::Extras(counted(epoch, text)?);
                Some(Cursor { more, ..Cursor::default() })
            }
            Self::Session { epoch } => match text.split_once('+') {
                Some((seq, count)) => {
                    let before = Cursor::parse(seq).filter(|position| position.more == More::Nothing)?;
                    Some(Cursor { more: More::Extras(counted(epoch, count)?), ..before })
                }
                None => Cursor::parse(text),
            },
        }
    }
}

/// How many frames the client has of those that this process has counted.
fn counted(epoch: i64, text: &str) -> Option<u32> {
    let (counted_by, count) = text.split_once('-')?;
    let count = number(count).and_then(|count| u32::try_from(count).ok())?;
    if counted_by == format!("{epoch:x}") {
        return Some(count);
    }
    let known = !counted_by.is_empty() && counted_by.bytes().all(|byte| byte.is_ascii_hexdigit());
    known.then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: Places = Places::Session { epoch: 0xab };
    const CONNECTION: Places = Places::Connection { epoch: 0xab };

    #[test]
    fn a_place_comes_back_from_its_name() {
        for (places, name) in [
            (SESSION, "12"),
            (SESSION, "12.3"),
            (SESSION, "12+ab-3"),
            (CONNECTION, "ab-0"),
            (CONNECTION, "ab-7"),
        ] {
            assert_eq!(places.parse(name).map(|position| places.name(position)).as_deref(), Some(name));
        }
        for bad in ["", "12+3", "12+-3", "12+ab-", "12+ab-+3", "1.2+ab-3", "12+xy-3", "+ab-3", "ab-3"] {
            assert_eq!(SESSION.parse(bad), None, "{bad:?}");
        }
        for bad in ["", "12", "ab", "ab-", "ab-x", "-1", "xy-1", "1+ab-1"] {
            assert_eq!(CONNECTION.parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_an_earlier_process_counted_says_nothing_of_what_this_one_has_said() {
        let nothing_of = |seq| Cursor { seq: engine::Seq(seq), more: More::Extras(0) };
        assert_eq!(SESSION.parse("12+aa-3"), Some(nothing_of(12)));
        assert_eq!(CONNECTION.parse("aa-3"), Some(nothing_of(0)));
    }
}
