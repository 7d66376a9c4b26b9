//! What the measurements that run in rounds are told on their command lines.

use std::path::PathBuf;

use anyhow::{Context, bail};

pub struct Options {
    pub quick: bool,
    pub rounds: usize,
    pub scratch: PathBuf,
    /// What is measured.
    pub program: PathBuf,
}

impl Options {
    /// `named` is the flag that names the program; `usual` says how many rounds there are, quick and otherwise.
    pub fn parse(
        mut arguments: impl Iterator<Item = String>,
        named: &str,
        usual: [usize; 2],
    ) -> anyhow::Result<Self> {
        let (mut quick, mut rounds, mut scratch, mut program) = (false, None, None, None);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--quick" => quick = true,
                "--rounds" => rounds = Some(value()?.parse()?),
                "--scratch" => scratch = Some(value()?.into()),
                known if known == named => program = Some(value()?.into()),
                _ => bail!("unknown argument {flag}"),
            }
        }
        let [short, full] = usual;
        Ok(Self {
            quick,
            rounds: rounds.unwrap_or(if quick { short } else { full }),
            scratch: scratch.context("--scratch is missing")?,
            program: program.with_context(|| format!("{named} is missing"))?,
        })
    }
}
