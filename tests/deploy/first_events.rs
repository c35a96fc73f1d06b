//! Alerts on counters of rare events: `increase` sees no increase in a series that appears with its first event, so each
//! of these counters exists in a system that has just started.

use dray_platform_telegram::fake_server::FakeTelegram as Telegram;

use super::compose::SERVICE_NAMES;
use super::distributed::DistributedSystem;
use super::{read, yaml};

/// The selectors of counters under `increase(` in the alerts: the name, and the labels with their values.
fn increase_selectors() -> Vec<(String, Vec<String>)> {
    let alerts = &yaml(&read("deploy/monitoring/alerts.yaml"))[0];
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let expressions = rules.iter().map(|rule| rule["expr"].as_str().unwrap());
    let mut selectors = Vec::new();
    for part in expressions.flat_map(|expression| expression.split("increase(").skip(1)) {
        let selector = part.split('[').next().unwrap();
        let (name, labels) = selector.split_once('{').unwrap_or((selector, ""));
        let labels = labels.trim_end_matches('}').split(',');
        let labels = labels.filter(|label| !label.is_empty());
        selectors.push((name.to_owned(), labels.map(str::to_owned).collect()));
    }
    selectors
}

#[test]
fn the_absence_of_each_service_is_an_alert() {
    let alerts = &yaml(&read("deploy/monitoring/alerts.yaml"))[0];
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let mut rules = rules.iter();
    let rule = rules.find(|rule| rule["alert"] == "DrayServiceAway");
    let expression = rule.unwrap()["expr"].as_str().unwrap();
    for name in SERVICE_NAMES {
        let absent = format!("absent(dray_ready{{service=\"{name}\"}})");
        assert!(expression.contains(&absent), "{name}: {expression}");
    }
    assert_eq!(expression.matches("absent(").count(), SERVICE_NAMES.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_counter_of_an_alert_exists_before_its_first_event() {
    let mut system = DistributedSystem::start().await;
    let telegram = Telegram::start().await.unwrap();
    system.configure(&format!(
        "[platform-delivery.accounts.tg.telegram]\ntoken = '{}'\nbase_url = '{}'\npoll_wait = '2s'\n",
        telegram.token().expose(),
        telegram.url(),
    ));
    let mut metrics = String::new();
    // One after the other, because only the start is of interest.
    for name in SERVICE_NAMES {
        let service = system.replica(name, 0).await;
        metrics += &service.page("metrics");
    }
    for name in SERVICE_NAMES {
        let label = format!("service=\"{name}\"");
        let is_series = |line: &str| line.starts_with("dray_ready{") && line.contains(&label);
        assert!(metrics.lines().any(is_series), "{name}");
    }
    let selectors = increase_selectors();
    assert!(selectors.len() >= 9, "{selectors:?}");
    for (name, labels) in selectors {
        let is_series = |line: &&str| {
            let rest = line.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label.as_str()))
        };
        assert!(
            metrics.lines().any(|line| is_series(&line)),
            "{name} {labels:?}"
        );
    }
}
