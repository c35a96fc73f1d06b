//! Makes the event from the record.

use std::time::Duration;

use dray_bus::Meta;
use dray_guard::{CanonicalUrl, Class, TABLE_EDITION};
use dray_proto::v1;
use sha2::{Digest as _, Sha256};

use crate::coding::Coding;
use crate::record::{End, Hop, Record};

/// The event of a fetch that ended, or was cancelled, at `now_ms`.
pub(super) fn event(
    meta: &Meta,
    record: &Record,
    now_ms: u64,
    key: &[u8; 32],
    private_cidrs: &[String],
) -> v1::EgressAudit {
    let (verdict, code, phase) = match record.end {
        Some(End::Stored) => ("allow", "", ""),
        Some(End::Failed { code, phase }) => ("deny", code.as_str(), phase.as_str()),
        None => ("deny", "cancelled", ""),
    };
    let url = record.url.as_ref();
    let last = record.hops.last();
    let last_url = last.and_then(|hop| hop.url.as_ref());
    v1::EgressAudit {
        event_id: uuid::Uuid::now_v7().to_string(),
        time_ms: now_ms,
        operation_id: meta.operation.to_string(),
        app_id: meta
            .app
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        trace_id: meta.trace.trace_id().unwrap_or_default().to_owned(),
        policy_digest: record.policy_digest.clone(),
        admin_enabled: record.admin_enabled,
        app_enabled: record.app_enabled,
        url_scheme: url.map(|url| url.scheme().to_owned()).unwrap_or_default(),
        url_host: url.map(|url| url.host().to_string()).unwrap_or_default(),
        url_port: url.map(|url| u32::from(url.port())).unwrap_or_default(),
        url_path_hash: url.map(|url| path_hash(key, url)).unwrap_or_default(),
        verdict: verdict.to_owned(),
        code: code.to_owned(),
        phase: phase.to_owned(),
        hops: record.hops.iter().map(hop).collect(),
        redirect_count: record.redirect_count,
        final_host: last_url
            .map(|url| url.host().to_string())
            .unwrap_or_default(),
        http_status: last
            .and_then(|hop| hop.status)
            .map(u32::from)
            .unwrap_or_default(),
        content_type: record.content_type.clone(),
        stored_bytes: record.counts.stored,
        wire_bytes: record.counts.wire,
        coding: record.coding.map_or("", Coding::as_str).to_owned(),
        sha256: record.sha256.clone(),
        length_verified: record.length_verified,
        duration_ms: millis(record.times.total),
        dns_ms: millis(record.times.dns),
        connect_ms: millis(record.times.connect),
        tls_ms: millis(record.times.tls),
        head_ms: millis(record.times.head),
        body_ms: millis(record.times.body),
        private_cidrs: private_cidrs.to_vec(),
        fetcher_version: env!("CARGO_PKG_VERSION").to_owned(),
        table_edition: TABLE_EDITION.to_owned(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn hop(hop: &Hop) -> v1::AuditHop {
    let url = hop.url.as_ref();
    v1::AuditHop {
        index: hop.index,
        scheme: url.map(|url| url.scheme().to_owned()).unwrap_or_default(),
        host: url.map(|url| url.host().to_string()).unwrap_or_default(),
        port: url.map(|url| u32::from(url.port())).unwrap_or_default(),
        cname_chain: hop.cnames.clone(),
        answers: hop
            .answers
            .iter()
            .map(|judged| v1::AuditAnswer {
                address: judged.address.to_string(),
                class: class(judged.class),
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
        code: hop
            .code
            .map(|code| code.as_str().to_owned())
            .unwrap_or_default(),
    }
}

/// `public`, `opened:<cidr>` or the name of the block.
fn class(class: Class) -> String {
    class.to_string()
}

/// HMAC-SHA-256 (RFC 2104) of path and query: the same path can be recognised by whoever has the key, and guessed by
/// nobody else.
pub(super) fn path_hash(key: &[u8; 32], url: &CanonicalUrl) -> String {
    let pad = |byte: u8| {
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
    use super::*;

    #[test]
    fn section_18_the_path_hash_is_hmac_sha_256() {
        let url =
            CanonicalUrl::parse("http://files.example.org/what%20do%20ya%20want?x=1").unwrap();
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        // Computed with `openssl dgst -sha256 -hmac Jefe`.
        assert_eq!(
            path_hash(&key, &url),
            "c8da60bfec620b2ad102f5129842a01207f2e623ca07c3ab10f266838635b94f"
        );
        key[31] = 1;
        assert_ne!(path_hash(&key, &url), path_hash(&[0; 32], &url));
    }
}
