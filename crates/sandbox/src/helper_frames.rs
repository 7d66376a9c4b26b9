//! The wire between this program and its helper: frames of a length and a body, and bodies made of numbers and byte strings.
//!
//! Both ends are the same program, so there is no version. A frame that cannot be read is a bug or a foreign helper, and ends
//! the command.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The largest frame. A command line and an environment are at most about two megabytes on Linux.
pub(crate) const HELPER_FRAME_BYTES_MAX: usize = 8 << 20;

#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn number(&mut self, number: u64) {
        self.bytes.extend(number.to_le_bytes());
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes.extend(text);
    }

    pub(crate) fn path(&mut self, path: &Path) {
        self.text(path.as_os_str().as_bytes());
    }

    pub(crate) fn list<T>(&mut self, items: &[T], mut put: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            put(self, item);
        }
    }

    #[cfg(test)]
    pub(crate) fn body(self) -> Vec<u8> {
        self.bytes
    }

    /// The body with its length in front.
    pub(crate) fn frame(self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.bytes.len() + 4);
        frame.extend(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        frame.extend(self.bytes);
        frame
    }
}

/// The body is not one that this program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message between the program and its helper is malformed")]
pub(crate) struct MalformedFrame;

pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn number(&mut self) -> Result<u64, MalformedFrame> {
        let (number, rest) = self.bytes.split_first_chunk::<8>().ok_or(MalformedFrame)?;
        self.bytes = rest;
        Ok(u64::from_le_bytes(*number))
    }

    pub(crate) fn text(&mut self) -> Result<&'a [u8], MalformedFrame> {
        let length = usize::try_from(self.number()?).map_err(|_| MalformedFrame)?;
        let (text, rest) = self.bytes.split_at_checked(length).ok_or(MalformedFrame)?;
        self.bytes = rest;
        Ok(text)
    }

    pub(crate) fn os_string(&mut self) -> Result<OsString, MalformedFrame> {
        Ok(OsString::from_vec(self.text()?.to_vec()))
    }

    pub(crate) fn path(&mut self) -> Result<PathBuf, MalformedFrame> {
        Ok(self.os_string()?.into())
    }

    pub(crate) fn string(&mut self) -> Result<String, MalformedFrame> {
        Ok(String::from_utf8_lossy(self.text()?).into_owned())
    }

    pub(crate) fn list<T>(
        &mut self,
        mut get: impl FnMut(&mut Self) -> Result<T, MalformedFrame>,
    ) -> Result<Vec<T>, MalformedFrame> {
        let count = self.number()?;
        (0..count).map(|_| get(self)).collect()
    }
}

/// Takes the first whole frame out of what was received so far.
pub(crate) fn take_frame(received: &mut Vec<u8>) -> Result<Option<Vec<u8>>, MalformedFrame> {
    let Some((length, _)) = received.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > HELPER_FRAME_BYTES_MAX {
        return Err(MalformedFrame);
    }
    if received.len() < 4 + length {
        return Ok(None);
    }
    let rest = received.split_off(4 + length);
    let mut frame = std::mem::replace(received, rest);
    frame.drain(..4);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut writer = Writer::default();
        writer.number(7);
        writer.list(&["a", "", "ü"], |writer, item| writer.text(item.as_bytes()));
        let frame = writer.frame();
        let mut received = Vec::new();
        for byte in &frame[..frame.len() - 1] {
            received.push(*byte);
            assert_eq!(take_frame(&mut received), Ok(None));
        }
        received.extend([frame[frame.len() - 1], 9]);
        let body = take_frame(&mut received).unwrap().unwrap();
        assert_eq!(received, [9]);
        let mut reader = Reader::new(&body);
        assert_eq!(reader.number(), Ok(7));
        assert_eq!(reader.list(Reader::string).unwrap(), ["a", "", "ü"]);
        assert_eq!(reader.number(), Err(MalformedFrame));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert_eq!(take_frame(&mut vec![255; 8]), Err(MalformedFrame));
        let mut writer = Writer::default();
        writer.number(u64::MAX);
        assert_eq!(Reader::new(&writer.body()).text(), Err(MalformedFrame));
    }
}
