//! Audit events in the Open Cybersecurity Schema Framework (<https://schema.ocsf.io>, version 1.3.0, profile
//! `security_control`): fetches and requests, also those inside of intercepted tunnels, as HTTP Activity (4002), tunnels
//! as Network Activity (4001).
//!
//! Fields without an attribute in the schema are in `unmapped`, under their names in the event.

use dray_proto::v1;
use serde_json::{Map, Value, json};

use super::event_result::EventResult;
use super::line::event_json;
use super::queue::PlacedEvent;

pub(super) const SCHEMA_VERSION: &str = "1.3.0";
const NETWORK_CATEGORY: u32 = 4;
const NETWORK_ACTIVITY: u32 = 4001;
const HTTP_ACTIVITY: u32 = 4002;
/// `connection_info.direction_id`: from the inside to the outside.
const OUTBOUND_DIRECTION: u32 = 2;
/// `connection_info.protocol_num`: the number of TCP in IP headers.
const TCP_PROTOCOL: u32 = 6;
/// Attributes of the event that have a place in the schema for every kind of connection.
const MAPPED_NAMES: [&str; 16] = [
    "event_id",
    "time",
    "operation_id",
    "app_id",
    "url_host",
    "url_port",
    "verdict",
    "code",
    "duration_ms",
    "fetcher_version",
    "tenant_id",
    "session_id",
    "server_name",
    "rules_digest",
    "decided_by",
    "up_bytes",
];

impl PlacedEvent for v1::EgressAudit {
    fn result(&self) -> EventResult {
        EventResult::of(self)
    }

    fn sampled_operation(&self) -> Option<&str> {
        Some(&self.operation_id)
    }

    fn time_ms(&self) -> u64 {
        self.time_ms
    }

    fn kind(&self) -> &'static str {
        "EgressAudit"
    }

    fn ocsf_json(&self) -> Value {
        ocsf_json(self)
    }
}

/// Converts the event.
fn ocsf_json(event: &v1::EgressAudit) -> Value {
    let (class, activity) = class_of(event);
    let result = EventResult::of(event);
    let is_success = result == EventResult::Success;
    let is_allowed = result != EventResult::Refused;
    let Value::Object(mut unmapped) = event_json(event) else {
        return Value::Null;
    };
    for name in MAPPED_NAMES {
        unmapped.remove(name);
    }
    // Other bytes than those of the attribute `traffic`.
    let down_bytes = event.down_bytes.max(event.wire_bytes);
    let mut ocsf = json!({
        "category_uid": NETWORK_CATEGORY,
        "class_uid": class,
        "activity_id": activity,
        "type_uid": class * 100 + activity,
        "time": event.time_ms,
        "duration": event.duration_ms,
        // The severity is "informational" or "low".
        "severity_id": if is_success { 1 } else { 2 },
        // The status is "success" or "failure".
        "status_id": if is_success { 1 } else { 2 },
        "status_code": event.code,
        // The action is "allowed" or "denied", and the disposition "allowed" or "blocked".
        "action_id": if is_allowed { 1 } else { 2 },
        "disposition_id": if is_allowed { 1 } else { 2 },
        "metadata": {
            "version": SCHEMA_VERSION,
            "profiles": ["security_control"],
            "uid": event.event_id,
            "correlation_uid": event.operation_id,
            "tenant_uid": event.tenant_id,
            "product": {
                "name": "egress-fetcher",
                "vendor_name": "Drayage",
                "version": event.fetcher_version,
            },
        },
        "app_name": event.app_id,
        "src_endpoint": {"uid": event.session_id},
        "dst_endpoint": {"hostname": event.url_host, "port": event.url_port},
        "connection_info": {
            "direction_id": OUTBOUND_DIRECTION,
            "protocol_num": TCP_PROTOCOL,
            "protocol_name": "tcp",
        },
        "traffic": {"bytes_in": down_bytes, "bytes_out": event.up_bytes},
        "policy": {"name": event.decided_by, "uid": event.rules_digest},
        "unmapped": unmapped,
    });
    if let Value::Object(ocsf) = &mut ocsf {
        add_details(ocsf, event, class);
    }
    ocsf
}

/// Adds the attributes that depend on the kind of connection.
fn add_details(ocsf: &mut Map<String, Value>, event: &v1::EgressAudit, class: u32) {
    // The peer is that of the last hop. The address of the first hop of a redirect is in `unmapped`.
    let peer = event.hops.last().map(|hop| hop.peer_address.as_str());
    if let Some(address) = peer.and_then(|peer| peer.parse::<std::net::SocketAddr>().ok())
        && let Some(Value::Object(endpoint)) = ocsf.get_mut("dst_endpoint")
    {
        endpoint.insert("ip".to_owned(), json!(address.ip().to_string()));
    }
    if class == HTTP_ACTIVITY {
        let url = json!({
            "scheme": event.url_scheme,
            "hostname": event.url_host,
            "port": event.url_port,
        });
        let method = match event.method.as_str() {
            "" => "GET",
            method => method,
        };
        ocsf.insert(
            "http_request".to_owned(),
            json!({"http_method": method, "url": url}),
        );
        if event.http_status > 0 {
            let response = json!({"code": event.http_status, "content_type": event.content_type});
            ocsf.insert("http_response".to_owned(), response);
        }
    }
    if !event.server_name.is_empty() {
        ocsf.insert(
            "tls".to_owned(),
            json!({"sni": event.server_name, "version": ""}),
        );
    }
}

/// The class, and the activity within it.
fn class_of(event: &v1::EgressAudit) -> (u32, u32) {
    // A tunnel that was refused before a request inside of it has no method.
    let is_request = event.intercepted && !event.method.is_empty();
    if !is_request && matches!(event.proxy_protocol.as_str(), "connect" | "socks5") {
        // The numbers of Network Activity: open, close, refuse.
        let activity = match event.proxy_stage.as_str() {
            "opened" => 1,
            "closed" => 2,
            _ => 5,
        };
        return (NETWORK_ACTIVITY, activity);
    }
    // The numbers of HTTP Activity; 99 is any other method.
    let activity = match event.method.as_str() {
        "" | "GET" => 3,
        "DELETE" => 2,
        "HEAD" => 4,
        "OPTIONS" => 5,
        "POST" => 6,
        "PUT" => 7,
        "TRACE" => 8,
        _ => 99,
    };
    (HTTP_ACTIVITY, activity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(protocol: &str, stage: &str, verdict: &str) -> v1::EgressAudit {
        v1::EgressAudit {
            event_id: "e-1".to_owned(),
            time_ms: 1_800_000_000_000,
            tenant_id: "acme".to_owned(),
            session_id: "chat-1".to_owned(),
            url_scheme: "https".to_owned(),
            url_host: "files.example.org".to_owned(),
            url_port: 443,
            verdict: verdict.to_owned(),
            code: if verdict == "deny" {
                "policy_denied"
            } else {
                ""
            }
            .to_owned(),
            proxy_protocol: protocol.to_owned(),
            proxy_stage: stage.to_owned(),
            server_name: if protocol == "connect" {
                "files.example.org"
            } else {
                ""
            }
            .to_owned(),
            decided_by: "analysts/packages (policy.toml:5)".to_owned(),
            hops: vec![v1::AuditHop {
                peer_address: "[2606:4700::1111]:443".to_owned(),
                ..v1::AuditHop::default()
            }],
            ..v1::EgressAudit::default()
        }
    }

    #[test]
    fn each_kind_of_connection_has_its_class_and_activity() {
        for (protocol, stage, method, class, activity) in [
            ("", "", "", 4002, 3),
            ("http", "opened", "POST", 4002, 6),
            ("http", "closed", "PROPFIND", 4002, 99),
            ("connect", "opened", "", 4001, 1),
            ("connect", "closed", "", 4001, 2),
            ("socks5", "refused", "", 4001, 5),
        ] {
            let event = v1::EgressAudit {
                method: method.to_owned(),
                ..event(protocol, stage, "allow")
            };
            let ocsf = ocsf_json(&event);
            assert_eq!(
                (&ocsf["class_uid"], &ocsf["activity_id"], &ocsf["type_uid"]),
                (
                    &json!(class),
                    &json!(activity),
                    &json!(class * 100 + activity)
                ),
                "{protocol} {stage} {method}"
            );
            assert_eq!(ocsf["category_uid"], 4);
            // A class of HTTP has a request, which the schema demands.
            assert_eq!(ocsf.get("http_request").is_some(), class == 4002);
        }
    }

    #[test]
    fn a_request_in_an_intercepted_tunnel_is_http_activity() {
        for (stage, method, class, activity) in [
            ("opened", "GET", 4002, 3),
            ("closed", "PUT", 4002, 7),
            ("refused", "", 4001, 5),
        ] {
            let event = v1::EgressAudit {
                intercepted: true,
                method: method.to_owned(),
                http_status: 413,
                ..event("connect", stage, "allow")
            };
            let ocsf = ocsf_json(&event);
            let placed = (&ocsf["class_uid"], &ocsf["activity_id"]);
            assert_eq!(
                placed,
                (&json!(class), &json!(activity)),
                "{stage} {method}"
            );
            if class == HTTP_ACTIVITY {
                assert_eq!(ocsf["http_request"]["http_method"], method);
                assert_eq!(ocsf["http_response"]["code"], 413);
                assert_eq!(ocsf["tls"]["sni"], "files.example.org");
            }
        }
    }

    #[test]
    fn a_request_that_failed_was_allowed_and_one_that_was_refused_is_blocked() {
        for (code, rule, action) in [
            ("dns_not_found", "", 1),
            ("connect_failed", "", 1),
            ("http_status", "", 1),
            ("timeout", "", 1),
            ("cancelled", "", 1),
            ("ssrf_blocked", "", 2),
            ("quota_exceeded", "", 2),
            ("overloaded", "", 2),
            ("token_expired", "identity", 2),
            ("media_type_not_allowed", "", 2),
            ("sink_failed", "", 1),
            // Nothing was sent, because the event could not be stored.
            ("sink_failed", "audit", 2),
        ] {
            let event = v1::EgressAudit {
                code: code.to_owned(),
                rule: rule.to_owned(),
                ..event("http", "refused", "deny")
            };
            let ocsf = ocsf_json(&event);
            assert_eq!(
                (
                    &ocsf["action_id"],
                    &ocsf["disposition_id"],
                    &ocsf["status_id"]
                ),
                (&json!(action), &json!(action), &json!(2)),
                "{code} {rule}"
            );
        }
    }

    #[test]
    fn an_open_connection_that_a_rule_ends_is_blocked_and_one_that_breaks_has_failed() {
        for (code, action, status) in [
            ("", 1, 1),
            ("connection_closed", 1, 2),
            ("idle_timeout", 1, 2),
            ("policy_denied", 2, 2),
            ("media_type_not_allowed", 2, 2),
            ("quota_exceeded", 2, 2),
            ("too_large", 2, 2),
        ] {
            let event = v1::EgressAudit {
                code: code.to_owned(),
                ..event("http", "closed", "allow")
            };
            let ocsf = ocsf_json(&event);
            assert_eq!(
                (
                    &ocsf["action_id"],
                    &ocsf["disposition_id"],
                    &ocsf["severity_id"],
                    &ocsf["status_id"]
                ),
                (
                    &json!(action),
                    &json!(action),
                    &json!(status),
                    &json!(status)
                ),
                "{code}"
            );
        }
    }

    #[test]
    fn a_refusal_is_denied_and_blocked_with_its_rule_and_code() {
        let ocsf = ocsf_json(&event("connect", "refused", "deny"));
        assert_eq!(
            (
                &ocsf["action_id"],
                &ocsf["disposition_id"],
                &ocsf["status_id"]
            ),
            (&json!(2), &json!(2), &json!(2))
        );
        assert_eq!(ocsf["status_code"], "policy_denied");
        assert_eq!(ocsf["policy"]["name"], "analysts/packages (policy.toml:5)");
        assert_eq!(ocsf["metadata"]["tenant_uid"], "acme");
        assert_eq!(ocsf["dst_endpoint"]["ip"], "2606:4700::1111");
        assert_eq!(ocsf["tls"]["sni"], "files.example.org");
        // No information is lost.
        assert_eq!(ocsf["unmapped"]["proxy_stage"], "refused");
        assert_eq!(ocsf["unmapped"].get("url_host"), None);
    }
}
