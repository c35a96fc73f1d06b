//! Converts between the messages of the contract and the pipeline's types.

use std::time::Duration;

use dray_bus::Meta;
use dray_guard::{AppPolicy, Caller, RequestKind};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_types::{Deadline, Fault};

use crate::audit::PUBLISH_TIMEOUT;
use crate::fetch::{FetchJob, FetchedFile, MethodOverrides};
use crate::proxy::certificate::is_client_name;
use crate::staging::StagedFile;

/// Converts the request. A small part of its time is reserved for the audit event and the reply.
pub(super) fn fetch_job(
    meta: &Meta,
    body: v1::FetchRequest,
    until: Deadline,
    now_ms: u64,
) -> FetchJob {
    let v1::FetchRequest {
        url,
        app_policy,
        size_limit_bytes,
        tool_timeout_ms,
        sink: _,
        revalidate,
    } = body;
    let remaining = until.remaining(now_ms);
    let app = meta
        .app
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    FetchJob {
        url,
        app_policy: app_policy.map(to_app_policy).unwrap_or_default(),
        tenant: meta.tenant.to_string(),
        caller: Caller {
            tenant: meta.tenant.to_string(),
            session: meta
                .session
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            app: app.clone(),
            ..Caller::default()
        },
        kind: RequestKind::Fetch,
        overrides: MethodOverrides::default(),
        app,
        revalidates: revalidate,
        size_limit: size_limit_bytes,
        tool_timeout: (tool_timeout_ms > 0).then(|| Duration::from_millis(tool_timeout_ms)),
        remaining: remaining.saturating_sub((remaining / 20).min(PUBLISH_TIMEOUT / 10)),
    }
}

/// Converts a request for an explanation, as for a fetch without a size and a sink.
pub(super) fn explain_job(
    meta: &Meta,
    body: v1::ExplainRequest,
    until: Deadline,
    now_ms: u64,
) -> FetchJob {
    let v1::ExplainRequest {
        url,
        app_policy,
        resolve_names: _,
        client_certificate,
    } = body;
    let request = v1::FetchRequest {
        url,
        app_policy,
        ..v1::FetchRequest::default()
    };
    let mut job = fetch_job(meta, request, until, now_ms);
    job.caller.certificate = client_certificate;
    job
}

/// Refuses a name that no client certificate can have. An empty one stands for a caller without a certificate.
pub(super) fn check_certificate_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() || is_client_name(name.as_bytes()) {
        return Ok(());
    }
    let problem = "must be at most 512 printable ASCII characters without blanks";
    Err(InvalidMessage::field("client_certificate", problem).into())
}

fn to_app_policy(policy: v1::AppPolicy) -> AppPolicy {
    let v1::AppPolicy {
        enabled,
        host_allowlist,
    } = policy;
    AppPolicy {
        enabled,
        // An absent list and an empty one differ (P-1), so the option stays.
        host_allowlist: host_allowlist.map(|list| list.patterns),
    }
}

pub(super) fn fetch_reply(fetched: FetchedFile, sink: StagedFile) -> Result<v1::FetchReply, Fault> {
    let FetchedFile {
        stored,
        labels,
        sniffed,
        length_verified,
        wire_size,
        coding,
        final_url,
        redirect_count,
        status,
    } = fetched;
    let content = sink.into_content().ok_or_else(Fault::internal)?;
    Ok(v1::FetchReply {
        content: Some(content.into()),
        sha256: stored.sha256.as_bytes().to_vec(),
        size: stored.size,
        media_type: labels.media_type,
        sniffed_media_type: sniffed.into_owned(),
        name: labels.name,
        length_verified,
        wire_size,
        coding: coding.to_owned(),
        final_url,
        redirect_count,
        etag: labels.etag,
        last_modified: labels.last_modified,
        http_status: u32::from(status),
    })
}
