//! Tests of the output for operators: the effective values and the reference page.

use super::*;

#[test]
fn the_report_names_the_source_of_each_value_and_hides_secrets() {
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
fn an_empty_secret_is_shown_as_empty() {
    let loaded = loader().load(&ConfigSources::default()).unwrap();
    let text = loaded.report().to_string();
    let line = "egress-fetcher.key = \"\"  # default";
    assert!(text.lines().any(|have| have == line), "{text}");
}

#[test]
fn origins_name_variables_and_neither_values_nor_files() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "[egress-fetcher]\nmax_redirects = 3").unwrap();
    let sources = with_variables(&[("PEER_FETCH_ENABLED", "true")])
        .file(file.path())
        .set("egress-fetcher.agent", "me");
    let origins = loader().load(&sources).unwrap().origins("egress-fetcher");
    for (field, origin) in [
        ("enabled", "variable PEER_FETCH_ENABLED"),
        ("agent", "option"),
        ("max_redirects", "file"),
        ("hosts", "default"),
    ] {
        assert_eq!(origins.of(field), origin, "{field}");
    }
}

#[test]
fn the_reference_page_describes_every_field() {
    let page = configuration_page(loader().sections());
    for line in [
        "## `egress-fetcher`",
        "| `max_bytes` | `DRAY_EGRESS_FETCHER__MAX_BYTES` | `10MiB` | yes | Largest body. |",
        "| `hosts` | `DRAY_EGRESS_FETCHER__HOSTS` | unset | yes | Patterns; unset means all \\| any. |",
        "| `limits.per_host` | `DRAY_EGRESS_FETCHER__LIMITS__PER_HOST` | `4` | yes | Most concurrent requests to one host. |",
        "| `mode` | `DRAY_EGRESS_FETCHER__MODE` | `loose` | yes | Strictness of a check. One of: loose, tight. |",
        "| `key` | `DRAY_EGRESS_FETCHER__KEY` | empty | yes | Key for hashes. Secret. |",
        "| `PEER_FETCH_ENABLED` | `egress-fetcher.enabled` |",
        "Every other variable that begins with `PEER_FETCH_` is a start-up error.",
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "{line} is not in\n{page}"
        );
    }
}

/// A bot of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct TestBot {
    /// Token of the bot.
    token: Secret,
    /// Longest wait.
    timeout: Period,
}

impl Default for TestBot {
    fn default() -> Self {
        Self {
            token: Secret::default(),
            timeout: Period::secs(7),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct TestAccount {
    /// The only tenant.
    tenant: Option<String>,
    /// A bot.
    bot: Option<TestBot>,
    /// Limits of the account.
    limits: TestLimits,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct TestRule {
    /// Host of the rule.
    host: String,
    /// Ports of the rule.
    ports: Option<Vec<u16>>,
}

/// Tables that exist only when an operator adds them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct AddedTables {
    /// Accounts by name.
    accounts: BTreeMap<String, TestAccount>,
    /// Rules by name.
    rules: BTreeMap<String, Vec<TestRule>>,
    /// A bot for notices.
    notices: Option<TestBot>,
    /// Tokens by name.
    tokens: BTreeMap<String, Secret>,
}

impl Section for AddedTables {
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<AddedTables>] =
            crate::restart_settings![AddedTables: rules, notices];
        Some(RESTART_SETTINGS)
    }
}

#[test]
fn fields_of_maps_lists_and_unset_tables_have_rows_with_the_defaults_of_their_types() {
    let page = configuration_page(&[SectionSpec::of::<AddedTables>("added")]);
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(
        rows,
        [
            "| `accounts` | `DRAY_ADDED__ACCOUNTS` | `{}` | no | Accounts by name. |",
            "| `accounts.*.tenant` | `DRAY_ADDED__ACCOUNTS__*__TENANT` | unset | no | The only tenant. |",
            "| `accounts.*.bot` | `DRAY_ADDED__ACCOUNTS__*__BOT` | unset | no | A bot. |",
            "| `accounts.*.bot.token` | `DRAY_ADDED__ACCOUNTS__*__BOT__TOKEN` | empty | no | Token of the bot. Secret. |",
            "| `accounts.*.bot.timeout` | `DRAY_ADDED__ACCOUNTS__*__BOT__TIMEOUT` | `7s` | no | Longest wait. |",
            "| `accounts.*.limits.per_host` | `DRAY_ADDED__ACCOUNTS__*__LIMITS__PER_HOST` | `0` | no | Most concurrent requests to one host. |",
            "| `rules` | `DRAY_ADDED__RULES` | `{}` | yes | Rules by name. |",
            "| `rules.*[].host` | none | required | yes | Host of the rule. |",
            "| `rules.*[].ports` | none | unset | yes | Ports of the rule. |",
            "| `notices` | `DRAY_ADDED__NOTICES` | unset | yes | A bot for notices. |",
            "| `notices.token` | `DRAY_ADDED__NOTICES__TOKEN` | empty | yes | Token of the bot. Secret. |",
            "| `notices.timeout` | `DRAY_ADDED__NOTICES__TIMEOUT` | `7s` | yes | Longest wait. |",
            "| `tokens` | `DRAY_ADDED__TOKENS` | `{}` | no | Tokens by name. |",
        ]
    );
}

#[test]
fn a_variable_with_the_name_of_a_row_sets_the_field_of_an_entry() {
    let loader = ConfigLoader::new().section::<AddedTables>("added");
    let sources = with_variables(&[("DRAY_ADDED__ACCOUNTS__BOT__BOT__TIMEOUT", "9s")]);
    let added: AddedTables = loader.load(&sources).unwrap().section("added").unwrap();
    let bot = added.accounts["bot"].bot.as_ref().unwrap();
    assert_eq!(bot.timeout, Period::secs(9));
}
