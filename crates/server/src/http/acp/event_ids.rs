//! The ids of events in a stream: how a position is written as an id, and read back.
//!
//! A position in a log means the same after a restart. Frames that are not made from the log are counted
//! by each process from 0: their ids name the process that counted. A count of an earlier process belongs to a
//! client that has those frames, or has asked again; such a client has none of the frames that this process has sent.

use wire::cursor::{Cursor, PartialFrames, number};

#[derive(Debug, Clone, Copy)]
pub(super) enum EventIds {
    /// Of the connection's own stream: nothing there is from a log.
    Connection {
        epoch: i64,
    },
    Session {
        epoch: i64,
    },
}

impl EventIds {
    pub(super) fn format(self, position: Cursor) -> String {
        match (self, position.more) {
            (Self::Connection { epoch }, PartialFrames::Extras(count)) => format!("{epoch:x}-{count}"),
            (Self::Connection { epoch }, PartialFrames::Nothing | PartialFrames::Frames(_)) => {
                format!("{epoch:x}-0")
            }
            (Self::Session { epoch }, PartialFrames::Extras(count)) => {
                format!("{}+{epoch:x}-{count}", position.seq)
            }
            (Self::Session { .. }, PartialFrames::Nothing | PartialFrames::Frames(_)) => position.to_string(),
        }
    }

    pub(super) fn parse(self, text: &str) -> Option<Cursor> {
        match self {
            Self::Connection { epoch } => {
                let more = PartialFrames::Extras(counted(epoch, text)?);
                Some(Cursor { more, ..Cursor::default() })
            }
            Self::Session { epoch } => match text.split_once('+') {
                Some((seq, count)) => {
                    let before =
                        Cursor::parse(seq).filter(|position| position.more == PartialFrames::Nothing)?;
                    Some(Cursor { more: PartialFrames::Extras(counted(epoch, count)?), ..before })
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

    const SESSION: EventIds = EventIds::Session { epoch: 0xab };
    const CONNECTION: EventIds = EventIds::Connection { epoch: 0xab };

    #[test]
    fn a_place_comes_back_from_its_name() {
        for (ids, name) in [
            (SESSION, "12"),
            (SESSION, "12.3"),
            (SESSION, "12+ab-3"),
            (CONNECTION, "ab-0"),
            (CONNECTION, "ab-7"),
        ] {
            assert_eq!(ids.parse(name).map(|position| ids.format(position)).as_deref(), Some(name));
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
        let nothing_of = |seq| Cursor { seq: engine::Seq(seq), more: PartialFrames::Extras(0) };
        assert_eq!(SESSION.parse("12+aa-3"), Some(nothing_of(12)));
        assert_eq!(CONNECTION.parse("aa-3"), Some(nothing_of(0)));
    }
}
