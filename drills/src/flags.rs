//! The flags of a drill.

use anyhow::{Context as _, ensure};

/// Gives the next argument, which belongs to the flag.
pub type FlagValue<'a> = &'a mut dyn FnMut() -> anyhow::Result<String>;

/// Hands each flag to `set`, which says whether it knows it.
pub fn read(
    drill: &str,
    args: &[String],
    mut set: impl FnMut(&str, FlagValue) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let mut value = || args.next().cloned().with_context(|| format!("{flag} needs a value"));
        ensure!(set(flag, &mut value)?, "{drill} does not know the argument {flag}");
    }
    Ok(())
}
