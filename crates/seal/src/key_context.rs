//! The context of derived keys and authenticated messages: a label and fields, encoded so that no two
//! lists of fields give the same bytes. Each field is preceded by its length.

/// Every label begins so. Another version of this protocol has another one, and nothing in common with it.
const VERSION: &str = "ropewalk.seal.v1";

#[derive(Clone)]
pub(crate) struct Context(Vec<u8>);

impl Context {
    pub fn of(label: &str) -> Self {
        Self(Vec::with_capacity(256)).bytes(VERSION.as_bytes()).bytes(label.as_bytes())
    }

    pub fn bytes(mut self, field: &[u8]) -> Self {
        // A field is at most a frame long, and frames are far shorter than this can say.
        let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
        self.0.extend(length.to_be_bytes());
        self.0.extend(field);
        self
    }

    pub fn text(self, field: &str) -> Self {
        self.bytes(field.as_bytes())
    }

    pub fn number(self, field: u64) -> Self {
        self.bytes(&field.to_be_bytes())
    }

    /// A number that may be missing: an empty field, which no number is.
    pub fn maybe(self, field: Option<u64>) -> Self {
        match field {
            Some(field) => self.number(field),
            None => self.bytes(&[]),
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cannot_be_shifted_into_each_other() {
        let one = Context::of("a").text("bc").text("d");
        let other = Context::of("a").text("b").text("cd");
        assert_ne!(one.as_slice(), other.as_slice());
        assert_ne!(Context::of("a").maybe(None).as_slice(), Context::of("a").maybe(Some(0)).as_slice());
        assert_ne!(Context::of("a").maybe(None).as_slice(), Context::of("a").as_slice());
    }
}
