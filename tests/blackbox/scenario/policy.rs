//! Section 3: the hosts that the operator and the app allow, and that no request is sent to a host that is not allowed.

use serde_json::{Map, Value, json};

use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};
use crate::veth::PUBLIC_ADDRESS;

const ENABLED_VARIABLE: &str = "EXTERNAL_URL_FETCH_ENABLED";
const ALLOWLIST_VARIABLE: &str = "EXTERNAL_URL_FETCH_HOST_ALLOWLIST";

/// A row of the truth tables.
struct PolicyRow {
    /// `EXTERNAL_URL_FETCH_ENABLED`.
    enabled: Option<&'static str>,
    /// `EXTERNAL_URL_FETCH_HOST_ALLOWLIST`.
    list: Option<&'static str>,
    /// The app's policy, as JSON.
    app: Option<&'static str>,
    /// Code of the refusal; `None` if the fetch is allowed.
    code: Option<&'static str>,
}

const fn row(
    enabled: Option<&'static str>,
    list: Option<&'static str>,
    app: Option<&'static str>,
    code: Option<&'static str>,
) -> PolicyRow {
    PolicyRow {
        enabled,
        list,
        app,
        code,
    }
}

// Values of the columns of `POLICY_ROWS`.
const ENABLED_VALUE: Option<&str> = Some("true");
const ADMIN_OFF: Option<&str> = Some("disabled_by_admin");
const APP_OFF: Option<&str> = Some("disabled_by_app");
const NOT_ADMIN: Option<&str> = Some("host_not_in_admin_allowlist");
const NOT_APP: Option<&str> = Some("host_not_in_app_allowlist");
const SILENT_APP: Option<&str> = Some(r#"{"enabled": null, "host_allowlist": null}"#);
const LOCKED_APP: Option<&str> = Some(r#"{"enabled": null, "host_allowlist": []}"#);
const COM_APP: Option<&str> = Some(r#"{"enabled": true, "host_allowlist": ["*.example.com"]}"#);
const ORG_APP: Option<&str> = Some(r#"{"enabled": null, "host_allowlist": ["*.example.org"]}"#);
const OFF_APP: Option<&str> = Some(r#"{"enabled": false, "host_allowlist": null}"#);
const ON_APP: Option<&str> = Some(r#"{"enabled": true, "host_allowlist": null}"#);
const BAD_APP: Option<&str> =
    Some(r#"{"enabled": true, "host_allowlist": ["https://a.example.com"]}"#);

/// 3.2 and 3.3, for hosts below `example.com`; then P-4.
#[rustfmt::skip]
const POLICY_ROWS: [PolicyRow; 21] = [
    row(None, None, None, ADMIN_OFF),
    row(Some("false"), None, SILENT_APP, ADMIN_OFF),
    row(Some("FALSE"), None, ON_APP, ADMIN_OFF),
    row(Some("false"), None, OFF_APP, ADMIN_OFF),
    row(ENABLED_VALUE, None, SILENT_APP, None),
    row(Some("True"), None, ON_APP, None),
    row(ENABLED_VALUE, None, OFF_APP, APP_OFF),
    row(ENABLED_VALUE, None, COM_APP, None),
    row(ENABLED_VALUE, None, ORG_APP, NOT_APP),
    row(ENABLED_VALUE, None, LOCKED_APP, NOT_APP),
    row(ENABLED_VALUE, Some("*.example.com"), SILENT_APP, None),
    row(ENABLED_VALUE, Some("*.example.org"), SILENT_APP, NOT_ADMIN),
    row(ENABLED_VALUE, Some("example.org, *.EXAMPLE.com."), COM_APP, None),
    row(ENABLED_VALUE, Some(r#"["*.example.com"]"#), ORG_APP, NOT_APP),
    row(ENABLED_VALUE, Some("*.example.org"), COM_APP, NOT_ADMIN),
    row(ENABLED_VALUE, Some("*.example.org"), ORG_APP, NOT_ADMIN),
    row(ENABLED_VALUE, Some("*.example.com"), LOCKED_APP, NOT_APP),
    row(ENABLED_VALUE, Some("*.example.org"), LOCKED_APP, NOT_ADMIN),
    row(ENABLED_VALUE, Some("*.example.com"), OFF_APP, APP_OFF),
    row(ENABLED_VALUE, Some(" "), None, None),
    row(ENABLED_VALUE, None, BAD_APP, Some("policy_invalid")),
];

#[test]
fn every_row_of_the_truth_tables_holds_and_refusals_send_no_query() {
    let name = |number: usize| format!("p{number}.example.com");
    let zone: Map<String, Value> = (0..POLICY_ROWS.len())
        .map(|number| (name(number), json!([{"A": [PUBLIC_ADDRESS]}])))
        .collect();
    let plan = ScenarioSetup {
        zone: zone.into(),
        ..ScenarioSetup::default()
    };
    scenario_network::run("policy", &plan, |scenario_network| {
        let cases: Vec<_> = POLICY_ROWS
            .iter()
            .enumerate()
            .map(|(number, row)| {
                let expect = row.code.map_or(
                    FetchExpectation::Reached(PUBLIC_ADDRESS),
                    FetchExpectation::Denied,
                );
                (fetch(&format!("http://{}/", name(number)), row), expect)
            })
            .collect();
        scenario_network.check(&cases);
        let questions = scenario_network.internet.questions();
        for (number, PolicyRow { code, .. }) in POLICY_ROWS.iter().enumerate() {
            let has_queried = questions
                .iter()
                .any(|question| question.name == name(number));
            scenario_network.demand(has_queried == code.is_none(), || {
                format!("row {number}: queried is {has_queried}, the code is {code:?}")
            });
        }
    });
}

fn fetch(url: &str, row: &PolicyRow) -> FetchCommand {
    let mut fetch = FetchCommand::new(url).unset(ENABLED_VARIABLE);
    if let Some(enabled) = row.enabled {
        fetch = fetch.set(ENABLED_VARIABLE, enabled);
    }
    if let Some(list) = row.list {
        fetch = fetch.set(ALLOWLIST_VARIABLE, list);
    }
    match row.app {
        Some(app) => fetch.policy(serde_json::from_str(app).unwrap()),
        None => fetch,
    }
}

#[test]
fn an_allowlist_exempts_no_address_and_no_near_miss() {
    let zone = json!({
        "inside.example.com": [{"A": ["10.0.0.1"]}],
        "example.com": [{"A": [PUBLIC_ADDRESS]}],
        "notexample.com": [{"A": [PUBLIC_ADDRESS]}],
        "www.example.com.evil.net": [{"A": [PUBLIC_ADDRESS]}],
    });
    scenario_network::run(
        "list",
        &ScenarioSetup {
            zone,
            ..ScenarioSetup::default()
        },
        |scenario_network| {
            let listed =
                |url: &str| FetchCommand::new(url).set(ALLOWLIST_VARIABLE, "*.example.com");
            let outside = FetchExpectation::Denied("host_not_in_admin_allowlist");
            scenario_network.check(&[
                (
                    listed("http://inside.example.com/"),
                    FetchExpectation::Denied("ssrf_blocked"),
                ),
                (listed("http://example.com/"), outside.clone()),
                (listed("http://notexample.com/"), outside.clone()),
                (listed("http://www.example.com.evil.net/"), outside.clone()),
                (listed("http://www.example.com./"), outside.clone()),
                (listed("http://93.184.216.34/"), outside.clone()),
                (listed("http://127.0.0.1/"), outside.clone()),
                (listed("http://localhost/"), outside),
            ]);
            let queried: Vec<String> = scenario_network
                .internet
                .questions()
                .into_iter()
                .map(|question| question.name)
                .collect();
            let is_only_inside = queried.iter().all(|name| name == "inside.example.com");
            scenario_network.demand(is_only_inside, || format!("questions about {queried:?}"));
        },
    );
}
