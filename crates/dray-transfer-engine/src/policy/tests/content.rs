//! Tests that find secrets in the content of files.

use super::*;

#[test]
fn key_files_are_recognised_by_their_first_bytes() {
    let policy = bind(&PolicyOptions::default());
    let key = b"-----BEGIN RSA PRIVATE KEY-----\nMII";
    let refused =
        |name: &str, head: &[u8]| policy.check_key_file(&path(name), head, false).is_err();
    assert!(refused("/tmp/server.pem", key));
    assert!(refused(
        "/tmp/SERVER.KEY",
        b"\xef\xbb\xbf\n-----BEGIN PRIVATE KEY-----"
    ));
    assert!(refused(
        "/tmp/a.key",
        b"-----BEGIN OPENSSH PRIVATE KEY-----"
    ));
    assert!(refused("/tmp/a.key", b"PuTTY-User-Key-File-3: ssh-ed25519"));
    assert!(!refused("/tmp/ca.pem", b"-----BEGIN CERTIFICATE-----\nMII"));
    assert!(!refused("/tmp/slides.key", b"PK\x03\x04"));
    assert!(!refused("/tmp/notes.txt", key));
    let lifted = PolicyOptions {
        allow: vec!["server.pem".to_owned()],
        ..PolicyOptions::default()
    };
    assert!(
        bind(&lifted)
            .check_key_file(&path("/tmp/server.pem"), key, true)
            .is_ok()
    );
}

#[test]
fn refuses_a_key_file_whose_private_key_follows_other_text() {
    let policy = bind(&PolicyOptions::default());
    let certificate =
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ\n-----END CERTIFICATE-----\n";
    let attributes =
        "Bag Attributes\n    localKeyID: 01 00 00 00\nKey Attributes: <No Attributes>\n";
    let token = format!("# ghp_{}\n", "a1B2".repeat(10));
    for before in [
        certificate,
        attributes,
        token.as_str(),
        "\u{1}\n\n\n\n\n\n\n\n",
    ] {
        for key in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN PRIVATE KEY-----\n",
            "PuTTY-User-Key-File-3: ssh-ed25519\n",
        ] {
            let text = [before.repeat(40).as_bytes(), key.as_bytes()].concat();
            // Chunks of every length, so that the line of the key is cut at every position.
            for length in 1..key.len() {
                let mut scanner = Scanner::new();
                text.chunks(length).for_each(|chunk| scanner.push(chunk));
                let refused = |name: &str| {
                    policy
                        .check_key_file(
                            &path(name),
                            &text[..Policy::KEY_FILE_HEAD_BYTES.min(text.len())],
                            scanner.has_private_key(),
                        )
                        .is_err()
                };
                assert!(refused("/tmp/bundle.pem") && refused("/tmp/a.key"));
                assert!(!refused("/tmp/notes.txt"));
            }
        }
    }
    assert_eq!(
        scan(&[token.as_bytes(), b"-----BEGIN PRIVATE KEY-----"].concat()),
        Some(Finding::PrivateKey)
    );
}

pub(super) fn scan(text: &[u8]) -> Option<Finding> {
    let mut scanner = Scanner::new();
    scanner.push(text);
    scanner.finish()
}

pub(super) fn secrets() -> Vec<(Vec<u8>, Finding)> {
    let long = "a1B2c3D4e5".repeat(8);
    let token = |prefix: &str, issuer| {
        (
            format!("{prefix}{long}").into_bytes(),
            Finding::Token(issuer),
        )
    };
    vec![
        (b"AKIAABCDEFGHIJ234567".to_vec(), Finding::Token("AWS")),
        token("ghp_", "GitHub"),
        token("github_pat_", "GitHub"),
        token("glpat-", "GitLab"),
        token("AIza", "Google"),
        token("sk-ant-api03-", "Anthropic"),
        token("sk-", "OpenAI"),
        token("xoxb-", "Slack"),
        token("12345678:AA", "Telegram"),
        (
            b"-----BEGIN EC PRIVATE KEY-----".to_vec(),
            Finding::PrivateKey,
        ),
        (
            b"-----BEGIN PGP PRIVATE KEY BLOCK-----".to_vec(),
            Finding::PrivateKey,
        ),
        (
            b"PuTTY-User-Key-File-3: ssh-ed25519".to_vec(),
            Finding::PrivateKey,
        ),
    ]
}

#[test]
fn tokens_and_keys_are_found_in_text() {
    for (secret, finding) in secrets() {
        for around in [
            ("", ""),
            ("x = \"", "\"\n"),
            ("token:", " end"),
            ("----", "\n"),
        ] {
            let text = [around.0.as_bytes(), &secret, around.1.as_bytes()].concat();
            assert_eq!(scan(&text), Some(finding), "{}", text.escape_ascii());
        }
    }
    let utf16: Vec<u8> = b"ghp_"
        .iter()
        .chain(&[b'x'; 40])
        .flat_map(|byte| [*byte, 0])
        .collect();
    assert_eq!(scan(&utf16), Some(Finding::Token("GitHub")));
}

#[test]
fn text_that_only_resembles_a_secret_passes() {
    for text in [
        "task-list sk-short ghp_short AKIAshort",
        "xghp_0123456789012345678901234567890123456789",
        "-----BEGIN CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----",
        "PRIVATE KEY",
        "12:30:45 2026-01-01T10:00:00",
        "",
    ] {
        assert_eq!(scan(text.as_bytes()), None, "{text}");
    }
    let mut binary = b"\x01\x02".to_vec();
    binary.extend_from_slice(b"-----BEGIN PRIVATE KEY-----");
    assert_eq!(scan(&binary), None);
}

#[test]
fn the_policy_decides_what_a_finding_means() {
    let file = path("/tmp/a.txt");
    let finding = Some(Finding::PrivateKey);
    let token = Some(Finding::Token("GitHub"));
    let judged = |content, allow: &[&str]| {
        let allow = allow.iter().map(|name| (*name).to_owned()).collect();
        bind(&PolicyOptions {
            allow,
            content,
            ..PolicyOptions::default()
        })
        .judge(&file, finding)
    };
    assert_eq!(judged(ContentAction::Ignore, &[]), Verdict::Pass);
    assert_eq!(
        judged(ContentAction::Warn, &[]),
        Verdict::Warn(Finding::PrivateKey)
    );
    assert_eq!(
        judged(ContentAction::Block, &[]),
        Verdict::Block(Finding::PrivateKey)
    );
    assert_eq!(judged(ContentAction::Block, &["a.txt"]), Verdict::Pass);
    let policy = bind(&PolicyOptions::default());
    assert_eq!(policy.judge(&file, None), Verdict::Pass);
    // By default no private key reaches people, and a token does with a warning.
    assert_eq!(
        policy.judge(&file, finding),
        Verdict::Block(Finding::PrivateKey)
    );
    assert_eq!(
        policy.judge(&file, token),
        Verdict::Warn(Finding::Token("GitHub"))
    );
    assert_eq!(
        policy.for_reading().judge(&file, finding),
        Verdict::Warn(Finding::PrivateKey)
    );
    let strict = bind(&PolicyOptions {
        content: ContentAction::Block,
        ..PolicyOptions::default()
    });
    assert_eq!(
        strict.for_reading().judge(&file, token),
        Verdict::Block(Finding::Token("GitHub"))
    );
}

#[test]
fn a_finding_has_one_name_in_receipts_and_logs() {
    assert_eq!(Finding::PrivateKey.to_string(), "private_key");
    assert_eq!(Finding::Token("GitHub").to_string(), "token:GitHub");
    let refusal = Finding::PrivateKey.refusal(&path("/tmp/a.txt"));
    assert_eq!(refusal.kind(), ErrorKind::DeniedPath);
    assert!(
        refusal.to_string().contains("/tmp/a.txt") && refusal.to_string().contains("`allow`"),
        "{refusal}"
    );
}
