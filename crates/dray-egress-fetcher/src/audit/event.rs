//! Makes the audit event from the record, in a size that the stream takes.

use dray_types::whole_millis;

use dray_bus::Meta;
use dray_guard::{CanonicalUrl, Class, ClassifiedAddress, DnssecStatus, TABLE_EDITION};
use dray_proto::contract::Audit;
use dray_proto::v1;
use sha2::{Digest as _, Sha256};

use crate::coding::ContentCoding;
use crate::record::{CacheUse, FetchEnd, FetchRecord, HopRecord, RequestedOrigin};

/// Most addresses in an event, over all hops.
const MAX_ADDRESSES: usize = 256;
/// Most bytes of an encoded event, well below what the stream takes.
const MAX_BYTES: usize = 60 * 1024;

/// The event of a fetch that ended, or was cancelled, at `now_ms`.
pub(super) fn audit_event(
    meta: &Meta,
    record: &FetchRecord,
    now_ms: u64,
    key: &[u8; 32],
    private_cidrs: &[String],
) -> v1::EgressAudit {
    let (verdict, code, phase) = outcome_fields(record.end);
    let (url_scheme, url_host, url_port) =
        target_fields(record.url.as_ref(), record.tried.as_ref());
    let last = record.hops.last();
    let mut event = v1::EgressAudit {
        event_id: uuid::Uuid::now_v7().to_string(),
        time_ms: now_ms,
        operation_id: meta.operation.to_string(),
        trace_id: meta.trace.trace_id().unwrap_or_default().to_owned(),
        policy_digest: record.policy_digest.clone(),
        admin_enabled: record.admin_enabled,
        app_enabled: record.app_enabled,
        url_scheme,
        url_host,
        url_port,
        url_path_hash: record
            .url
            .as_ref()
            .map_or_else(String::new, |url| path_hash(key, url)),
        verdict: verdict.to_owned(),
        code: code.to_owned(),
        phase: phase.to_owned(),
        hops: record
            .hops
            .iter()
            .zip(reported_addresses(&record.hops))
            .map(|(hop, answers)| audit_hop(hop, &answers))
            .collect(),
        redirect_count: record.redirect_count,
        final_host: last
            .map(|hop| target_fields(hop.url.as_ref(), hop.tried.as_ref()).1)
            .unwrap_or_default(),
        http_status: last
            .and_then(|hop| hop.status)
            .map(u32::from)
            .unwrap_or_default(),
        content_type: record.content_type.clone(),
        stored_bytes: record.counts.stored,
        // The bytes of the fetch and of `robots.txt` were both received for this fetch, and count against its quota.
        wire_bytes: record.counts.wire.saturating_add(record.robots_bytes),
        coding: record.coding.map_or("", ContentCoding::as_str).to_owned(),
        sha256: record.sha256.clone(),
        length_verified: record.length_verified,
        duration_ms: whole_millis(record.times.total),
        dns_ms: whole_millis(record.times.dns),
        connect_ms: whole_millis(record.times.connect),
        tls_ms: whole_millis(record.times.tls),
        head_ms: whole_millis(record.times.head),
        body_ms: whole_millis(record.times.body),
        private_cidrs: private_cidrs.to_vec(),
        fetcher_version: env!("CARGO_PKG_VERSION").to_owned(),
        table_edition: TABLE_EDITION.to_owned(),
        lookup_only: record.lookup_only,
        // The other fields are set below, or by proxied connections.
        ..v1::EgressAudit::default()
    };
    set_rule_fields(&mut event, meta, record);
    fit_event_size(&mut event);
    event
}

/// The caller, and the decisions of the policy files.
fn set_rule_fields(event: &mut v1::EgressAudit, meta: &Meta, record: &FetchRecord) {
    event.tenant_id = meta.tenant.to_string();
    if let Some(app) = &meta.app {
        event.app_id = app.to_string();
    }
    if let Some(session) = &meta.session {
        event.session_id = session.to_string();
    }
    event.rules_digest.clone_from(&record.rules_digest);
    if let Some(decision) = &record.decision {
        event.decided_by = decision.rule.to_string();
    }
    // A quota that refused the request counts as the decision.
    if let Some(quota) = &record.quota {
        event.decided_by = quota.to_string();
    }
    if let Some(reported) = record.reported_by() {
        event.reported_by = reported.to_string();
    }
    event.method.clone_from(&record.method);
    if let Some(question) = record.question {
        event.question_id = question.to_string();
    }
    event.credentials.clone_from(&record.credentials);
    if let Some(robots) = record.robots {
        robots.outcome.as_str().clone_into(&mut event.robots);
        event.robots_line = robots.line;
    }
    record
        .cache
        .map_or("", CacheUse::as_str)
        .clone_into(&mut event.cache);
}

/// Verdict, code and phase of the event.
fn outcome_fields(end: Option<FetchEnd>) -> (&'static str, &'static str, &'static str) {
    match end {
        Some(FetchEnd::Stored | FetchEnd::Judged) => ("allow", "", ""),
        Some(FetchEnd::Failed { code, phase }) => ("deny", code.as_str(), phase.as_str()),
        Some(FetchEnd::Cancelled { phase }) => ("deny", "cancelled", phase.as_str()),
        None => ("deny", "cancelled", ""),
    }
}

/// Size of the event on the wire.
fn encoded_bytes<A: Audit>(event: &A) -> usize {
    event.encoded_len()
}

/// Scheme, host and port of a URL, or of what looked like one.
fn target_fields(
    url: Option<&CanonicalUrl>,
    tried: Option<&RequestedOrigin>,
) -> (String, String, u32) {
    match (url, tried) {
        (Some(url), _) => (
            url.scheme().to_owned(),
            url.host().to_string(),
            u32::from(url.port()),
        ),
        (None, Some(tried)) => (
            tried.scheme.clone(),
            tried.host.clone(),
            u32::from(tried.port),
        ),
        (None, None) => Default::default(),
    }
}

/// The addresses of every hop that are reported: at most [`MAX_ADDRESSES`] in all, blocked ones first if there are
/// more.
fn reported_addresses(hops: &[HopRecord]) -> Vec<Vec<&ClassifiedAddress>> {
    let all: usize = hops.iter().map(|hop| hop.answers.len()).sum();
    if all <= MAX_ADDRESSES {
        return hops
            .iter()
            .map(|hop| hop.answers.iter().collect())
            .collect();
    }
    let mut reported: Vec<Vec<&ClassifiedAddress>> = vec![Vec::new(); hops.len()];
    let mut remaining = MAX_ADDRESSES;
    // Refused addresses are what an investigation looks for.
    for is_blocked in [true, false] {
        for (hop, reported) in hops.iter().zip(&mut reported) {
            let wanted = hop
                .answers
                .iter()
                .filter(|judged| judged.class.is_blocked() == is_blocked)
                .take(remaining);
            let before = reported.len();
            reported.extend(wanted);
            remaining -= reported.len() - before;
        }
    }
    reported
}

/// Shortens parts that a hostile server or a long configuration can make long, so that the event always fits the
/// stream.
fn fit_event_size(event: &mut v1::EgressAudit) {
    // Every iteration shortens a list, so the loop ends.
    while encoded_bytes(event) > MAX_BYTES {
        let longest = event
            .hops
            .iter_mut()
            .max_by_key(|hop| hop.cname_chain.len())
            .filter(|hop| !hop.cname_chain.is_empty());
        match longest {
            Some(hop) => drop(hop.cname_chain.pop()),
            None if event.private_cidrs.is_empty() => return,
            None => event.private_cidrs.truncate(event.private_cidrs.len() / 2),
        }
    }
}

fn audit_hop(hop: &HopRecord, answers: &[&ClassifiedAddress]) -> v1::AuditHop {
    let (scheme, host, port) = target_fields(hop.url.as_ref(), hop.tried.as_ref());
    v1::AuditHop {
        index: hop.index,
        scheme,
        host,
        port,
        cname_chain: hop.cnames.clone(),
        answers: answers
            .iter()
            .map(|judged| v1::AuditAnswer {
                address: judged.address.to_string(),
                class: class_label(judged.class),
            })
            .collect(),
        chosen_address: hop
            .chosen
            .map(|address| address.to_string())
            .unwrap_or_default(),
        peer_address: hop
            .peer
            .map(|address| address.to_string())
            .unwrap_or_default(),
        upstream_proxy: hop
            .upstream_proxy
            .map(|address| address.to_string())
            .unwrap_or_default(),
        local_port: u32::from(hop.local_port),
        tls_version: hop
            .tls
            .as_ref()
            .map(|tls| tls.version.to_owned())
            .unwrap_or_default(),
        certificate_sha256: hop
            .tls
            .as_ref()
            .map(|tls| tls.certificate.to_hex())
            .unwrap_or_default(),
        status: hop.status.map(u32::from).unwrap_or_default(),
        http_version: http_version(hop.http_version).to_owned(),
        dnssec: hop.dnssec.map_or("", DnssecStatus::as_str).to_owned(),
        robots: hop.is_robots,
        code: hop
            .code
            .map(|code| code.as_str().to_owned())
            .unwrap_or_default(),
    }
}

/// The version as HTTP writes it, without its name.
const fn http_version(version: Option<http::Version>) -> &'static str {
    match version {
        Some(http::Version::HTTP_10) => "1.0",
        Some(http::Version::HTTP_11) => "1.1",
        Some(http::Version::HTTP_2) => "2",
        _ => "",
    }
}

/// The label of a class: `public`, `opened:<cidr>` or the name of the block.
fn class_label(class: Class) -> String {
    class.to_string()
}

/// HMAC-SHA-256 (RFC 2104) of path and query: the same path can be recognised with the key, and not guessed
/// without it.
pub(super) fn path_hash(key: &[u8; 32], url: &CanonicalUrl) -> String {
    let pad = |byte: u8| {
        // SHA-256 has blocks of 64 bytes; a key of 32 bytes is padded to it (RFC 2104, section 2).
        let mut block = [byte; 64];
        for (slot, key) in block.iter_mut().zip(key) {
            *slot ^= key;
        }
        block
    };
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(url.path_and_query())
        .finalize();
    let outer = Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner)
        .finalize();
    dray_types::Sha256Digest::from_bytes(outer.into()).to_hex()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn section_18_the_path_hash_is_hmac_sha_256() {
        let url =
            CanonicalUrl::parse("http://files.example.org/what%20do%20ya%20want?x=1").unwrap();
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        // The value was computed with `openssl dgst -sha256 -hmac Jefe`.
        assert_eq!(
            path_hash(&key, &url),
            "c8da60bfec620b2ad102f5129842a01207f2e623ca07c3ab10f266838635b94f"
        );
        key[31] = 1;
        assert_ne!(path_hash(&key, &url), path_hash(&[0; 32], &url));
    }

    fn meta() -> Meta {
        let deadline = dray_types::Deadline::after(0, Duration::from_secs(30));
        Meta::new(dray_types::TenantId::new("acme").unwrap(), deadline)
    }

    #[test]
    fn section_18_the_event_always_fits_and_blocked_addresses_come_first() {
        let judged = |index: u8, class| ClassifiedAddress {
            address: std::net::IpAddr::from([
                0x26, 6, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, index,
            ]),
            class,
        };
        let hop = |index| HopRecord {
            index,
            cnames: vec!["x".repeat(1000); 16],
            answers: (0..=254)
                .map(|index| judged(index, Class::Public))
                .chain([judged(255, Class::Blocked("loopback"))])
                .collect(),
            ..HopRecord::default()
        };
        let mut record = FetchRecord::default();
        record.hops = (0..=10).map(hop).collect();
        let ranges = vec!["fd12:3456::/32".to_owned(); 5000];
        let event = audit_event(&meta(), &record, 0, &[0; 32], &ranges);
        assert!(
            encoded_bytes(&event) <= MAX_BYTES,
            "{}",
            encoded_bytes(&event)
        );
        let reported: usize = event.hops.iter().map(|hop| hop.answers.len()).sum();
        assert_eq!(reported, MAX_ADDRESSES);
        for hop in &event.hops {
            assert_eq!(hop.answers[0].class, "loopback");
        }
        assert!(!event.private_cidrs.is_empty());
    }

    #[test]
    fn section_18_nothing_is_left_out_of_an_ordinary_event() {
        let public = ClassifiedAddress {
            address: std::net::IpAddr::from([8, 8, 8, 8]),
            class: Class::Public,
        };
        let blocked = ClassifiedAddress {
            class: Class::Blocked("loopback"),
            ..public
        };
        let mut record = FetchRecord::default();
        record.hops = vec![HopRecord {
            cnames: vec!["cdn.example.net.".to_owned(); 8],
            answers: vec![public, blocked],
            ..HopRecord::default()
        }];
        record.counts.wire = 5;
        record.robots_bytes = 7;
        let event = audit_event(&meta(), &record, 0, &[0; 32], &["10.1.0.0/16".to_owned()]);
        assert_eq!(event.wire_bytes, 12);
        let classes: Vec<_> = event.hops[0]
            .answers
            .iter()
            .map(|answer| &answer.class)
            .collect();
        assert_eq!(classes, ["public", "loopback"], "in order");
        assert_eq!(event.hops[0].cname_chain.len(), 8);
        assert_eq!(event.private_cidrs.len(), 1);
    }
}
