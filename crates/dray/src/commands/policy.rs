//! The policy file of an app: `{"enabled": null|bool, "host_allowlist": null|[…]}`.

use std::path::Path;

use dray_proto::v1;
use serde::Deserialize;
use serde_json::Value;

use crate::outcome::CommandFailure;

/// `features.external_url_fetch` of a manifest. Absent and `null` mean the same; an empty list does not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    enabled: Option<bool>,
    #[serde(default)]
    host_allowlist: Option<Vec<String>>,
}

/// Reads the policy file. `None` without one.
pub(crate) fn read_policy(path: Option<&Path>) -> Result<Option<v1::AppPolicy>, CommandFailure> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path).map_err(CommandFailure::local(format!(
        "cannot read {}",
        path.display()
    )))?;
    parse_policy(&text)
        .map(Some)
        .map_err(|error| CommandFailure::Usage(format!("--app-policy {}: {error}", path.display())))
}

fn parse_policy(text: &str) -> Result<v1::AppPolicy, serde_json::Error> {
    // The file is read as an object first: serde would also accept an array for a structure.
    let PolicyFile {
        enabled,
        host_allowlist,
    } = serde_json::from_value(Value::Object(serde_json::from_str(text)?))?;
    Ok(v1::AppPolicy {
        enabled,
        host_allowlist: host_allowlist.map(|patterns| v1::HostAllowlist { patterns }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_differ() {
        let check = |text: &str| {
            parse_policy(text)
                .unwrap()
                .host_allowlist
                .map(|list| list.patterns)
        };
        assert_eq!(check("{}"), None);
        assert_eq!(check(r#"{"enabled": null, "host_allowlist": null}"#), None);
        assert_eq!(check(r#"{"host_allowlist": []}"#), Some(Vec::new()));
        assert_eq!(
            parse_policy(r#"{"enabled": false}"#).unwrap().enabled,
            Some(false)
        );
    }

    #[test]
    fn typing_errors_are_not_silently_permissive() {
        for wrong in [
            r#"{"enable": false}"#,
            r#"{"enabled": "no"}"#,
            r#"{"host_allowlist": "a.example"}"#,
            "[]",
            "",
        ] {
            assert!(parse_policy(wrong).is_err(), "{wrong}");
        }
    }
}
