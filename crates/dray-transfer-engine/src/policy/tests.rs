//! Tests of policies for paths and contents.

mod content;

use dray_sandbox::metadata::Probe;
use proptest::prelude::*;

use super::*;

fn path(text: &str) -> SandboxPath {
    SandboxPath::new(text).unwrap()
}

fn probe(home: &str, working_directory: &str) -> Probe {
    Probe {
        home: path(home),
        working_directory: path(working_directory),
        uid: 1000,
        gid: 1000,
        free: None,
        transports: Vec::new(),
        tools: Vec::new(),
        life_ms: None,
    }
}

fn bind(options: &PolicyOptions) -> Policy {
    options
        .bind(&Places::from(&probe("/home/u", "/srv/app")))
        .unwrap()
}

fn kind(policy: &Policy, text: &str) -> Option<ErrorKind> {
    policy
        .check(&path(text), TransferDirection::Outbound)
        .err()
        .map(|refusal| refusal.kind)
}

#[track_caller]
fn check(policy: &Policy, expected: Option<ErrorKind>, paths: &[&str]) {
    for text in paths {
        assert_eq!(kind(policy, text), expected, "{text}");
    }
}

const DENIED_PATH: Option<ErrorKind> = Some(ErrorKind::DeniedPath);
const OUTSIDE_ROOT: Option<ErrorKind> = Some(ErrorKind::OutsideRoot);

#[test]
fn by_default_files_come_from_the_places_of_a_session() {
    let policy = bind(&PolicyOptions::default());
    check(
        &policy,
        None,
        &[
            "/srv/app/report.pdf",
            "/home/u/plot.png",
            "/tmp/x",
            "/workspace/a/b",
            "/mnt/data/z.csv",
            "/srv/app/.env.example",
            "/home/u/id_rsa.pub",
            "/home/u/work/.config/theme.json",
        ],
    );
    check(
        &policy,
        OUTSIDE_ROOT,
        &["/", "/srv/other/x", "/home/v/x", "/tmpx/y", "/opt/x"],
    );
}

#[test]
fn system_directories_are_refused_for_any_roots() {
    let policy = Policy::beneath([SandboxPath::root()]);
    check(
        &policy,
        DENIED_PATH,
        &[
            "/etc/shadow",
            "/proc/self/environ",
            "/sys/x",
            "/dev/zero",
            "/root/x",
            "/boot/vmlinuz",
            "/var/log/syslog",
            "/var/lib/x",
            "/var/run/docker.sock",
            "/run/secrets/token",
            "/etc",
        ],
    );
    check(
        &policy,
        None,
        &["/etcetera/x", "/var/www/x", "/srv/etc/x", "/rooted"],
    );
}

#[test]
fn a_home_that_is_root_may_be_used_but_not_its_credentials() {
    let options = PolicyOptions::default();
    let policy = options
        .bind(&Places::from(&probe("/root", "/root/work")))
        .unwrap();
    check(&policy, None, &["/root/report.csv", "/root/work/a"]);
    check(
        &policy,
        DENIED_PATH,
        &["/root/.ssh/id_ed25519", "/root/.netrc", "/root/.aws/config"],
    );
}

#[test]
fn homes_of_services_and_written_roots_in_system_directories_may_be_used() {
    let service = Places::from(&probe("/var/lib/jobs", "/etc/app"));
    let policy = PolicyOptions::default().bind(&service).unwrap();
    check(&policy, None, &["/var/lib/jobs/out.csv"]);
    check(
        &policy,
        DENIED_PATH,
        &["/var/lib/other/x", "/etc/app/x", "/var/lib/jobs/.ssh/id"],
    );
    let options = PolicyOptions {
        roots: vec!["/var/log/app".to_owned(), "/etc".to_owned()],
        ..PolicyOptions::default()
    };
    let policy = bind(&options);
    check(&policy, None, &["/var/log/app/today.log"]);
    check(
        &policy,
        DENIED_PATH,
        &["/var/log/syslog", "/etc/passwd", "/var/log/app/.env"],
    );
    let hostile = Places::from(&probe("/proc/1", "/"));
    let policy = PolicyOptions::default().bind(&hostile).unwrap();
    check(&policy, DENIED_PATH, &["/proc/1/environ"]);
}

#[test]
fn credentials_in_a_known_home_are_refused_and_at_any_depth_in_an_unknown_one() {
    let known = bind(&PolicyOptions::default());
    check(
        &known,
        DENIED_PATH,
        &[
            "/home/u/.ssh/config",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/Library/Keychains/login",
            "/home/u/.git-credentials",
            "/home/u/.pgpass",
        ],
    );
    check(
        &known,
        None,
        &["/home/u/Library/Fonts/a", "/workspace/.docker/compose.yml"],
    );
    let unknown = Policy::beneath([path("/data"), path("/srv")]);
    check(
        &unknown,
        DENIED_PATH,
        &["/data/.ssh/id", "/data/x/.kube/config", "/srv/a/.npmrc"],
    );
    check(&unknown, None, &["/srv/app/report.pdf"]);
}

#[test]
fn state_of_agent_programs_is_refused_in_every_directory() {
    let policy = bind(&PolicyOptions::default());
    check(
        &policy,
        DENIED_PATH,
        &[
            "/workspace/.hermes/auth.json",
            "/workspace/.hermes/sessions/1.json",
            "/workspace/.dray/state.db-wal",
            "/workspace/.hermes/sandboxes/docker/s1/.hermes/auth.json",
            "/workspace/.dray/w/.hermes/sandboxes/.dray/state.db",
            "/home/u/.hermes/auth/google_oauth.json",
        ],
    );
    check(
        &policy,
        None,
        &["/workspace/.hermes/documents/a.pdf", "/workspace/auth.json"],
    );
}

#[test]
fn names_of_secrets_do_not_leave_but_may_come_in() {
    let policy = bind(&PolicyOptions::default());
    let names = [
        "/tmp/.env",
        "/tmp/p/.env.production",
        "/tmp/.ENV",
        "/tmp/.envrc",
        "/tmp/id_rsa",
        "/tmp/credentials.json",
        "/tmp/.netrc",
        "/tmp/kubeconfig",
    ];
    check(&policy, DENIED_PATH, &names);
    for name in names {
        assert_eq!(
            policy.check(&path(name), TransferDirection::Inbound),
            Ok(()),
            "{name}"
        );
    }
    assert!(
        policy
            .check(
                &path("/home/u/.ssh/authorized_keys"),
                TransferDirection::Inbound
            )
            .is_err()
    );
}

#[test]
fn an_operator_lifts_and_adds_entries() {
    let options = PolicyOptions {
        roots: vec!["/".to_owned()],
        allow: vec![
            ".env.test".to_owned(),
            "/var/log/app".to_owned(),
            "~/.config/app".to_owned(),
        ],
        deny: vec!["/tmp/private".to_owned(), "secret.txt".to_owned()],
        ..PolicyOptions::default()
    };
    let policy = bind(&options);
    check(
        &policy,
        None,
        &[
            "/tmp/.env.test",
            "/var/log/app/x.log",
            "/home/u/.config/app/theme",
        ],
    );
    check(
        &policy,
        DENIED_PATH,
        &[
            "/var/log/syslog",
            "/tmp/.env",
            "/tmp/private/a",
            "/a/SECRET.txt",
            "/home/u/.config/gh/x",
        ],
    );
}

#[test]
fn without_a_root_no_path_is_allowed() {
    let none = PolicyOptions {
        roots: Vec::new(),
        ..PolicyOptions::default()
    };
    check(&bind(&none), OUTSIDE_ROOT, &["/tmp/x", "/"]);
    let directories = Places::from(&probe("/", "/"));
    assert_eq!(directories.home, None);
    let policy = PolicyOptions::default().bind(&directories).unwrap();
    check(&policy, OUTSIDE_ROOT, &["/x", "/srv/x"]);
    check(&policy, None, &["/tmp/x"]);
}

#[test]
fn a_refusal_names_its_rule_and_how_to_lift_it() {
    let policy = bind(&PolicyOptions::default());
    let refusal = policy
        .check(&path("/etc/shadow"), TransferDirection::Outbound)
        .unwrap_err();
    assert_eq!(refusal.rule, "system directory /etc");
    let error = Error::from(refusal);
    assert_eq!(error.kind(), ErrorKind::DeniedPath);
    assert!(error.context().contains("`allow`"), "{error}");
    assert!(!error.kind().sentence().contains("shadow"));
    let outside = policy
        .check(&path("/opt/x"), TransferDirection::Outbound)
        .unwrap_err();
    assert!(outside.to_string().contains("`roots`"), "{outside}");
}

#[test]
fn options_that_are_invalid_for_every_sandbox_are_named() {
    assert_eq!(PolicyOptions::default().problem(), None);
    for wrong in ["work", "..", ""] {
        let options = PolicyOptions {
            roots: vec![wrong.to_owned()],
            ..PolicyOptions::default()
        };
        assert!(options.problem().is_some(), "{wrong:?}");
    }
    let options = PolicyOptions {
        allow: vec!["a/b".to_owned()],
        ..PolicyOptions::default()
    };
    assert!(options.problem().unwrap().contains("`a/b`"));
}

#[test]
fn paths_are_resolved_against_the_home_and_the_working_directory() {
    let directories = Places::from(&probe("/home/u", "/srv/app"));
    for (raw, expected) in [
        ("/a//b/", "/a/b"),
        ("~", "/home/u"),
        ("~/x y", "/home/u/x y"),
        ("out/plot.png", "/srv/app/out/plot.png"),
        ("./a", "/srv/app/a"),
        ("../b", "/srv/b"),
        ("~$draft.docx", "/srv/app/~$draft.docx"),
        ("a\nb", "/srv/app/a\nb"),
    ] {
        assert_eq!(expand(raw, &directories).unwrap(), path(expected), "{raw}");
    }
    for wrong in [&b""[..], b"a\0b"] {
        let error = expand(wrong, &directories).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName);
    }
    let homeless = Places {
        home: None,
        ..directories
    };
    assert!(expand("~/x", &homeless).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_scan_does_not_depend_on_the_chunk_boundaries(
        before in "[ -~\n]{0,1200}",
        which in 0_usize..12,
        after in "[ -~\n]{0,40}",
        cuts in proptest::collection::vec(1_usize..200, 1..40),
    ) {
        let (secret, _) = content::secrets().swap_remove(which);
        let text = [before.as_bytes(), b" ", &secret, b" ", after.as_bytes()].concat();
        let mut scanner = Scanner::new();
        let mut rest = text.as_slice();
        for cut in cuts.iter().cycle() {
            let (chunk, later) = rest.split_at((*cut).min(rest.len()));
            scanner.push(chunk);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        let found = scanner.finish();
        prop_assert_eq!(found, content::scan(&text));
        prop_assert!(found.is_some());
    }

    #[test]
    fn no_path_escapes_its_root(raw in "[./a-c~]{1,30}") {
        let directories = Places::from(&probe("/home/u", "/srv/app"));
        let policy = Policy::beneath([path("/srv/app")]);
        if let Ok(expanded) = expand(&raw, &directories) && policy.check(&expanded, TransferDirection::Outbound).is_ok() {
            prop_assert!(expanded.as_bytes().starts_with(b"/srv/app"));
            prop_assert!(!expanded.to_text().unwrap().split('/').any(|part| part == ".."));
        }
    }
}

#[test]
fn a_refusal_says_that_the_working_directory_is_the_root_of_the_sandbox() {
    let bind = |options: PolicyOptions, directory| {
        let places = Places::from(&probe("/home/u", directory));
        options.bind(&places).unwrap()
    };
    let refused = |policy: &Policy| {
        let refusal = policy.check(&path("/data.txt"), TransferDirection::Inbound);
        Error::from(refusal.unwrap_err()).works_in_root()
    };
    assert!(refused(&bind(PolicyOptions::default(), "/")));
    assert!(!refused(&bind(PolicyOptions::default(), "/srv/app")));
    // The operator does not permit the working directory, so it is not the reason.
    let roots = vec!["/tmp".to_owned()];
    let options = PolicyOptions {
        roots,
        ..PolicyOptions::default()
    };
    assert!(!refused(&bind(options, "/")));
}
