//! The source of random bytes. It is a parameter, so that the test vectors can be reproduced.

use crate::SealError;

pub trait Random {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SealError>;
}

/// The random bytes of the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SealError> {
        getrandom::fill(bytes).map_err(|_| SealError::NoRandom)
    }
}

pub(crate) fn array<const N: usize>(random: &mut dyn Random) -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(bytes)
}
