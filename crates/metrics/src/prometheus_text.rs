//! The older text format of metrics, converted from the newer one.
//!
//! The two differ in the lines that describe a metric: the older format names a counter with its `_total`, and
//! has no `info`, no units and no end mark.

pub(super) fn plain(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len() + open_metrics.len() / 16);
    // A metric's help comes before its type, which decides the name that both have.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                other => ("", other),
            };
            let help = help.take().unwrap_or_default();
            out.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}
