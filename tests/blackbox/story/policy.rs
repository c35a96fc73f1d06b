//! Section 3: what the operator and the app allow, and that nothing is asked for a host that is not allowed.

use serde_json::{Map, Value, json};

use crate::cable::PUBLIC;
use crate::expect::Expect;
use crate::fetch::Fetch;
use crate::world::{self, Plan};

const ENABLED: &str = "EXTERNAL_URL_FETCH_ENABLED";
const LIST: &str = "EXTERNAL_URL_FETCH_HOST_ALLOWLIST";

/// A row of the truth tables.
struct Row {
    /// `EXTERNAL_URL_FETCH_ENABLED`.
    enabled: Option<&'static str>,
    /// `EXTERNAL_URL_FETCH_HOST_ALLOWLIST`.
    list: Option<&'static str>,
    /// The app's policy, as JSON.
    app: Option<&'static str>,
    /// The refusal, if it is one.
    code: Option<&'static str>,
}

const fn row(
    enabled: Option<&'static str>,
    list: Option<&'static str>,
    app: Option<&'static str>,
    code: Option<&'static str>,
) -> Row {
    Row {
        enabled,
        list,
        app,
        code,
    }
}

const ON: Option<&str> = Some("true");
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
const ROWS: [Row; 21] = [
    row(None, None, None, ADMIN_OFF),
    row(Some("false"), None, SILENT_APP, ADMIN_OFF),
    row(Some("FALSE"), None, ON_APP, ADMIN_OFF),
    row(Some("false"), None, OFF_APP, ADMIN_OFF),
    row(ON, None, SILENT_APP, None),
    row(Some("True"), None, ON_APP, None),
    row(ON, None, OFF_APP, APP_OFF),
    row(ON, None, COM_APP, None),
    row(ON, None, ORG_APP, NOT_APP),
    row(ON, None, LOCKED_APP, NOT_APP),
    row(ON, Some("*.example.com"), SILENT_APP, None),
    row(ON, Some("*.example.org"), SILENT_APP, NOT_ADMIN),
    row(ON, Some("example.org, *.EXAMPLE.com."), COM_APP, None),
    row(ON, Some(r#"["*.example.com"]"#), ORG_APP, NOT_APP),
    row(ON, Some("*.example.org"), COM_APP, NOT_ADMIN),
    row(ON, Some("*.example.org"), ORG_APP, NOT_ADMIN),
    row(ON, Some("*.example.com"), LOCKED_APP, NOT_APP),
    row(ON, Some("*.example.org"), LOCKED_APP, NOT_ADMIN),
    row(ON, Some("*.example.com"), OFF_APP, APP_OFF),
    row(ON, Some(" "), None, None),
    row(ON, None, BAD_APP, Some("policy_invalid")),
];

#[test]
fn every_row_of_the_truth_tables_holds_and_refusals_ask_nothing() {
    let name = |number: usize| format!("p{number}.example.com");
    let zone: Map<String, Value> = (0..ROWS.len())
        .map(|number| (name(number), json!([{"A": [PUBLIC]}])))
        .collect();
    let plan = Plan {
        zone: zone.into(),
        ..Plan::default()
    };
    world::run("policy", &plan, |world| {
        let cases: Vec<_> = ROWS
            .iter()
            .enumerate()
            .map(|(number, row)| {
                let expect = row.code.map_or(Expect::Reached(PUBLIC), Expect::Denied);
                (fetch(&format!("http://{}/", name(number)), row), expect)
            })
            .collect();
        world.check(&cases);
        let questions = world.internet.questions();
        for (number, Row { code, .. }) in ROWS.iter().enumerate() {
            let asked = questions
                .iter()
                .any(|question| question.name == name(number));
            world.demand(asked == code.is_none(), || {
                format!("row {number}: asked is {asked}, the code is {code:?}")
            });
        }
    });
}

fn fetch(url: &str, row: &Row) -> Fetch {
    let mut fetch = Fetch::new(url).unset(ENABLED);
    if let Some(enabled) = row.enabled {
        fetch = fetch.set(ENABLED, enabled);
    }
    if let Some(list) = row.list {
        fetch = fetch.set(LIST, list);
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
        "example.com": [{"A": [PUBLIC]}],
        "notexample.com": [{"A": [PUBLIC]}],
        "www.example.com.evil.net": [{"A": [PUBLIC]}],
    });
    world::run(
        "list",
        &Plan {
            zone,
            ..Plan::default()
        },
        |world| {
            let listed = |url: &str| Fetch::new(url).set(LIST, "*.example.com");
            let outside = Expect::Denied("host_not_in_admin_allowlist");
            world.check(&[
                (
                    listed("http://inside.example.com/"),
                    Expect::Denied("ssrf_blocked"),
                ),
                (listed("http://example.com/"), outside.clone()),
                (listed("http://notexample.com/"), outside.clone()),
                (listed("http://www.example.com.evil.net/"), outside.clone()),
                (listed("http://www.example.com./"), outside.clone()),
                (listed("http://93.184.216.34/"), outside.clone()),
                (listed("http://127.0.0.1/"), outside.clone()),
                (listed("http://localhost/"), outside),
            ]);
            let asked: Vec<String> = world
                .internet
                .questions()
                .into_iter()
                .map(|question| question.name)
                .collect();
            let only = asked.iter().all(|name| name == "inside.example.com");
            world.demand(only, || format!("questions about {asked:?}"));
        },
    );
}
