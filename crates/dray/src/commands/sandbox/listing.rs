//! `dray sandbox ls`: the entries of a directory, in as many parts as the messages need.

use dray_proto::{NamedCode as _, v1};
use dray_types::hex::hex_digits;
use serde_json::{Value, json};

use super::{CALL_TIMEOUT, call_service, exact_path, path_text};
use crate::cli::GlobalOptions;
use crate::commands::shown;
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Lists a directory up to the limit of the request, in as many parts as the messages need.
pub(super) async fn list_parts(
    system: &SystemConnection,
    mut request: v1::ListSandboxRequest,
) -> Result<v1::ListSandboxReply, CommandFailure> {
    let limit = request.limit;
    let call = |request| async move { call_service(system, CALL_TIMEOUT, &request).await };
    let mut listing = call(request.clone()).await?;
    loop {
        let shown = u32::try_from(listing.entries.len()).unwrap_or(u32::MAX);
        let rest = limit.saturating_sub(shown);
        if !listing.truncated || rest == 0 {
            return Ok(listing);
        }
        request.offset = shown;
        request.limit = rest;
        let part = request.list_from_offset(call).await?;
        listing.truncated = part.truncated;
        listing.denied = part.denied;
        if part.entries.is_empty() {
            return Ok(listing);
        }
        listing.entries.extend(part.entries);
    }
}

pub(super) fn print_listing(global: &GlobalOptions, listing: &v1::ListSandboxReply) {
    if global.json {
        let entries: Vec<_> = listing.entries.iter().map(entry_json).collect();
        let document = json!({
            "entries": entries,
            "truncated": listing.truncated,
            "denied": listing.denied,
        });
        print_line(&document.to_string());
        return;
    }
    for entry in &listing.entries {
        print_line(&entry_line(entry));
    }
    // Notes go to standard error, so that a script that counts lines is not misled.
    if listing.denied > 0 {
        print_note(&format!(
            "Left out, because the policy of transfers refuses them: {}. `sandbox-transfer.policy.allow` permits \
             entries of the built-in list.",
            listing.denied
        ));
    }
    if listing.truncated {
        print_note("There is more; raise --limit, to 10000 at most, to see it.");
    }
}

pub(super) fn entry_json(entry: &v1::SandboxEntry) -> Value {
    json!({
        "path": path_text(&entry.path),
        "path_base64": exact_path(&entry.path),
        "real_path": path_text(&entry.real_path),
        "kind": entry.entry_kind().name(),
        "size": entry.size,
        "mode": format!("{:04o}", entry.mode),
        "uid": entry.uid,
        "gid": entry.gid,
        "mtime_ns": entry.mtime_ns,
        "link_target": entry.link_target.as_deref().map(path_text),
        "sha256": hex_digits(&entry.sha256),
    })
}

pub(super) fn entry_line(entry: &v1::SandboxEntry) -> String {
    let time = entry
        .mtime_ns
        // Times before 1970 are not shown.
        .and_then(|mtime| u64::try_from(mtime / 1_000_000).ok())
        .map_or_else(|| "-".to_owned(), shown::rfc3339_time);
    let target = entry
        .link_target
        .as_deref()
        .map(|target| format!(" -> {}", path_text(target)))
        .unwrap_or_default();
    format!(
        "{:<8} {:04o} {:>12}  {time}  {}{target}",
        entry.entry_kind().name(),
        entry.mode,
        entry.size,
        path_text(&entry.path)
    )
}
