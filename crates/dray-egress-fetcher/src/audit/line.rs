//! Writes the event as one line of JSON, complete, in the names of egress-security 18.

use dray_proto::v1;
use serde_json::{Value, json};

/// Converts the event to JSON. Destructured, so that a new field cannot be forgotten.
#[expect(clippy::too_many_lines, reason = "a list of all fields")]
pub(super) fn event_json(event: &v1::EgressAudit) -> Value {
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
    } = event;
    let mut line = json!({
        "event_id": event_id, "time": time_ms, "operation_id": operation_id, "app_id": app_id,
        "trace_id": trace_id, "policy_digest": policy_digest, "admin_enabled": admin_enabled,
        "app_enabled": app_enabled, "url_scheme": url_scheme, "url_host": url_host, "url_port": url_port,
        "url_path_hash": url_path_hash, "verdict": verdict, "code": code, "phase": phase,
        "hops": hops.iter().map(hop_json).collect::<Vec<_>>(), "redirect_count": redirect_count,
        "final_host": final_host, "http_status": http_status, "content_type": content_type,
        "stored_bytes": stored_bytes, "wire_bytes": wire_bytes, "coding": coding, "sha256": sha256,
        "length_verified": length_verified, "duration_ms": duration_ms, "dns_ms": dns_ms,
        "connect_ms": connect_ms, "tls_ms": tls_ms, "head_ms": head_ms, "body_ms": body_ms,
        "private_cidrs": private_cidrs, "fetcher_version": fetcher_version, "table_edition": table_edition,
        "lookup_only": lookup_only,
    });
    // An object of its own: the macro takes no more fields in one.
    let proxied = json!({
        "proxy_protocol": proxy_protocol, "proxy_stage": proxy_stage, "tenant_id": tenant_id,
        "session_id": session_id, "rule": rule, "server_name": server_name, "up_bytes": up_bytes,
        "down_bytes": down_bytes, "rules_digest": rules_digest, "decided_by": decided_by,
        "reported_by": reported_by, "method": method, "credentials": credentials,
        "question_id": question_id, "intercepted": intercepted, "cache": cache,
        "robots": robots, "robots_line": robots_line,
    });
    if let (Value::Object(line), Value::Object(proxied)) = (&mut line, proxied) {
        line.extend(proxied);
    }
    line
}

fn hop_json(hop: &v1::AuditHop) -> Value {
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
    } = hop;
    let answers: Vec<Value> = answers
        .iter()
        .map(|v1::AuditAnswer { address, class }| json!({ "address": address, "class": class }))
        .collect();
    json!({
        "index": index, "scheme": scheme, "host": host, "port": port, "cname_chain": cname_chain,
        "answers": answers, "chosen_address": chosen_address, "peer_address": peer_address,
        "local_port": local_port, "tls_version": tls_version, "certificate_sha256": certificate_sha256,
        "status": status, "code": code, "upstream_proxy": upstream_proxy,
        "http_version": http_version, "dnssec": dnssec, "robots": robots,
    })
}
