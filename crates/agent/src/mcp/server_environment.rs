//! Which environment variables an entry may set for its server.

/// They load code into programs, or change where programs are found or where connections go.
const DANGEROUS: [&str; 20] = [
    "PATH",
    "BASH_ENV",
    "ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "NODE_PATH",
    "NODE_OPTIONS",
    "RUBYLIB",
    "RUBYOPT",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "GCONV_PATH",
];
const DANGEROUS_PREFIXES: [&str; 3] = ["LD_", "DYLD_", "BASH_FUNC_"];

/// Splits an entry's variables into those that its server gets and the names of those that are dropped.
pub(super) fn admitted(variables: &[(String, String)]) -> (Vec<(String, String)>, Vec<String>) {
    let (mut given, mut dropped) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        if is_dangerous(name) || value.contains('\0') {
            dropped.push(super::one_line_excerpt(name, 64));
        } else {
            given.push((name.clone(), value.clone()));
        }
    }
    (given, dropped)
}

fn is_dangerous(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    name.is_empty()
        || name.contains(['=', '\0'])
        || DANGEROUS.contains(&upper.as_str())
        || DANGEROUS_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
        || upper.ends_with("_PROXY")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X2.
    #[test]
    fn variables_that_load_code_or_lead_elsewhere_are_dropped() {
        let names = [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "PATH",
            "HTTP_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "BASH_ENV",
            "ENV",
            "PYTHONPATH",
            "NODE_PATH",
            "RUBYLIB",
            "NODE_OPTIONS",
            "",
            "A=B",
        ];
        let all: Vec<_> =
            names.iter().chain(&["API_KEY", "HOME"]).map(|name| ((*name).into(), "v".into())).collect();
        let (given, dropped) = admitted(&all);
        assert_eq!(dropped, names);
        assert_eq!(given, [("API_KEY".into(), "v".into()), ("HOME".into(), "v".into())]);
    }
}
