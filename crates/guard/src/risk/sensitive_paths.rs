//! Files that hold secrets or control the machine, recognised by their names alone.
//!
//! Nothing is looked up on the disk: a request is assessed before anything is touched.

use std::path::{Component, Path};

use engine::Risk;

use super::{Assessment, escaped_excerpt};

/// How a file would be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    Write,
}

/// The risk of accessing a sensitive file; `None` for an ordinary one.
pub fn assess_path(want: FileAccess, path: &Path) -> Option<Assessment> {
    let (risk, what) = special(want, &path.to_string_lossy())?;
    Some(Assessment { risk, reason: format!("{what}: {}", escaped_excerpt(&path.to_string_lossy())) })
}

/// The parts of a path in lower case, without `.` and with `..` resolved by name. File systems that
/// ignore case are common, so names are compared without it.
fn parts(path: &str) -> (bool, Vec<String>) {
    let mut parts: Vec<String> = Vec::new();
    let mut rooted = false;
    for component in Path::new(path).components() {
        match component {
            Component::RootDir | Component::Prefix(_) => rooted = true,
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().to_lowercase()),
        }
    }
    // The root of another process is the root again.
    if rooted && parts.len() >= 3 && parts[0] == "proc" && parts[2] == "root" {
        parts.drain(..3);
    }
    (rooted, parts)
}

pub(super) fn special(want: FileAccess, path: &str) -> Option<(Risk, &'static str)> {
    special_in(want, path, false)
}

/// The same for a path that may be known to be inside the workspace, wherever that is.
pub(super) fn special_in(want: FileAccess, path: &str, inside: bool) -> Option<(Risk, &'static str)> {
    let (rooted, parts) = parts(path);
    let rooted = rooted && !inside;
    let name = parts.last().map(String::as_str).unwrap_or_default();
    let by_folder = parts.iter().enumerate().find_map(|(nth, part)| folder(part, &parts[nth + 1..], want));
    let by_root = if rooted { system(&parts, want) } else { None };
    let found = [by_folder, file(name, want), by_root];
    found.into_iter().flatten().max_by_key(|(risk, _)| *risk)
}

fn folder(part: &str, below: &[String], want: FileAccess) -> Option<(Risk, &'static str)> {
    let next = below.first().map(String::as_str).unwrap_or_default();
    let found = match (part, next) {
        (".ssh", _) => (Risk::Critical, "touches SSH keys"),
        (".gnupg" | ".password-store", _) => (Risk::Critical, "touches private keys"),
        (".aws" | ".azure" | ".kube" | ".docker", _) | (".config", "gcloud" | "gh" | "op") => {
            (Risk::Critical, "touches credentials")
        }
        (".git", "config") => (Risk::Medium, "touches the repository's settings"),
        (".git", "hooks") if want == FileAccess::Write => (Risk::High, "changes what git runs automatically"),
        (".git", _) if want == FileAccess::Write => (Risk::Medium, "changes git's own files"),
        (".mozilla" | ".thunderbird" | "keychains" | "keyrings", _) => {
            (Risk::High, "touches stored passwords")
        }
        _ => return None,
    };
    Some(found)
}

fn file(name: &str, want: FileAccess) -> Option<(Risk, &'static str)> {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let listed = matches!(extension, "json" | "yaml" | "yml" | "toml");
    if (name == ".env" || name.starts_with(".env.") || name == ".envrc") && !is_example(name) {
        return Some((Risk::High, "touches a file with secrets"));
    }
    if listed && matches!(stem, "credentials" | "secrets" | "tokens") {
        return Some((Risk::Critical, "touches a file with secrets"));
    }
    if name.starts_with("id_")
        && matches!(name, "id_rsa" | "id_dsa" | "id_ecdsa" | "id_ed25519" | "id_ed25519_sk")
    {
        return Some((Risk::Critical, "touches a private key"));
    }
    match extension {
        "pem" | "key" | "p12" | "pfx" | "jks" | "keystore" | "kdbx" if !stem.is_empty() => {
            return Some((Risk::High, "touches a private key"));
        }
        _ => {}
    }
    if holds_secrets(name, stem, extension) && !is_example(name) {
        return Some((Risk::High, "touches a file with secrets"));
    }
    let found = match name {
        ".netrc" | "_netrc" | ".pgpass" | ".my.cnf" | ".git-credentials" | ".npmrc" | ".pypirc"
        | ".vault-token" | ".htpasswd" | ".dockercfg" | ".s3cfg" | ".boto" | ".credentials.json"
        | "oauth_creds.json" => (Risk::Critical, "touches credentials"),
        ".bash_history" | ".zsh_history" | ".python_history" | ".psql_history" | ".mysql_history" => {
            (Risk::High, "touches the history of commands")
        }
        ".bashrc" | ".bash_profile" | ".bash_login" | ".bash_logout" | ".profile" | ".zshrc" | ".zshenv"
        | ".zprofile" | ".zlogin" | ".kshrc" | ".cshrc" | ".inputrc" | ".gitconfig" | ".vimrc"
        | "config.fish" | "authorized_keys" | "crontab"
            if want == FileAccess::Write =>
        {
            (Risk::High, "changes what runs when a shell or program starts")
        }
        _ => return None,
    };
    Some(found)
}

/// Files that programs and people keep secrets in, by names that ordinary sources do not have.
fn holds_secrets(name: &str, stem: &str, extension: &str) -> bool {
    let is_interface = |stem: &str| {
        stem.strip_prefix("wg")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match extension {
        // `prod.env`; `.env` itself has no stem.
        "env" | "tfvars" | "tfstate" | "ovpn" | "kubeconfig" | "ppk" => return !stem.is_empty(),
        "json" if stem.ends_with(".tfvars") => return true,
        "backup" if stem.ends_with(".tfstate") => return true,
        "json"
            if ["service-account", "service_account", "serviceaccount", "client_secret"]
                .iter()
                .any(|known| stem.contains(known)) =>
        {
            return true;
        }
        "txt" | "csv" if matches!(stem, "password" | "passwords" | "credentials" | "secrets") => return true,
        "conf" if is_interface(stem) => return true,
        _ => {}
    }
    let is_environment = |rest: &str| {
        matches!(
            rest,
            "production" | "prod" | "staging" | "development" | "dev" | "local" | "secret" | "secrets"
        )
    };
    name.strip_prefix("env.").is_some_and(is_environment)
        || name == ".dev.vars"
        || name.starts_with(".dev.vars.")
        || matches!(
            name,
            "kubeconfig"
                | "kubeconfig.yaml"
                | "kubeconfig.yml"
                | ".vault_pass"
                | ".vault-pass"
                | ".vault_password"
                | ".vault_pass.txt"
                | "vault_pass.txt"
                | "vault-password.txt"
                | "auth.json"
                | "rclone.conf"
                | "wp-config.php"
                | "local.settings.json"
        )
}

/// Whether a file is an example of another one.
fn is_example(name: &str) -> bool {
    const EXAMPLES: [&str; 5] = ["example", "sample", "template", "dist", "tpl"];
    name.split(['.', '-', '_']).any(|part| EXAMPLES.contains(&part))
}

/// Folders of the system, for absolute paths.
fn system(parts: &[String], want: FileAccess) -> Option<(Risk, &'static str)> {
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    let found = match (names.as_slice(), want) {
        (["etc", "shadow" | "gshadow" | "sudoers" | "sudoers.d", ..], _) => {
            (Risk::Critical, "touches the system's passwords and permissions")
        }
        (["etc", ..] | ["private", "etc", ..], _) => (Risk::High, "touches the system's settings"),
        (
            ["dev", "null" | "zero" | "full" | "random" | "urandom" | "stdin" | "stdout" | "stderr" | "tty"],
            _,
        )
        | (["dev", "fd", ..], _) => return None,
        (["dev", "tcp" | "udp", ..], _) => (Risk::Critical, "opens a connection to another machine"),
        (["dev", "shm", ..], _) => (Risk::Medium, "touches memory that programs share"),
        (["dev", ..], FileAccess::Write) => (Risk::Critical, "writes to a device"),
        (["dev", ..], FileAccess::Read) => (Risk::High, "reads a device"),
        (["proc", _, "environ" | "mem" | "maps" | "cmdline", ..] | ["proc", "kcore"], _) => {
            (Risk::High, "reads data of running programs")
        }
        (["proc" | "sys", ..], FileAccess::Write) => (Risk::High, "changes the running system"),
        (
            ["bin" | "sbin" | "lib" | "lib64" | "usr" | "boot" | "opt" | "system" | "library", ..] | [],
            FileAccess::Write,
        ) => (Risk::High, "changes the system's files"),
        (["var", "spool" | "lib" | "log", ..], FileAccess::Write) => {
            (Risk::High, "changes the system's files")
        }
        _ => return None,
    };
    Some(found)
}
