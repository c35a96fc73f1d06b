//! Writes the event as one line of JSON, complete, in the names of egress-security 18.
//!
//! The text is made once for each event: the log line and every place get the same bytes.

use dray_proto::v1;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// Bytes of an ordinary event, for which one allocation is enough.
const TEXT_BYTES: usize = 2 * 1024;

/// The event as one line of JSON.
pub(super) fn event_text(event: &v1::EgressAudit) -> String {
    let mut text = Vec::with_capacity(TEXT_BYTES);
    // Strings, numbers and lists of them always have a text.
    let _ = serde_json::to_writer(&mut text, &EventFields(event));
    String::from_utf8(text).unwrap_or_default()
}

/// The event as a JSON value, for a schema that arranges it in another way.
pub(super) fn event_json(event: &v1::EgressAudit) -> Value {
    serde_json::to_value(EventFields(event)).unwrap_or_default()
}

/// The fields of an event in their order. Destructured, so that a new field cannot be forgotten.
struct EventFields<'a>(&'a v1::EgressAudit);

impl Serialize for EventFields<'_> {
    #[expect(clippy::too_many_lines, reason = "a list of all fields")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v1::EgressAudit {
            event_id,
            time_ms,
            operation_id,
            app_id,
            trace_id,
            policy_digest,
            admin_enabled,
            app_enabled,
            url_scheme,
            url_host,
            url_port,
            url_path_hash,
            verdict,
            code,
            phase,
            hops,
            redirect_count,
            final_host,
            http_status,
            content_type,
            stored_bytes,
            wire_bytes,
            coding,
            sha256,
            length_verified,
            duration_ms,
            dns_ms,
            connect_ms,
            tls_ms,
            head_ms,
            body_ms,
            private_cidrs,
            fetcher_version,
            table_edition,
            lookup_only,
            proxy_protocol,
            proxy_stage,
            tenant_id,
            session_id,
            rule,
            server_name,
            up_bytes,
            down_bytes,
            rules_digest,
            decided_by,
            reported_by,
            method,
            credentials,
            question_id,
            intercepted,
            cache,
            robots,
            robots_line,
            client_certificate,
        } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event_id", event_id)?;
        map.serialize_entry("time", time_ms)?;
        map.serialize_entry("operation_id", operation_id)?;
        map.serialize_entry("app_id", app_id)?;
        map.serialize_entry("trace_id", trace_id)?;
        map.serialize_entry("policy_digest", policy_digest)?;
        map.serialize_entry("admin_enabled", admin_enabled)?;
        map.serialize_entry("app_enabled", app_enabled)?;
        map.serialize_entry("url_scheme", url_scheme)?;
        map.serialize_entry("url_host", url_host)?;
        map.serialize_entry("url_port", url_port)?;
        map.serialize_entry("url_path_hash", url_path_hash)?;
        map.serialize_entry("verdict", verdict)?;
        map.serialize_entry("code", code)?;
        map.serialize_entry("phase", phase)?;
        map.serialize_entry("hops", &HopList(hops))?;
        map.serialize_entry("redirect_count", redirect_count)?;
        map.serialize_entry("final_host", final_host)?;
        map.serialize_entry("http_status", http_status)?;
        map.serialize_entry("content_type", content_type)?;
        map.serialize_entry("stored_bytes", stored_bytes)?;
        map.serialize_entry("wire_bytes", wire_bytes)?;
        map.serialize_entry("coding", coding)?;
        map.serialize_entry("sha256", sha256)?;
        map.serialize_entry("length_verified", length_verified)?;
        map.serialize_entry("duration_ms", duration_ms)?;
        map.serialize_entry("dns_ms", dns_ms)?;
        map.serialize_entry("connect_ms", connect_ms)?;
        map.serialize_entry("tls_ms", tls_ms)?;
        map.serialize_entry("head_ms", head_ms)?;
        map.serialize_entry("body_ms", body_ms)?;
        map.serialize_entry("private_cidrs", private_cidrs)?;
        map.serialize_entry("fetcher_version", fetcher_version)?;
        map.serialize_entry("table_edition", table_edition)?;
        map.serialize_entry("lookup_only", lookup_only)?;
        map.serialize_entry("proxy_protocol", proxy_protocol)?;
        map.serialize_entry("proxy_stage", proxy_stage)?;
        map.serialize_entry("tenant_id", tenant_id)?;
        map.serialize_entry("session_id", session_id)?;
        map.serialize_entry("rule", rule)?;
        map.serialize_entry("server_name", server_name)?;
        map.serialize_entry("up_bytes", up_bytes)?;
        map.serialize_entry("down_bytes", down_bytes)?;
        map.serialize_entry("rules_digest", rules_digest)?;
        map.serialize_entry("decided_by", decided_by)?;
        map.serialize_entry("reported_by", reported_by)?;
        map.serialize_entry("method", method)?;
        map.serialize_entry("credentials", credentials)?;
        map.serialize_entry("question_id", question_id)?;
        map.serialize_entry("intercepted", intercepted)?;
        map.serialize_entry("cache", cache)?;
        map.serialize_entry("robots", robots)?;
        map.serialize_entry("robots_line", robots_line)?;
        map.serialize_entry("client_certificate", client_certificate)?;
        map.end()
    }
}

/// The hops of an event.
struct HopList<'a>(&'a [v1::AuditHop]);

impl Serialize for HopList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(HopFields))
    }
}

/// Writes a hop as a JSON object, without the fields that are empty.
struct HopFields<'a>(&'a v1::AuditHop);

impl Serialize for HopFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v1::AuditHop {
            index,
            scheme,
            host,
            port,
            cname_chain,
            answers,
            chosen_address,
            peer_address,
            local_port,
            tls_version,
            certificate_sha256,
            status,
            code,
            upstream_proxy,
            http_version,
            dnssec,
            robots,
        } = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("index", index)?;
        map.serialize_entry("scheme", scheme)?;
        map.serialize_entry("host", host)?;
        map.serialize_entry("port", port)?;
        map.serialize_entry("cname_chain", cname_chain)?;
        map.serialize_entry("answers", &AnswerList(answers))?;
        map.serialize_entry("chosen_address", chosen_address)?;
        map.serialize_entry("peer_address", peer_address)?;
        map.serialize_entry("local_port", local_port)?;
        map.serialize_entry("tls_version", tls_version)?;
        map.serialize_entry("certificate_sha256", certificate_sha256)?;
        map.serialize_entry("status", status)?;
        map.serialize_entry("code", code)?;
        map.serialize_entry("upstream_proxy", upstream_proxy)?;
        map.serialize_entry("http_version", http_version)?;
        map.serialize_entry("dnssec", dnssec)?;
        map.serialize_entry("robots", robots)?;
        map.end()
    }
}

/// The addresses of a DNS response.
struct AnswerList<'a>(&'a [v1::AuditAnswer]);

impl Serialize for AnswerList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(AnswerFields))
    }
}

/// An address and its class.
struct AnswerFields<'a>(&'a v1::AuditAnswer);

impl Serialize for AnswerFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let v1::AuditAnswer { address, class } = self.0;
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("address", address)?;
        map.serialize_entry("class", class)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_and_the_value_of_an_event_are_the_same_json() {
        let hop = v1::AuditHop {
            host: "files.example.org".to_owned(),
            answers: vec![v1::AuditAnswer {
                address: "2606:4700::1111".to_owned(),
                class: "public".to_owned(),
            }],
            ..v1::AuditHop::default()
        };
        let event = v1::EgressAudit {
            url_host: "a \"quoted\" host\n".to_owned(),
            app_enabled: Some(false),
            up_bytes: u64::MAX,
            hops: vec![hop],
            private_cidrs: vec!["10.1.0.0/16".to_owned()],
            ..v1::EgressAudit::default()
        };
        let text = event_text(&event);
        assert!(!text.contains('\n'), "{text}");
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, event_json(&event));
        assert_eq!(read["hops"][0]["answers"][0]["class"], "public");
        assert_eq!(read["up_bytes"], u64::MAX);
        assert_eq!(read["app_enabled"], false);
    }
}
