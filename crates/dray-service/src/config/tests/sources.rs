//! Tests of the sources of the configuration: defaults, file, variables and flags, and their precedence.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use super::*;

#[test]
fn without_settings_the_compiled_defaults_apply() {
    assert_eq!(load(&ConfigSources::default()), Ok(TestSection::default()));
}

#[test]
fn a_later_source_overrides_an_earlier_one() {
    let toml = file("[egress-fetcher]\nmax_redirects = 1\nagent = 'file'\nmode = 'tight'\n");
    let in_file = ConfigSources::default().file(toml.path());
    assert_eq!(load(&in_file).unwrap().max_redirects, 1);
    let mut sources = with_variables(&[
        ("DRAY_EGRESS_FETCHER__MAX_REDIRECTS", "2"),
        ("DRAY_EGRESS_FETCHER__AGENT", "variable"),
    ]);
    sources.file = Some(toml.path().into());
    assert_eq!(load(&sources).unwrap().max_redirects, 2);
    let sources = sources
        .set("egress-fetcher.max_redirects", "3")
        .set("egress-fetcher.max_redirects", "4");
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.max_redirects, 4, "the last flag wins");
    assert_eq!(loaded.agent, "variable");
    assert_eq!(loaded.mode, TestMode::Tight);
    assert_eq!(loaded.ports, [80, 443]);
}

#[test]
fn a_setting_that_is_not_unicode_is_refused_and_other_variables_are_ignored() {
    let pairs = [
        (&b"DRAY_CONFIG"[..], &b"/etc/dray-\xff.toml"[..]),
        (b"DRAY_EGRESS_FETCHER__AGENT", b"\xff"),
        (b"DRAY_\xff", b"1"),
        (b"LS_COLORS", b"\xff"),
    ];
    let pairs = pairs.map(|(name, value)| {
        let [name, value] = [name, value].map(|bytes| OsString::from_vec(bytes.to_vec()));
        (name, value)
    });
    let sources = ConfigSources::new(Environment::from_os(pairs));
    let refused = loader().load(&sources).unwrap_err();
    let keys: Vec<_> = refused
        .findings
        .iter()
        .map(|finding| &finding.key)
        .collect();
    assert_eq!(
        keys,
        ["DRAY_CONFIG", "DRAY_EGRESS_FETCHER__AGENT", "DRAY_\u{fffd}"]
    );
}

#[test]
fn variables_are_parsed_by_the_type_of_their_field() {
    let loaded = load(&with_variables(&[
        ("DRAY_EGRESS_FETCHER__ENABLED", "true"),
        ("DRAY_EGRESS_FETCHER__MAX_BYTES", "25MiB"),
        ("DRAY_EGRESS_FETCHER__CONNECT_TIMEOUT", "250ms"),
        ("DRAY_EGRESS_FETCHER__HOSTS", "a.example, b.example"),
        ("DRAY_EGRESS_FETCHER__PORTS", "[81,82]"),
        ("DRAY_EGRESS_FETCHER__KEY", "12345"),
        ("DRAY_EGRESS_FETCHER__MODE", "tight"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "9"),
        ("DRAY_EGRESS_FETCHER__WEIGHTS", r#"{"a":1.5}"#),
        ("DRAY_EGRESS_FETCHER__AGENT", "42"),
        ("PATH", "/bin"),
        ("DRAY_NATS_PORT_4222_TCP_ADDR", "10.0.0.1"),
        ("DRAY_NATS_SERVICE_HOST", "10.0.0.1"),
    ]))
    .unwrap();
    assert_eq!(
        loaded,
        TestSection {
            enabled: true,
            max_redirects: 5,
            max_bytes: ByteSize::mib(25),
            connect_timeout: Period::millis(250),
            hosts: Some(vec!["a.example".to_owned(), "b.example".to_owned()]),
            ports: vec![81, 82],
            key: Secret::new("12345"),
            mode: TestMode::Tight,
            limits: TestLimits { per_host: 9 },
            weights: [("a".to_owned(), 1.5)].into(),
            agent: "42".to_owned(),
        }
    );
    let unset = load(&with_variables(&[("DRAY_EGRESS_FETCHER__HOSTS", "")])).unwrap();
    assert_eq!(
        unset.hosts, None,
        "an empty variable unsets an optional field"
    );
}

#[test]
fn secrets_can_be_read_from_files_in_every_source() {
    let secret = file("hunter2\n");
    let path = secret.path().to_str().unwrap();
    let in_variable = load(&with_variables(&[("DRAY_EGRESS_FETCHER__KEY_FILE", path)])).unwrap();
    assert_eq!(in_variable.key.expose(), "hunter2");
    let toml = file(&format!("[egress-fetcher]\nkey_file = '{path}'\n"));
    assert_eq!(
        load(&ConfigSources::default().file(toml.path()))
            .unwrap()
            .key
            .expose(),
        "hunter2"
    );
    let in_flag = ConfigSources::default().set("egress-fetcher.key_file", path);
    assert_eq!(load(&in_flag).unwrap().key.expose(), "hunter2");

    let problems = config_problems(&[("DRAY_EGRESS_FETCHER__KEY_FILE", "/nowhere/at/all")]);
    assert!(
        problems[0].contains("must name a readable file"),
        "{problems:?}"
    );
    let toml = file(&format!(
        "[egress-fetcher]\nkey = 'a'\nkey_file = '{path}'\n"
    ));
    let error = load(&ConfigSources::default().file(toml.path())).unwrap_err();
    assert!(
        error.contains("must not be set together with `key`"),
        "{error}"
    );
    let problems = config_problems(&[("DRAY_EGRESS_FETCHER__AGENT_FILE", path)]);
    assert!(
        problems[0].contains("is not a known field"),
        "only secrets have files: {problems:?}"
    );
}

#[test]
fn a_flag_for_the_configuration_file_wins_over_the_variable_dray_config() {
    let one = file("[egress-fetcher]\nagent = 'one'\n");
    let two = file("[egress-fetcher]\nagent = 'two'\n");
    let sources = with_variables(&[("DRAY_CONFIG", one.path().to_str().unwrap())]);
    assert_eq!(load(&sources).unwrap().agent, "one");
    assert_eq!(load(&sources.file(two.path())).unwrap().agent, "two");
}

/// A directory like a secret that Kubernetes mounts: its files are links into a version that can be replaced.
fn mounted_secret(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let version = directory.path().join("..2026_11_27");
    std::fs::create_dir(&version).unwrap();
    std::os::unix::fs::symlink(&version, directory.path().join("..data")).unwrap();
    for (name, content) in files {
        std::fs::write(version.join(name), content).unwrap();
        let target = std::path::Path::new("..data").join(name);
        std::os::unix::fs::symlink(target, directory.path().join(name)).unwrap();
    }
    directory
}

fn with_secrets_dir(directory: &std::path::Path, variables: &[(&str, &str)]) -> ConfigSources {
    let mut all = vec![("DRAY_SECRETS_DIR", directory.to_str().unwrap())];
    all.extend_from_slice(variables);
    with_variables(&all)
}

#[test]
fn files_of_a_secrets_directory_set_fields_below_variables_and_above_the_configuration_file() {
    let directory = mounted_secret(&[
        ("DRAY_EGRESS_FETCHER__KEY", b"hunter2\n"),
        ("DRAY_EGRESS_FETCHER__MAX_REDIRECTS", b"3"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", b"9"),
    ]);
    let toml = file("[egress-fetcher]\nmax_redirects = 1\n");
    let variables = [("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "8")];
    let sources = with_secrets_dir(directory.path(), &variables).file(toml.path());
    let loaded = load(&sources).unwrap();
    assert_eq!(loaded.key.expose(), "hunter2");
    assert_eq!(loaded.max_redirects, 3);
    assert_eq!(loaded.limits.per_host, 8);
}

#[test]
fn an_invalid_secrets_directory_is_refused_without_showing_its_content() {
    let missing = load(&with_secrets_dir("/nowhere/at/all".as_ref(), &[])).unwrap_err();
    assert!(
        missing.contains("must name a readable directory"),
        "{missing}"
    );
    let long = vec![b'x'; (64 << 10) + 1];
    for (name, content, expected) in [
        (
            "DRAY_EGRESS_FETCHER__KEY",
            b"hunter2\xff".as_slice(),
            "must be a readable text file",
        ),
        (
            "DRAY_EGRESS_FETCHER__KEY",
            &long,
            "must have at most 65536 bytes",
        ),
        (
            "DRAY_EGRESS_FETCHER__KEI",
            b"hunter2",
            "is not a known field",
        ),
        ("password", b"hunter2", "is not a setting"),
    ] {
        let directory = mounted_secret(&[(name, content)]);
        let error = load(&with_secrets_dir(directory.path(), &[])).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("DRAY_EGRESS_FETCHER__KEY")).unwrap();
    let error = load(&with_secrets_dir(directory.path(), &[])).unwrap_err();
    assert!(error.contains("must be a regular file"), "{error}");
}
