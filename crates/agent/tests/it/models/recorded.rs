//! The recordings of real exchanges. They are not ours, so they lie beside the project.

use std::io::Read;
use std::path::{Path, PathBuf};

use agent::Wire;
use serde_json::Value;

/// The file, or nothing on a machine that has none. A run without it says so.
pub fn file(name: &str) -> Option<Value> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let Ok(bytes) = std::fs::read(root.join(name)) else {
        eprintln!("SKIPPED: there is no ../shared/data/{name}; the recorded exchanges were not run");
        return None;
    };
    let mut text = String::new();
    if name.ends_with(".gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    Some(serde_json::from_str(&text).unwrap())
}

pub fn wire(kind: &str) -> Wire {
    match kind {
        "anthropic" => Wire::Anthropic,
        "openai_resp" => Wire::Responses,
        "openai_chat" => Wire::Chat,
        "gemini" => Wire::Gemini,
        "ollama" => Wire::Ollama,
        other => panic!("{other} is no known kind"),
    }
}

/// Fixtures name their exchanges by numbers or texts.
pub fn id(row: &Value) -> String {
    match &row["id"] {
        Value::String(id) => id.clone(),
        id => id.to_string(),
    }
}
