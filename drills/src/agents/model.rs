//! The model that the driven agents think with: a provider on this machine that follows the scenario.
//!
//! What it says is made from the scenario and from the names of the agent's own tools. It follows what
//! is asked and does not count, because agents ask for titles and summaries when they like.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::scenario::{Step, Traits};
use xtask::command;

/// What the model says when a tool has done its work.
pub const DONE: &str = "That is done, as far as it was allowed.";

pub struct Model {
    child: Child,
    pub address: String,
}

impl Model {
    /// Starts it with the rules in a file that is written first.
    pub fn start(file: &Path, rules: &Value) -> anyhow::Result<Self> {
        let program = command::target_folder()?.join("debug/mock-provider");
        fs::write(file, rules.to_string()).context("writing the model's rules")?;
        let mut command = command::program(&program);
        command.arg("--rules").arg(file).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the model has no output")?).read_line(&mut line)?;
        let address = line.trim().rsplit("//").next().unwrap_or_default().to_owned();
        ensure!(!address.is_empty(), "the model did not start");
        Ok(Self { child, address })
    }

    /// Builds the program, unless the last build of the workspace has: for the one package cargo would choose other
    /// features of most of what is below it, and compile that anew. Its speed is not judged.
    pub fn build() -> anyhow::Result<()> {
        if command::target_folder()?.join("debug/mock-provider").exists() {
            return Ok(());
        }
        let words = ["build", "--quiet", "--locked", "--package", "testkit", "--bin", "mock-provider"];
        command::run(command::cargo().args(words))
    }

    /// Everything that it was asked so far.
    pub fn requests(&self) -> anyhow::Result<Vec<Value>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(
            format!("GET /requests HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)
                .as_bytes(),
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("the model answers no HTTP")?;
        Ok(serde_json::from_str(body)?)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The rules that make the model call an agent's own tools for each step.
pub fn rules(steps: &[Step], traits: &Traits, project: &Path) -> Value {
    let said = |text: &str| json!([{"text": text}, {"usage": {"input": 100, "output": 10}}]);
    let mut rules = Vec::new();
    for step in steps.iter().filter(|step| !step.text.is_empty()) {
        let tool = step.tool.as_ref().and_then(|kind| traits.tools.get(kind));
        let answers = match tool {
            Some((name, arguments)) => {
                let arguments = filled(arguments, step, project);
                let called = json!([{"text": "I am going to."}, {"call": [name, arguments]}, {"usage": {"input": 100, "output": 10}}]);
                json!([called, said(DONE)])
            }
            None => json!([said(DONE)]),
        };
        rules.push(json!({"when": step.text, "answers": answers}));
    }
    json!({"rules": rules, "otherwise": said("A small task")})
}

fn filled(value: &Value, step: &Step, project: &Path) -> Value {
    match value {
        Value::String(text) => {
            // Texts first: what is filled in may itself have a word that is a mark.
            let mut text = text.replace("PROJECT", &project.to_string_lossy());
            for (mark, with) in &step.fill {
                text = text.replace(mark.as_str(), with);
            }
            text.into()
        }
        Value::Array(values) => values.iter().map(|value| filled(value, step, project)).collect(),
        Value::Object(values) => {
            values.iter().map(|(name, value)| (name.clone(), filled(value, step, project))).collect()
        }
        other => other.clone(),
    }
}
