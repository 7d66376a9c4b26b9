//! Where random bytes come from. Given, so that the vectors can be made twice.

use crate::Refused;

pub trait Random {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Refused>;
}

/// The kernel's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Refused> {
        getrandom::fill(bytes).map_err(|_| Refused::NoRandom)
    }
}

pub(crate) fn array<const N: usize>(random: &mut dyn Random) -> Result<[u8; N], Refused> {
    let mut bytes = [0; N];
    random.fill(&mut bytes)?;
    Ok(bytes)
}
