//! Configuration as an operator meets it: sources in, effective values or complaints out.

use std::collections::BTreeMap;
use std::io::Write as _;

use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

/// How strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Loose,
    Tight,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Limits {
    /// Per host.
    per_host: u32,
}

/// A section with one field of every kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Fetcher {
    /// Whether anything is fetched.
    enabled: bool,
    /// Redirects that are followed, 0 to 10.
    max_redirects: u32,
    /// Largest body.
    max_bytes: ByteSize,
    /// Time to connect.
    connect_timeout: Period,
    /// Patterns; unset means all | any.
    hosts: Option<Vec<String>>,
    /// Ports.
    ports: Vec<u16>,
    /// Key for hashes.
    key: Secret,
    /// How strict.
    mode: Mode,
    /// Limits.
    limits: Limits,
    /// Weight per name.
    weights: BTreeMap<String, f64>,
    /// Free text.
    agent: String,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self {
            enabled: false,
            max_redirects: 5,
            max_bytes: ByteSize::mib(10),
            connect_timeout: Period::secs(5),
            hosts: None,
            ports: vec![80, 443],
            key: Secret::default(),
            mode: Mode::Loose,
            limits: Limits { per_host: 4 },
            weights: BTreeMap::new(),
            agent: "drayage".to_owned(),
        }
    }
}

impl Section for Fetcher {
    fn aliases() -> &'static [Alias] {
        &[
            Alias {
                variable: "PEER_FETCH_ENABLED",
                field: "enabled",
                parse: parse::strict_bool,
            },
            Alias {
                variable: "PEER_FETCH_MAX_REDIRECTS",
                field: "max_redirects",
                parse: parse::integer,
            },
            Alias {
                variable: "PEER_FETCH_TIMEOUT_SECONDS",
                field: "connect_timeout",
                parse: parse::seconds,
            },
            Alias {
                variable: "PEER_FETCH_HOSTS",
                field: "hosts",
                parse: parse::list,
            },
            Alias {
                variable: "PEER_FETCH_PER_HOST",
                field: "limits.per_host",
                parse: parse::integer,
            },
            Alias {
                variable: "PEER_FETCH_KEY",
                field: "key",
                parse: parse::text,
            },
        ]
    }

    fn strict_prefixes() -> &'static [&'static str] {
        &["PEER_FETCH_"]
    }

    fn validate(&self) -> Vec<Problem> {
        if self.max_redirects > 10 {
            return vec![Problem::new("max_redirects", "must be 0 to 10")];
        }
        if self.key.expose() == "short" {
            return vec![Problem::new("key", "must be at least 16 characters")];
        }
        Vec::new()
    }
}

fn loader() -> Loader {
    Loader::new().section::<Fetcher>("egress-fetcher")
}

fn load(sources: &Sources) -> Result<Fetcher, String> {
    loader()
        .load(sources)
        .map(|loaded| loaded.section("egress-fetcher").unwrap())
        .map_err(|error| error.to_string())
}

fn with_variables(variables: &[(&str, &str)]) -> Sources {
    Sources::new(variables.iter().copied().collect())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// Every complaint about these variables, without the first line.
fn complaints(variables: &[(&str, &str)]) -> Vec<String> {
    match load(&with_variables(variables)) {
        Ok(section) => panic!("{variables:?} were accepted: {section:?}"),
        Err(text) => text
            .lines()
            .skip(1)
            .map(|line| line.trim().to_owned())
            .collect(),
    }
}

#[test]
fn nothing_set_means_the_compiled_defaults() {
    assert_eq!(load(&Sources::default()), Ok(Fetcher::default()));
}

#[test]
fn each_source_wins_over_the_one_before() {
    let toml = file("[egress-fetcher]\nmax_redirects = 1\nagent = 'file'\nmode = 'tight'\n");
    let in_file = Sources::default().file(toml.path());
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
    assert_eq!(loaded.mode, Mode::Tight);
    assert_eq!(loaded.ports, [80, 443]);
}

#[test]
fn variables_are_read_as_their_fields_are_typed() {
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
        Fetcher {
            enabled: true,
            max_redirects: 5,
            max_bytes: ByteSize::mib(25),
            connect_timeout: Period::millis(250),
            hosts: Some(vec!["a.example".to_owned(), "b.example".to_owned()]),
            ports: vec![81, 82],
            key: Secret::new("12345"),
            mode: Mode::Tight,
            limits: Limits { per_host: 9 },
            weights: [("a".to_owned(), 1.5)].into(),
            agent: "42".to_owned(),
        }
    );
    let unset = load(&with_variables(&[("DRAY_EGRESS_FETCHER__HOSTS", "")])).unwrap();
    assert_eq!(
        unset.hosts, None,
        "an empty variable unsets what may be unset"
    );
}

#[test]
fn a_complaint_names_key_value_source_and_what_would_be_right() {
    for (variable, value, expected) in [
        (
            "ENABLED",
            "yes",
            "`egress-fetcher.enabled` is `yes` (variable DRAY_EGRESS_FETCHER__ENABLED): must be `true` or `false`",
        ),
        (
            "MAX_REDIRECTS",
            "many",
            "`egress-fetcher.max_redirects` is `many` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECTS): must be a whole number",
        ),
        (
            "MAX_REDIRECTS",
            "11",
            "`egress-fetcher.max_redirects` is `11` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECTS): must be 0 to 10",
        ),
        (
            "MODE",
            "mid",
            "`egress-fetcher.mode` is `mid` (variable DRAY_EGRESS_FETCHER__MODE): must be one of: loose, tight",
        ),
        (
            "KEY",
            "short",
            "`egress-fetcher.key` is `***` (variable DRAY_EGRESS_FETCHER__KEY): must be at least 16 characters",
        ),
        (
            "REDIRECTS",
            "1",
            "`egress-fetcher.redirects` (variable DRAY_EGRESS_FETCHER__REDIRECTS): is not a known field",
        ),
        (
            "MAX_REDIRECT",
            "1",
            "`egress-fetcher.max_redirect` (variable DRAY_EGRESS_FETCHER__MAX_REDIRECT): is not a known field; did you mean `max_redirects`?",
        ),
        (
            "LIMITS__PER_HOSTS",
            "1",
            "`egress-fetcher.limits.per_hosts` (variable DRAY_EGRESS_FETCHER__LIMITS__PER_HOSTS): is not a known field; did you mean `per_host`?",
        ),
    ] {
        let said = complaints(&[(&format!("DRAY_EGRESS_FETCHER__{variable}"), value)]);
        assert!(
            said.len() == 1 && said[0].starts_with(expected),
            "{variable}: {said:#?}"
        );
    }
}

#[test]
fn what_a_type_cannot_read_names_the_field_too() {
    let said = complaints(&[("DRAY_EGRESS_FETCHER__MAX_BYTES", "ten")]);
    assert!(
        said[0].starts_with("`egress-fetcher.max_bytes`"),
        "{said:?}"
    );
    assert!(
        said[0].contains("variable DRAY_EGRESS_FETCHER__MAX_BYTES"),
        "{said:?}"
    );
    let said = complaints(&[("DRAY_EGRESS_FETCHER__CONNECT_TIMEOUT", "5")]);
    assert!(said[0].contains("`5` is not a length of time"), "{said:?}");
    let said = complaints(&[("DRAY_EGRESS_FETCHER__PORTS", "80,70000")]);
    assert!(said[0].starts_with("`egress-fetcher.ports"), "{said:?}");
}

#[test]
fn all_complaints_come_at_once() {
    let said = complaints(&[
        ("DRAY_EGRESS_FETCHER__ENABLED", "1"),
        ("DRAY_EGRESS_FETCHER__MAX_REDIRECTS", "x"),
        ("DRAY_OTHER__FIELD", "1"),
    ]);
    assert_eq!(said.len(), 3, "{said:#?}");
}

#[test]
fn variables_that_nothing_reads_are_refused() {
    let said = complaints(&[("DRAY_EGRESS_FETCHER_MAX_BYTES", "1")]);
    assert!(said[0].contains("two underscores"), "{said:?}");
    let said = complaints(&[("DRAY_EGRES_FETCHER__MAX_BYTES", "1")]);
    assert!(
        said[0].contains("did you mean `egress-fetcher`?"),
        "{said:?}"
    );
}

#[test]
fn strict_prefixes_refuse_typing_errors() {
    let said = complaints(&[("PEER_FETCH_ENABLE", "false")]);
    assert_eq!(
        said,
        [
            "`PEER_FETCH_ENABLE` (environment): is not a known variable; did you mean `PEER_FETCH_ENABLED`?"
        ]
    );
}

#[test]
fn aliases_set_fields_and_are_strict() {
    let loaded = load(&with_variables(&[
        ("PEER_FETCH_ENABLED", "true"),
        ("PEER_FETCH_TIMEOUT_SECONDS", "2.5"),
        ("PEER_FETCH_HOSTS", r#"["a.example"]"#),
        ("PEER_FETCH_PER_HOST", "7"),
    ]))
    .unwrap();
    assert!(loaded.enabled);
    assert_eq!(loaded.connect_timeout, Period::millis(2500));
    assert_eq!(loaded.hosts.unwrap(), ["a.example"]);
    assert_eq!(loaded.limits.per_host, 7);
    assert_eq!(
        complaints(&[("PEER_FETCH_ENABLED", "True")]),
        [
            "`egress-fetcher.enabled` is `True` (variable PEER_FETCH_ENABLED): must be exactly `true` or `false`"
        ]
    );
}

#[test]
fn a_blank_alias_counts_as_unset_and_warns() {
    let loaded = loader()
        .load(&with_variables(&[("PEER_FETCH_HOSTS", " ")]))
        .unwrap();
    assert_eq!(
        loaded.warnings(),
        ["variable PEER_FETCH_HOSTS is blank and counts as unset"]
    );
    assert_eq!(
        loaded.section::<Fetcher>("egress-fetcher").unwrap().hosts,
        None
    );
}

#[test]
fn two_names_of_one_field_must_agree() {
    let check = |alias: (&str, &str), own: (&str, &str), agree: bool| {
        let result = load(&with_variables(&[alias, own]));
        assert_eq!(result.is_ok(), agree, "{alias:?} {own:?}: {result:?}");
        if let Err(text) = result {
            assert!(
                text.contains("is set to different values")
                    && text.contains(alias.0)
                    && text.contains(own.0),
                "{text}"
            );
            assert!(!text.contains("hunter"), "{text}");
        }
    };
    let timeout = "DRAY_EGRESS_FETCHER__CONNECT_TIMEOUT";
    check(("PEER_FETCH_TIMEOUT_SECONDS", "5"), (timeout, "5s"), true);
    check(
        ("PEER_FETCH_TIMEOUT_SECONDS", "5"),
        (timeout, "5000ms"),
        true,
    );
    check(("PEER_FETCH_TIMEOUT_SECONDS", "5"), (timeout, "6s"), false);
    check(
        ("PEER_FETCH_ENABLED", "true"),
        ("DRAY_EGRESS_FETCHER__ENABLED", "false"),
        false,
    );
    check(
        ("PEER_FETCH_PER_HOST", "1"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "2"),
        false,
    );
    check(
        ("PEER_FETCH_KEY", "hunter2"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter2"),
        true,
    );
    check(
        ("PEER_FETCH_KEY", "hunter2"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter3"),
        false,
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
        load(&Sources::default().file(toml.path()))
            .unwrap()
            .key
            .expose(),
        "hunter2"
    );
    let in_flag = Sources::default().set("egress-fetcher.key_file", path);
    assert_eq!(load(&in_flag).unwrap().key.expose(), "hunter2");

    let said = complaints(&[("DRAY_EGRESS_FETCHER__KEY_FILE", "/nowhere/at/all")]);
    assert!(said[0].contains("must name a readable file"), "{said:?}");
    let toml = file(&format!(
        "[egress-fetcher]\nkey = 'a'\nkey_file = '{path}'\n"
    ));
    let error = load(&Sources::default().file(toml.path())).unwrap_err();
    assert!(
        error.contains("must not be set together with `key`"),
        "{error}"
    );
    let said = complaints(&[("DRAY_EGRESS_FETCHER__AGENT_FILE", path)]);
    assert!(
        said[0].contains("is not a known field"),
        "only secrets have files: {said:?}"
    );
}

#[test]
fn files_are_checked_like_everything_else() {
    let check = |text: &str, expected: &str| {
        let toml = file(text);
        let error = load(&Sources::default().file(toml.path())).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(
            error.contains(&format!("file {}", toml.path().display())),
            "{error}"
        );
    };
    check(
        "[egress-fetcher]\nmax_redirect = 1\n",
        "did you mean `max_redirects`?",
    );
    check("[egress]\nx = 1\n", "`egress`");
    check(
        "[egress-fetcher]\nenabled = 'yes'\n",
        "`egress-fetcher.enabled`",
    );
    check(
        "[egress-fetcher]\nports = [1, 'x']\n",
        "`egress-fetcher.ports",
    );
    check("[egress-fetcher]\n\nenabled = \n", "in line 3");
    check("egress-fetcher = 1\n", "`egress-fetcher`");
    let error = load(&Sources::default().file("/nowhere/dray.toml")).unwrap_err();
    assert!(error.contains("must be a readable TOML file"), "{error}");
}

#[test]
fn the_variable_dray_config_names_the_file_unless_a_flag_does() {
    let one = file("[egress-fetcher]\nagent = 'one'\n");
    let two = file("[egress-fetcher]\nagent = 'two'\n");
    let sources = with_variables(&[("DRAY_CONFIG", one.path().to_str().unwrap())]);
    assert_eq!(load(&sources).unwrap().agent, "one");
    assert_eq!(load(&sources.file(two.path())).unwrap().agent, "two");
}

#[test]
fn flags_are_checked_like_everything_else() {
    let check = |key: &str, value: &str, expected: &str| {
        let error = load(&Sources::default().set(key, value)).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("flag --set {key}")), "{error}");
    };
    check("egress-fetcher.enabled", "on", "must be `true` or `false`");
    check("egress-fetcher.nothing", "1", "is not a known field");
    check("nothing.enabled", "1", "is not a known section");
    for wrong in ["a", "a.b", "a=b"] {
        assert!(wrong.parse::<Override>().is_err(), "{wrong}");
    }
    let flag: Override = "a.b=c=d".parse().unwrap();
    assert_eq!((flag.key.as_str(), flag.value.as_str()), ("a.b", "c=d"));
}

#[test]
fn the_report_says_where_each_value_came_from_and_hides_secrets() {
    let sources = with_variables(&[
        ("PEER_FETCH_ENABLED", "true"),
        ("DRAY_EGRESS_FETCHER__LIMITS__PER_HOST", "9"),
        ("DRAY_EGRESS_FETCHER__KEY", "hunter2"),
    ])
    .set("egress-fetcher.agent", "me");
    let loaded = loader().load(&sources).unwrap();
    let text = loaded.report().to_string();
    for line in [
        "egress-fetcher.enabled = true  # variable PEER_FETCH_ENABLED",
        "egress-fetcher.limits.per_host = 9  # variable DRAY_EGRESS_FETCHER__LIMITS__PER_HOST",
        "egress-fetcher.agent = \"me\"  # flag --set egress-fetcher.agent",
        "egress-fetcher.max_bytes = \"10MiB\"  # default",
        "egress-fetcher.key = \"***\"  # variable DRAY_EGRESS_FETCHER__KEY",
        "egress-fetcher.hosts = null  # default",
    ] {
        assert!(
            text.lines().any(|have| have == line),
            "{line} is not in\n{text}"
        );
    }
    assert!(!text.contains("hunter2"));
    assert!(
        !format!("{sources:?}").contains("hunter2"),
        "the environment prints names only"
    );
}

#[test]
fn the_reference_page_tells_everything_about_a_field() {
    let page = reference(loader().sections());
    for line in [
        "## `egress-fetcher`",
        "| `max_bytes` | `DRAY_EGRESS_FETCHER__MAX_BYTES` | `10MiB` | Largest body. |",
        "| `hosts` | `DRAY_EGRESS_FETCHER__HOSTS` | unset | Patterns; unset means all \\| any. |",
        "| `limits.per_host` | `DRAY_EGRESS_FETCHER__LIMITS__PER_HOST` | `4` | Per host. |",
        "| `mode` | `DRAY_EGRESS_FETCHER__MODE` | `loose` | How strict. One of: loose, tight. |",
        "| `key` | `DRAY_EGRESS_FETCHER__KEY` | empty | Key for hashes. Secret. |",
        "| `PEER_FETCH_ENABLED` | `egress-fetcher.enabled` |",
        "Every other variable that begins with `PEER_FETCH_` is a start-up error.",
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "{line} is not in\n{page}"
        );
    }
}
