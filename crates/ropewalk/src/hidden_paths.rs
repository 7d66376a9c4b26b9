//! The paths that no tool and no command may see: the person's keys and credentials, shell histories, browser profiles and
//! mail, and this program's own state.
//!
//! Secrets are below the home folder. Both the environment and the system's user database name it; both count, because the
//! variable may be missing or wrong. If neither names it, nothing could be hidden, so no agent is started.

use std::path::{Path, PathBuf};

use crate::cli_error::CliError;
use crate::paths;

/// Paths below the home folder.
const SECRETS: &str = "
    .ssh .gnupg .putty .pki .rhosts .Xauthority .ICEauthority .age .config/age .config/sops .config/putty
    .password-store .local/share/keyrings .local/share/kwalletd .config/kwalletrc .config/op .config/1Password
    .config/Bitwarden .config/keepassxc .cache/keepassxc .config/KeePass .config/lpass .local/share/lpass .lpass
    .config/gopass .local/share/gopass .config/rbw .local/share/rbw .config/enpass .config/Dashlane .config/Proton

    .aws .azure .config/gcloud .oci .aliyun .bluemix .tccli .config/hcloud .config/linode-cli .linode-cli .config/scw
    .config/exoscale .config/openstack .config/doctl .config/digitalocean .s3cfg .boto .mc .config/rclone .rclone.conf
    .config/b2 .b2_account_info .config/vultr-cli.yaml .config/upctl.yaml .ovh.conf .config/scaleway
    .docker .config/containers/auth.json .kube .minikube/profiles .config/helm .config/argocd .argocd
    .terraform.d .terraformrc .tofurc .pulumi/credentials.json .vault-token .config/doppler .doppler .infisical .config/infisical
    .fly/config.yml .config/heroku .local/share/heroku .config/netlify .netlify .local/share/com.vercel.cli .config/com.vercel.cli
    .vercel .config/.wrangler .wrangler .config/stripe .config/ngrok .ngrok2 .config/configstore/firebase-tools.json .config/firebase
    .railway/config.json .config/supabase .supabase/access-token .config/planetscale .config/turso .config/sentry .sentryclirc .cloudflared
    .config/tailscale .databrickscfg .snowsql .snowflake .kaggle .config/kaggle .cometml.config .modal.toml

    .config/gh .config/hub .config/glab-cli .config/tea .config/jira .config/acli .config/git/credentials
    .git-credentials .netrc .authinfo .authinfo.gpg .npmrc .yarnrc .yarnrc.yml .pypirc .pip .config/pip .config/uv/credentials
    .local/share/uv/credentials .gem/credentials .local/share/gem/credentials .bundle/config .config/composer/auth.json
    .composer/auth.json .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .sbt/.credentials .ivy2/.credentials
    .nuget/NuGet .config/NuGet .cargo/credentials .cargo/credentials.toml .hex/hex.config .config/hex .pub-cache/credentials.json
    .config/dart/pub-credentials.json .conan/.conan.db .conan2/credentials.json .jfrog .artifactory

    .pgpass .my.cnf .mylogin.cnf .mongorc.js .config/mongodb .cassandra/credentials .config/pgcli .config/mycli
    .msmtprc .config/msmtp .fetchmailrc .mbsyncrc .config/isyncrc .offlineimaprc .muttrc .mutt .config/mutt .config/neomutt
    .davfs2 .smbcredentials .config/filezilla .config/remmina .local/share/remmina .config/weechat .irssi .config/hexchat
    .thunderbird .local/share/evolution .config/evolution .config/Signal .config/Slack .config/discord .config/Element
    .local/share/TelegramDesktop .config/teams .config/Microsoft .config/zoomus.conf .purple
    .electrum .bitcoin .ethereum .config/solana .bitmonero

    .mozilla .librewolf .waterfox .config/chromium .config/google-chrome .config/google-chrome-beta .config/google-chrome-unstable
    .config/BraveSoftware .config/vivaldi .config/vivaldi-snapshot .config/microsoft-edge .config/microsoft-edge-beta
    .config/microsoft-edge-dev .config/opera .config/opera-beta .config/yandex-browser .config/falkon .config/epiphany
    .local/share/epiphany .local/share/qutebrowser .config/Thorium .tor-browser .local/share/torbrowser .config/arc
    .config/google-chrome-for-testing .cache/mozilla .cache/chromium .cache/google-chrome
    snap/firefox snap/chromium snap/brave snap/opera snap/vivaldi snap/thunderbird snap/bitwarden snap/1password
    .var/app/org.mozilla.firefox .var/app/org.mozilla.Thunderbird .var/app/org.chromium.Chromium .var/app/com.google.Chrome
    .var/app/com.brave.Browser .var/app/com.vivaldi.Vivaldi .var/app/com.microsoft.Edge .var/app/com.opera.Opera
    .var/app/io.gitlab.librewolf-community .var/app/org.signal.Signal .var/app/com.bitwarden.desktop
    .var/app/com.onepassword.OnePassword .var/app/com.slack.Slack .var/app/com.discordapp.Discord .var/app/im.riot.Riot

    .bash_history .bash_sessions .zsh_history .zhistory .zsh_sessions .histfile .history .sh_history .ksh_history .ash_history
    .local/share/fish/fish_history .local/share/atuin .config/nushell/history.txt .config/nushell/history.sqlite3 .local/share/xonsh
    .local/state/bash .local/state/zsh .python_history .node_repl_history .psql_history .mysql_history .mariadb_history
    .sqlite_history .duckdb_history .lesshst .local/state/less .rediscli_history .dbshell .mongodb .irb_history .pry_history
    .julia/logs .octave_hist .Rhistory .scala_history .erlang_history .ghc/ghci_history .gdb_history .lldb .php_history
    .ipython/profile_default/history.sqlite .viminfo .wget-hsts .local/share/recently-used.xbel

    .cache/huggingface/token .cache/huggingface/stored_tokens .huggingface .config/ropewalk .chimera/permissions.json
";

/// The same for other agents. An external agent may see its own.
const AGENTS: &str = "
    .claude/.credentials.json .claude/history.jsonl .claude.json .claude.json.backup .config/Claude .config/claude
    .codex/auth.json .codex/history.jsonl .codex/.env
    .gemini/oauth_creds.json .gemini/google_accounts.json .gemini/.env .gemini/mcp-oauth-tokens.json
    .gemini/mcp-oauth-tokens-v2.json .gemini/gemini-credentials.json .gemini/tmp
    .qwen .kimi .kimi-code .config/goose .local/share/goose .config/github-copilot .copilot .cline .vibe .fast-agent
    .config/fast-agent .pi .local/share/opencode/auth.json .local/share/opencode/mcp-auth.json
    .config/cursor .config/Cursor .cursor/mcp.json .config/Code/User/globalStorage
    .config/Code\\040-\\040Insiders/User/globalStorage .config/VSCodium/User/globalStorage .config/Windsurf .codeium
    .windsurf .config/amp .local/share/amp .factory .augment .continue .local/share/amazon-q .kiro
    .local/share/crush .config/crush .openhands .config/aider .aider .aider.conf.yml .grok .forge .roo .kilocode
    .openai .anthropic .config/openai .config/anthropic .config/io.datasette.llm .config/aichat .config/mods .config/fabric
";

/// Variables that move such a path, and the names below it that count; if empty, the path itself.
const MOVED: &[(&str, &[&str])] = &[
    ("ANSIBLE_VAULT_PASSWORD_FILE", &[]),
    ("AWS_CONFIG_FILE", &[]),
    ("AWS_SHARED_CREDENTIALS_FILE", &[]),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", &[]),
    ("AZURE_CONFIG_DIR", &[]),
    ("BORG_KEYS_DIR", &[]),
    ("BOTO_CONFIG", &[]),
    ("BUNDLE_USER_CONFIG", &[]),
    ("CARGO_HOME", &["credentials", "credentials.toml"]),
    ("CLAUDE_CONFIG_DIR", &[".credentials.json", ".claude.json"]),
    ("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", &[]),
    ("CLOUDSDK_CONFIG", &[]),
    ("CODEX_HOME", &["auth.json", "history.jsonl"]),
    ("COMPOSER_HOME", &["auth.json"]),
    ("CONAN_HOME", &["credentials.json"]),
    ("CURL_HOME", &[".netrc", ".curlrc"]),
    ("DATABRICKS_CONFIG_FILE", &[]),
    ("DOCKER_CERT_PATH", &[]),
    ("DOCKER_CONFIG", &[]),
    ("DOPPLER_CONFIG_DIR", &[]),
    ("GH_CONFIG_DIR", &[]),
    ("GLAB_CONFIG_DIR", &[]),
    ("GNUPGHOME", &[]),
    ("GOOGLE_APPLICATION_CREDENTIALS", &[]),
    ("GRADLE_USER_HOME", &["gradle.properties"]),
    ("HELM_CONFIG_HOME", &["registry", "repositories.yaml"]),
    ("HELM_REGISTRY_CONFIG", &[]),
    ("HELM_REPOSITORY_CONFIG", &[]),
    ("HF_HOME", &["token", "stored_tokens"]),
    ("HF_TOKEN_PATH", &[]),
    ("HISTFILE", &[]),
    ("HUB_CONFIG", &[]),
    ("KAGGLE_CONFIG_DIR", &["kaggle.json", "access_token"]),
    ("KUBECONFIG", &[]),
    ("LESSHISTFILE", &[]),
    ("MC_CONFIG_DIR", &[]),
    ("MYSQL_HISTFILE", &[]),
    ("MYSQL_HOME", &["my.cnf", ".my.cnf", ".mylogin.cnf"]),
    ("MYSQL_TEST_LOGIN_FILE", &[]),
    ("NETRC", &[]),
    ("NODE_REPL_HISTORY", &[]),
    ("NPM_CONFIG_USERCONFIG", &[]),
    ("OCI_CLI_CONFIG_FILE", &[]),
    ("OCI_CLI_KEY_FILE", &[]),
    ("OS_CLIENT_CONFIG_FILE", &[]),
    ("PASSWORD_STORE_DIR", &[]),
    ("PGPASSFILE", &[]),
    ("PGSERVICEFILE", &[]),
    ("PGSSLKEY", &[]),
    ("PIP_CONFIG_FILE", &[]),
    ("POETRY_CONFIG_DIR", &["auth.toml"]),
    ("PSQL_HISTORY", &[]),
    ("PULUMI_HOME", &["credentials.json"]),
    ("PYTHON_HISTORY", &[]),
    ("RCLONE_CONFIG", &[]),
    ("REDISCLI_HISTFILE", &[]),
    ("REGISTRY_AUTH_FILE", &[]),
    ("RESTIC_PASSWORD_FILE", &[]),
    ("SNOWFLAKE_HOME", &["connections.toml", "config.toml"]),
    ("SOPS_AGE_KEY_FILE", &[]),
    ("SOPS_AGE_SSH_PRIVATE_KEY_FILE", &[]),
    ("SQLITE_HISTORY", &[]),
    ("TALOSCONFIG", &[]),
    ("TF_CLI_CONFIG_FILE", &[]),
    ("UV_CREDENTIALS_DIR", &[]),
    ("VAULT_CLIENT_KEY", &[]),
    ("VAULT_CONFIG_PATH", &[]),
    ("WGETRC", &[]),
    ("XAUTHORITY", &[]),
    ("npm_config_userconfig", &[]),
];

/// Folders that XDG variables move.
const BASES: [(&str, &str); 4] = [
    (".config/", "XDG_CONFIG_HOME"),
    (".local/share/", "XDG_DATA_HOME"),
    (".local/state/", "XDG_STATE_HOME"),
    (".cache/", "XDG_CACHE_HOME"),
];

/// The real paths of the person's home folders: first the one in the environment, which is `~` in shells, then the
/// account's. Fails if neither is known.
pub fn homes() -> Result<Vec<PathBuf>, CliError> {
    let accounts = sandbox::account_homes();
    let named = paths::home();
    if accounts.is_empty() && !named.as_ref().is_some_and(|home| home.is_dir()) {
        return Err(CliError::failed("could not find your home folder, so its secrets cannot be hidden")
            .because("HOME is not a folder, and the system's user database has no entry for this user")
            .fix("set HOME to your home folder, or run without the sandbox with --sandbox off"));
    }
    let mut homes: Vec<PathBuf> = Vec::new();
    for home in named.into_iter().chain(accounts) {
        let home = home.canonicalize().unwrap_or(home);
        if !homes.contains(&home) {
            homes.push(home);
        }
    }
    Ok(homes)
}

/// All paths to hide: the person's secrets and this program's own state.
pub fn paths(homes: &[PathBuf]) -> Vec<PathBuf> {
    let rules = paths::rules().ok().map(|paths| {
        let trusted = guard::trusted_file(&paths.user);
        [Some(paths.user), Some(trusted), paths.zeph, paths.chimera]
    });
    let kept = [
        paths::state().ok(),
        paths::config_folder().ok(),
        paths::config().ok(),
        paths::audit_key().ok(),
        paths::undo().ok(),
    ];
    let moved = MOVED.iter().flat_map(|(name, below)| moved(name, below, homes));
    let all = below(homes, SECRETS).into_iter().chain(of_agents(homes)).map(|(_, path)| path).chain(moved);
    let ours = kept.into_iter().flatten().chain(rules.into_iter().flatten().flatten());
    let mut hidden: Vec<_> = all.chain(ours).map(|path| path.canonicalize().unwrap_or(path)).collect();
    hidden.sort();
    hidden.dedup();
    hidden
}

/// The part that belongs to other agents: the name below a home, and the real path.
pub fn of_agents(homes: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let moved = [("CLAUDE_CONFIG_DIR", ".claude"), ("CODEX_HOME", ".codex")].into_iter().flat_map(
        |(variable, usual)| {
            let names = MOVED.iter().find(|(name, _)| *name == variable).map_or(&[][..], |(_, names)| *names);
            let place = move |name: &&str| {
                Some((Path::new(usual).join(name), moved(variable, &[*name], homes).pop()?))
            };
            names.iter().filter_map(place)
        },
    );
    let usual = below(homes, AGENTS).into_iter();
    usual.chain(moved).map(|(name, path)| (name, path.canonicalize().unwrap_or(path))).collect()
}

fn below(homes: &[PathBuf], table: &str) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for name in table.split_whitespace() {
        // A space in a name is escaped as in the mount table.
        let name = name.replace("\\040", " ");
        found.extend(homes.iter().map(|home| (PathBuf::from(&name), home.join(&name))));
        for (base, variable) in BASES {
            let elsewhere = paths::variable(variable).map(PathBuf::from).filter(|path| path.is_absolute());
            let place = elsewhere.and_then(|folder| Some(folder.join(name.strip_prefix(base)?)));
            found.extend(place.map(|place| (PathBuf::from(&name), place)));
        }
    }
    found
}

/// The paths in a variable, separated by colons.
fn moved(variable: &str, below: &[&str], homes: &[PathBuf]) -> Vec<PathBuf> {
    let Some(value) = paths::variable(variable) else { return Vec::new() };
    let places = std::env::split_paths(&value).filter(|place| place.is_absolute());
    let named = places.flat_map(|place| match below {
        [] => vec![place],
        below => below.iter().map(|name| place.join(name)).collect(),
    });
    named.filter_map(|path| path.canonicalize().ok()).filter(|path| can_be_hidden(path, homes)).collect()
}

/// Excludes `/dev/null`, which switches such a path off, and folders that contain a home.
fn can_be_hidden(path: &Path, homes: &[PathBuf]) -> bool {
    (path.is_file() || path.is_dir()) && !homes.iter().any(|home| home.starts_with(path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_of_the_table_lies_below_the_home_and_stands_there_once() {
        let homes = [PathBuf::from("/home/me")];
        for table in [SECRETS, AGENTS] {
            let mut known = BTreeSet::new();
            for name in table.split_whitespace() {
                assert!(!name.starts_with('/') && !name.contains(".."), "{name}");
                assert!(known.insert(name), "{name} stands there twice");
                // Folders that many programs share hold more than secrets.
                let shared = [".config", ".local", ".local/share", ".local/state", ".cache", ".cargo", ".m2"];
                assert!(!shared.contains(&name), "{name}");
            }
        }
        let hidden: Vec<_> = below(&homes, AGENTS).into_iter().map(|(_, path)| path).collect();
        assert!(hidden.contains(&"/home/me/.config/Code - Insiders/User/globalStorage".into()));
        assert!(hidden.contains(&"/home/me/.codex/auth.json".into()));
    }

    #[test]
    fn every_variable_that_leads_to_credentials_is_known_once() {
        let names: Vec<&str> = MOVED.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        for name in [
            "ANSIBLE_VAULT_PASSWORD_FILE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "BOTO_CONFIG",
            "DATABRICKS_CONFIG_FILE",
            "DOCKER_CERT_PATH",
            "HELM_REGISTRY_CONFIG",
            "KUBECONFIG",
            "MYSQL_HOME",
            "PGSERVICEFILE",
            "RESTIC_PASSWORD_FILE",
            "VAULT_CONFIG_PATH",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_place_that_is_switched_off_or_is_too_much_is_not_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let homes = [home.clone()];
        std::fs::create_dir_all(home.join(".keys")).unwrap();
        assert!(can_be_hidden(&home.join(".keys"), &homes));
        for bad in [Path::new("/dev/null"), Path::new("/"), folder.path(), &home] {
            assert!(!can_be_hidden(bad, &homes), "{}", bad.display());
        }
    }
}
