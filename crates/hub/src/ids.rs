//! The ids of machines and nodes. Session ids are the engine's.

use std::fmt;
use std::sync::Arc;

use access::random;

const CHARS_MAX: usize = 64;

/// The id of a machine. The machine chose it, so it is checked before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MachineId(Arc<str>);

impl MachineId {
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let well = !text.is_empty() && text.len() <= CHARS_MAX && text.bytes().all(plain);
        well.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a hub process. Each process gets a new one, so that it is never taken for the one before.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeId(Arc<str>);

impl NodeId {
    pub fn fresh() -> std::io::Result<Self> {
        let bytes: [u8; 32] = random()?;
        Ok(Self(bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>().into()))
    }

    pub fn named(name: Arc<str>) -> Self {
        Self(name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
