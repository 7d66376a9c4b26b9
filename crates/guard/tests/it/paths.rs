//! Files that are sensitive by their names.

use std::path::Path;

use engine::Risk;
use guard::{FileAccess, assess_path};

fn check(want: FileAccess, expected: Option<Risk>, paths: &[&str]) {
    for path in paths {
        assert_eq!(assess_path(want, Path::new(path)).map(|said| said.risk), expected, "{want:?} {path}");
    }
}

#[test]
fn secrets_are_risky_to_read_and_to_write() {
    for want in [FileAccess::Read, FileAccess::Write] {
        check(
            want,
            Some(Risk::High),
            &[
                ".env",
                "/p/.env",
                "a/.env.local",
                ".ENV",
                "./x/../.env",
                "server.pem",
                "/p/tls.key",
                "/p/.envrc",
            ],
        );
        let critical = [
            "/h/.ssh/id_rsa",
            "/h/.ssh",
            ".ssh/config",
            "/h/.aws/credentials",
            "/h/.netrc",
            "/h/.gnupg/x",
            "id_ed25519",
            "/etc/shadow",
        ];
        check(want, Some(Risk::Critical), &critical);
        for stem in ["credentials", "secrets", "tokens"] {
            for extension in ["json", "yaml", "yml", "toml"] {
                check(want, Some(Risk::Critical), &[&format!("/p/{stem}.{extension}")]);
            }
        }
        check(
            want,
            Some(Risk::High),
            &["/etc/passwd", "/etc", "/x/../etc/hosts", "/proc/self/root/etc/hosts"],
        );
        check(want, Some(Risk::Medium), &[".git/config", "/p/.git/config"]);
    }
}

#[test]
fn files_that_programs_keep_secrets_in_are_risky_by_their_names() {
    let secret = [
        "prod.env",
        "config/staging.env",
        "env.production",
        ".dev.vars",
        ".dev.vars.staging",
        "terraform.tfvars",
        "prod.auto.tfvars.json",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "service-account.json",
        "my_service_account_key.json",
        "client_secret_1.json",
        "kubeconfig",
        "dev.kubeconfig",
        ".vault_pass",
        "auth.json",
        "rclone.conf",
        "wg0.conf",
        "office.ovpn",
        "password.txt",
        "passwords.csv",
        "wp-config.php",
        "local.settings.json",
    ];
    check(FileAccess::Read, Some(Risk::High), &secret);
    check(FileAccess::Read, Some(Risk::Critical), &["/h/.claude/.credentials.json", "x/oauth_creds.json"]);
    let ordinary = [
        ".env.example",
        "example.env",
        "prod.env.sample",
        ".dev.vars.example",
        "terraform.tfvars.example",
        "wp-config-sample.php",
        "auth.ts",
        "auth.rs",
        "auth.yaml",
        "env.ts",
        "env.d.ts",
        "env.rs",
        "src/env",
        "service-account.yaml",
        "service_account.py",
        "password.rs",
        "passwords.md",
        "wg.conf",
        "nginx.conf",
        "variables.tf",
        "settings.json",
        "kubeconfig.go",
    ];
    check(FileAccess::Read, None, &ordinary);
}

#[test]
fn ordinary_files_are_not_special() {
    let ordinary = [
        "src/main.rs",
        "/home/me/project/x",
        ".env.example",
        "environment",
        "tokens.rs",
        "etc/x",
        "a.env.rs",
        ".gitignore",
        "README.md",
        "",
    ];
    check(FileAccess::Read, None, &ordinary);
    check(FileAccess::Write, None, &ordinary[..4]);
    check(FileAccess::Write, None, &["/tmp/x", "/dev/null"]);
    check(FileAccess::Read, None, &["/usr/include/stdio.h", "/dev/null", ".git/HEAD", ".bashrc"]);
}

#[test]
fn what_steers_the_machine_is_risky_to_write() {
    check(
        FileAccess::Write,
        Some(Risk::High),
        &[".git/hooks/pre-commit", "/h/.bashrc", "/h/.zshrc", "/usr/bin/ls", "/boot/x", "/proc/sys/x"],
    );
    check(FileAccess::Write, Some(Risk::Critical), &["/dev/sda", "/h/.ssh/authorized_keys"]);
}

#[test]
fn the_reason_can_be_shown() {
    let said = assess_path(FileAccess::Read, Path::new("x\u{1b}[2J/.env")).unwrap();
    assert_eq!(said.reason, "touches a file with secrets: x\\u{1b}[2J/.env");
}
