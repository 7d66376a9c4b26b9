//! One row for each kind of token: what it begins with, what it is made of, and how long it is. The
//! samples are made here from the rows; none is anybody's.

use super::redacted;

/// Service, beginning, characters, length behind the beginning.
const KINDS: &[(&str, &str, &str, usize)] = &[
    ("model provider", "gsk_", "alnum", 52),
    ("model provider", "r8_", "alnum", 52),
    ("model provider", "fw_", "alnum", 52),
    ("model provider", "jina_", "alnum", 52),
    ("model provider", "esecret_", "alnum", 52),
    ("model provider", "tgp_v1_", "alnum", 52),
    ("model provider", "unkey_", "alnum", 52),
    ("model provider", "tr_dev_", "alnum", 52),
    ("model provider", "tr_prod_", "alnum", 52),
    ("model provider", "sk_dev_", "alnum", 52),
    ("model provider", "sk_prod_", "alnum", 52),
    ("model provider", "sk_sbox_", "alnum", 52),
    ("model provider", "api_org_", "alnum", 40),
    ("model provider", "apify_api_", "alnum", 40),
    ("model provider", "phx_", "alnum", 40),
    ("model provider", "pcsk_", "alnum", 40),
    ("model provider", "ntn_", "alnum", 40),
    ("model provider", "napi_", "alnum", 40),
    ("model provider", "xau_", "alnum", 40),
    ("model provider", "sk_", "alnum", 40),
    ("model provider", "nvapi-", "url", 48),
    ("model provider", "pplx-", "url", 48),
    ("model provider", "xai-", "url", 48),
    ("model provider", "csk-", "url", 48),
    ("model provider", "tvly-", "url", 48),
    ("model provider", "sk-svcacct-", "url", 40),
    ("model provider", "sk-admin-", "url", 40),
    ("model provider", "lsv2_pt_", "url", 44),
    ("model provider", "lsv2_sk_", "url", 44),
    ("model provider", "e2b_", "hex", 40),
    ("cloud", "ABIA", "upper", 16),
    ("cloud", "ACCA", "upper", 16),
    ("cloud", "ya29.", "dotted", 60),
    ("cloud", "GOCSPX-", "url", 28),
    ("cloud", "1//0", "url", 60),
    ("cloud", "dop_v1_", "hex", 64),
    ("cloud", "doo_v1_", "hex", 64),
    ("cloud", "dor_v1_", "hex", 64),
    ("cloud", "LTAI", "alnum", 20),
    ("cloud", "AKID", "alnum", 32),
    ("cloud", "SCW", "upper", 17),
    ("cloud", "t1.", "dotted", 120),
    ("cloud", "AQVN", "url", 37),
    ("cloud", "YCAJE", "url", 40),
    ("cloud", "v1.0-", "hex", 110),
    ("cloud", "vercel_blob_rw_", "url", 24),
    ("cloud", "sb_secret_", "url", 24),
    ("cloud", "sbp_", "hex", 40),
    ("cloud", "nfp_", "alnum", 40),
    ("cloud", "nfo_", "alnum", 40),
    ("cloud", "nfb_", "alnum", 40),
    ("cloud", "nfc_", "alnum", 40),
    ("cloud", "nfu_", "alnum", 40),
    ("cloud", "rnd_", "alnum", 32),
    ("cloud", "HRKU-", "url", 58),
    ("cloud", "fo1_", "url", 43),
    ("cloud", "fm1r_", "base64", 80),
    ("cloud", "fm1a_", "base64", 80),
    ("cloud", "fm2_", "base64", 80),
    ("database", "pscale_tkn_", "dotted", 43),
    ("database", "pscale_pw_", "dotted", 43),
    ("database", "pscale_oauth_", "dotted", 43),
    ("database", "CCDB1_", "url", 44),
    ("database", "dapi", "hex", 32),
    ("network", "tskey-auth-", "url", 30),
    ("network", "tskey-api-", "url", 30),
    ("network", "tskey-client-", "url", 30),
    ("network", "tskey-scim-", "url", 30),
    ("network", "tskey-webhook-", "url", 30),
    ("network", "dnkey-", "url", 60),
    ("vault", "hvs.", "url", 90),
    ("vault", "hvb.", "url", 90),
    ("vault", "hvr.", "url", 90),
    ("vault", "dp.pt.", "dotted", 43),
    ("vault", "dp.st.", "dotted", 43),
    ("vault", "dp.ct.", "dotted", 43),
    ("vault", "dp.sa.", "dotted", 43),
    ("vault", "dp.scim.", "dotted", 43),
    ("vault", "dp.audit.", "dotted", 43),
    ("vault", "dp.said.", "dotted", 43),
    ("vault", "ops_eyJ", "base64", 120),
    ("vault", "AGE-SECRET-KEY-1", "upper", 58),
    ("vault", ".atlasv1.", "url", 64),
    ("vault", "8Q~", "url", 32),
    ("vault", "7Q~", "url", 32),
    ("infrastructure", "pul-", "hex", 40),
    ("infrastructure", "ico-", "alnum", 32),
    ("git host", "gldt-", "url", 26),
    ("git host", "glrt-", "url", 26),
    ("git host", "glcbt-", "url", 26),
    ("git host", "glptt-", "url", 26),
    ("git host", "glft-", "url", 26),
    ("git host", "glimt-", "url", 26),
    ("git host", "glagent-", "url", 26),
    ("git host", "gloas-", "url", 26),
    ("git host", "glsoat-", "url", 26),
    ("git host", "glffct-", "url", 26),
    ("git host", "GR1348941", "url", 26),
    ("git host", "ATBB", "alnum", 32),
    ("git host", "ATATT3", "url", 180),
    ("git host", "ATCTT3", "url", 180),
    ("git host", "ATTA", "alnum", 72),
    ("git host", "sgp_", "url", 40),
    ("packages", "pypi-", "url", 90),
    ("packages", "rubygems_", "hex", 48),
    ("packages", "oy2", "alnum", 43),
    ("packages", "cio", "alnum", 32),
    ("packages", "dckr_pat_", "url", 27),
    ("packages", "dckr_oat_", "url", 27),
    ("packages", "AKCp", "alnum", 69),
    ("packages", "cmVmdGtu", "base64", 60),
    ("build", "CCIPAT_", "url", 40),
    ("build", "CCIPRJ_", "url", 40),
    ("build", "bkua_", "hex", 40),
    ("build", "squ_", "hex", 40),
    ("build", "sqp_", "hex", 40),
    ("build", "sqa_", "hex", 40),
    ("build", "API-", "upper", 26),
    ("build", "sha256~", "url", 43),
    ("payments", "shippo_live_", "hex", 40),
    ("payments", "shippo_test_", "hex", 40),
    ("payments", "EZAK", "alnum", 54),
    ("payments", "EZTK", "alnum", 54),
    ("payments", "duffel_live_", "url", 43),
    ("payments", "duffel_test_", "url", 43),
    ("payments", "FLWSECK-", "url", 32),
    ("payments", "FLWSECK_TEST-", "url", 32),
    ("payments", "sq0atp-", "url", 22),
    ("payments", "sq0csp-", "url", 22),
    ("payments", "EAAA", "url", 60),
    ("payments", "rzp_live_", "alnum", 14),
    ("payments", "rzp_test_", "alnum", 14),
    ("payments", "access_token$production$", "alnum", 32),
    ("payments", "access_token$sandbox$", "alnum", 32),
    ("payments", "APP_USR-", "url", 60),
    ("payments", "access-sandbox-", "url", 36),
    ("payments", "access-production-", "url", 36),
    ("payments", "access-development-", "url", 36),
    ("payments", "secret-live-", "url", 40),
    ("payments", "secret-test-", "url", 40),
    ("payments", "pdl_live_", "url", 40),
    ("payments", "pdl_sdbx_", "url", 40),
    ("payments", "polar_oat_", "url", 40),
    ("payments", "polar_pat_", "url", 40),
    ("work", "lin_api_", "alnum", 40),
    ("work", "lin_oauth_", "alnum", 40),
    ("work", "figd_", "url", 40),
    ("work", "tfp_", "url", 40),
    ("work", "CFPAT-", "url", 40),
    ("work", "shpat_", "hex", 32),
    ("work", "shpca_", "hex", 32),
    ("work", "shppa_", "hex", 32),
    ("work", "shpss_", "hex", 32),
    ("work", "pnu_", "alnum", 36),
    ("work", "pnb_", "alnum", 36),
    ("work", "rdme_", "alnum", 70),
    ("work", "tk-us-", "url", 48),
    ("work", "sm_aat_", "alnum", 16),
    ("work", "sm_pat_", "alnum", 16),
    ("work", "sm_sat_", "alnum", 16),
    ("work", "fio-u-", "url", 64),
    ("work", "p8e-", "url", 32),
    ("work", "retool_", "url", 40),
    ("work", "secret_admin_", "url", 40),
    ("work", "secret_readonly_", "url", 40),
    ("work", "signkey-prod-", "url", 40),
    ("work", "signkey-test-", "url", 40),
    ("work", "authress_", "dotted", 60),
    ("mail", "SG.", "dotted", 66),
    ("mail", "key-", "hex", 32),
    ("mail", "xkeysib-", "url", 80),
    ("mail", "xsmtpsib-", "url", 80),
    ("mail", "re_", "alnum", 32),
    ("mail", "mlsn.", "hex", 64),
    ("monitoring", "PMAK-", "url", 50),
    ("monitoring", "PMAT-", "url", 50),
    ("monitoring", "NRAK-", "alnum", 27),
    ("monitoring", "NRII-", "alnum", 27),
    ("monitoring", "NRJS-", "alnum", 27),
    ("monitoring", "NRRA-", "alnum", 27),
    ("monitoring", "NRIQ-", "alnum", 27),
    ("monitoring", "hcaik_", "alnum", 58),
    ("monitoring", "hcaic_", "alnum", 58),
    ("monitoring", "hcalk_", "alnum", 58),
    ("monitoring", "pylf_v1_", "url", 40),
    ("monitoring", "xaat-", "url", 40),
    ("monitoring", "xapt-", "url", 40),
    ("monitoring", "pdus+", "url", 40),
    ("monitoring", "dt0c01.", "dotted", 80),
    ("monitoring", "dt0s01.", "dotted", 80),
    ("monitoring", "dt0s16.", "dotted", 80),
    ("monitoring", "glsa_", "url", 41),
    ("monitoring", "glc_", "base64", 80),
    ("monitoring", "sntrys_", "base64", 80),
    ("monitoring", "sntryu_", "hex", 64),
    ("monitoring", "sdk-", "hex", 36),
    ("monitoring", "configcat-sdk-1/", "path", 46),
    ("chat", "xoxe-", "url", 40),
    ("chat", "xoxe.", "url", 40),
    ("chat", "xoxc-", "url", 40),
    ("chat", "xoxd-", "url", 40),
    ("chat", "xapp-", "url", 40),
    ("chat", "hooks.slack.com/workflows/", "path", 40),
    ("chat", "hooks.slack.com/triggers/", "path", 40),
    ("chat", "discord.com/api/webhooks/", "path", 88),
    ("chat", "discordapp.com/api/webhooks/", "path", 88),
    ("chat", "webhook.office.com/webhookb2/", "path", 88),
    ("chat", "hooks.zapier.com/hooks/catch/", "path", 20),
    ("social", "EAA", "alnum", 150),
    ("social", "IGQV", "alnum", 150),
    ("social", "sl.", "url", 130),
    ("maps", "sk.eyJ", "dotted", 80),
    ("phone", "KEY0", "url", 52),
    ("model provider", "sk-", "alnum", 40),
    ("model provider", "sk-ant-", "url", 60),
    ("model provider", "sk-proj-", "url", 60),
    ("model provider", "sk-or-v1-", "hex", 64),
    ("payments", "sk_live_", "alnum", 24),
    ("payments", "sk_test_", "alnum", 24),
    ("payments", "rk_live_", "alnum", 24),
    ("payments", "rk_test_", "alnum", 24),
    ("payments", "whsec_", "alnum", 32),
    ("cloud", "AIza", "url", 35),
    ("git host", "ghp_", "alnum", 36),
    ("git host", "gho_", "alnum", 36),
    ("git host", "ghu_", "alnum", 36),
    ("git host", "ghs_", "alnum", 36),
    ("git host", "ghr_", "alnum", 36),
    ("git host", "github_pat_", "alnum", 60),
    ("git host", "glpat-", "url", 20),
    ("cloud", "AKIA", "upper", 16),
    ("cloud", "ASIA", "upper", 16),
    ("chat", "xoxa-", "url", 40),
    ("chat", "xoxb-", "url", 40),
    ("chat", "xoxp-", "url", 40),
    ("chat", "xoxr-", "url", 40),
    ("chat", "xoxs-", "url", 40),
    ("packages", "npm_", "alnum", 36),
    ("model provider", "hf_", "alnum", 34),
];

/// Characters in an order that is always the same and looks like none.
fn sample(alphabet: &str, length: usize, seed: usize) -> String {
    let characters: &[u8] = match alphabet {
        "hex" => b"0123456789abcdef",
        "upper" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        _ => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    };
    let mut state = seed * 7919 + 12345;
    let mut out: Vec<u8> = (0..length)
        .map(|_| {
            state = (state * 1_103_515_245 + 12345) % (1 << 31);
            characters[(state >> 8) % characters.len()]
        })
        .collect();
    // Whatever comes out, it has what such tokens have.
    let fixed: &[u8] = match alphabet {
        "hex" => b"4f7a",
        "upper" => b"4F7A",
        _ => b"4fG7",
    };
    out[..4].copy_from_slice(fixed);
    if length == 36 && alphabet == "hex" {
        for at in [8, 13, 18, 23] {
            out[at] = b'-';
        }
    }
    let middle = length / 2;
    match alphabet {
        "dotted" => out[middle] = b'.',
        "path" => out[middle] = b'/',
        "url" => out[middle] = b'_',
        _ => {}
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn every_kind_of_token_is_taken_out_behind_its_beginning() {
    assert!(KINDS.len() >= 150, "only {} kinds", KINDS.len());
    let mut wrong = Vec::new();
    for (nth, (service, beginning, alphabet, length)) in KINDS.iter().enumerate() {
        let token = sample(alphabet, *length, nth);
        // Two of them stand in the middle of their token.
        let before = if beginning.contains("Q~") { "aB" } else { "" };
        let before = if beginning.contains("atlasv1") { "aB3dE5gH7jK9mN" } else { before };
        for (left, right) in [
            ("", ""),
            ("use ", " now"),
            ("x='", "'"),
            ("https://h/?t=", "&u=1"),
            ("(", ")"),
            ("\n", "\nnext"),
        ] {
            let text = format!("{left}{before}{beginning}{token}{right}");
            let clean = redacted(&text);
            if clean.contains(&token) || clean.contains(&token[..token.len() - 4]) || !clean.ends_with(right)
            {
                wrong.push(format!("{service}: {text:?} became {clean:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_beginning_with_words_behind_it_is_left_alone() {
    let mut wrong = Vec::new();
    for (service, beginning, _, _) in KINDS {
        for rest in [
            "",
            "example",
            "your-token-here",
            "the_name_of_a_variable_in_a_program",
            "is-a-style",
            " 12345678",
        ] {
            // A name that gives its value to what follows is judged as such.
            let text = format!("see {beginning}{rest} there");
            let clean = redacted(&text);
            if clean != text {
                wrong.push(format!("{service}: {text:?} became {clean:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn passwords_of_users_on_a_command_line_are_taken_out() {
    for (text, expected) in [
        ("curl -u me:hunter2x https://h", "curl -u me:[REDACTED] https://h"),
        ("curl -ume:hunter2x https://h", "curl -ume:[REDACTED] https://h"),
        ("curl -u 'me:hunter2x' https://h", "curl -u 'me:[REDACTED]' https://h"),
        ("curl --user me:hunter2x https://h", "curl --user me:[REDACTED] https://h"),
        ("curl --user=me:hunter2x https://h", "curl --user=me:[REDACTED] https://h"),
        ("curl --proxy-user me:p@ss1word https://h", "curl --proxy-user me:[REDACTED] https://h"),
    ] {
        assert_eq!(redacted(text), expected);
    }
    for text in [
        "docker run -u 1000:1000 x",
        "docker run --user root:root x",
        "git push -u origin main",
        "sort -u file:name",
        "curl -u me:$PASSWORD https://h",
        "systemctl --user status x",
        "pip install --user x==1",
    ] {
        assert_eq!(redacted(text), text);
    }
}
