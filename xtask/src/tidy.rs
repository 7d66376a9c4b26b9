//! `cargo xtask tidy`: the rules that no compiler checks. Also a test, so that nobody learns of them in CI.
//!
//! Every rule is a function from data to a list of problems; each problem names its file and what
//! to do about it. The rules see the files that git knows or would add, not what happens to lie around.

mod edges;
mod graph;
mod names;
mod papers;
mod sources;
mod walls;

use std::fs;

use anyhow::{Context, bail};

use xtask::command::{self, program};

/// The page whose drawing of the rooms is made here.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// With `--write` the drawing is made anew first.
pub fn run(arguments: &[&str]) -> anyhow::Result<()> {
    match arguments {
        [] => {}
        ["--write"] => {
            let page = document(&files()?, ARCHITECTURE)?;
            let drawn = graph::redrawn(&page, &edges::crates()?).map_err(anyhow::Error::msg)?;
            fs::write(command::root().join(ARCHITECTURE), drawn)
                .context("writing the drawing of the rooms")?;
        }
        [other, ..] => bail!("tidy knows --write, not {other}"),
    }
    let problems = check()?;
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        println!("tidy: {problem}");
    }
    bail!("{} problems", problems.len())
}

/// A file of the repository as the rules see it.
pub struct File {
    /// Relative to the root, with `/`.
    pub path: String,
    /// Empty for what is no text.
    pub text: String,
}

impl File {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| extensions.contains(&found))
    }
}

fn check() -> anyhow::Result<Vec<String>> {
    let files = files()?;
    let mut problems = Vec::new();
    let (architecture, crates) = (document(&files, ARCHITECTURE)?, edges::crates()?);
    problems.extend(edges::check(&architecture, &crates));
    problems.extend(match graph::redrawn(&architecture, &crates) {
        Ok(drawn) if drawn == architecture => None,
        Ok(_) => {
            Some("ARCHITECTURE.md: the drawing of the rooms is old; run `cargo xtask tidy --write`".into())
        }
        Err(problem) => Some(problem),
    });
    problems.extend(names::check(&files));
    problems.extend(walls::check(&files));
    problems.extend(sources::check(&files));
    problems.extend(papers::dependencies(
        &document(&files, "docs/dependencies.md")?,
        &document(&files, "Cargo.toml")?,
        &edges::external()?,
    ));
    let promises = document(&files, "docs/features.md")?;
    problems.extend(papers::features(&promises, &files));
    problems.extend(papers::promises(&promises));
    Ok(problems)
}

fn document(files: &[File], path: &str) -> anyhow::Result<String> {
    let file = files.iter().find(|file| file.path == path).with_context(|| format!("{path} is missing"))?;
    Ok(file.text.clone())
}

fn files() -> anyhow::Result<Vec<File>> {
    let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let names = command::output(program("git").args(listed)).context("listing the files")?;
    let mut files = Vec::new();
    for path in names.split('\0').filter(|path| !path.is_empty()) {
        // A file that is deleted but not committed yet is still listed.
        if let Ok(bytes) = fs::read(command::root().join(path)) {
            files.push(File { path: path.to_owned(), text: String::from_utf8(bytes).unwrap_or_default() });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn tidy_holds() {
        let problems = super::check().unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
