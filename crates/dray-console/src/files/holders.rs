//! Files that clients of agents keep with a content: uploads of `/v1/files`, and files that agents made in responses.

use dray_proto::v1;
use dray_types::{Fault, Sha256Digest};
use maud::{Markup, html};

use crate::calls::fault_notice;
use crate::state::ConsoleState;
use crate::text::{shown, time_element};

/// Files of one content that its page shows.
const MAX_SHOWN_HOLDERS: u32 = 50;
/// Purpose of files that an agent made in a response, in the records of the orchestrator.
const OUTPUT_PURPOSE: &str = "assistants_output";

/// The files that clients keep with these contents, or why they are not known.
pub(super) type FoundHolders = Result<v1::ListFileHoldersReply, Fault>;

/// Asks the orchestrator which clients keep a file with this content.
pub(super) async fn find_holders(state: &ConsoleState, digest: Sha256Digest) -> FoundHolders {
    let request = v1::ListFileHoldersRequest {
        sha256: vec![digest.as_bytes().to_vec()],
        limit: MAX_SHOWN_HOLDERS,
    };
    state.read(&request).await
}

/// Asks for one file of each stored content, of which the list takes the name.
pub(super) async fn find_labels(
    state: &ConsoleState,
    stored: &[v1::StoredArtifact],
) -> FoundHolders {
    if stored.is_empty() {
        return Ok(v1::ListFileHoldersReply::default());
    }
    let contents = stored.iter().map(|artifact| artifact.sha256.clone());
    let request = v1::ListFileHoldersRequest {
        sha256: contents.collect(),
        limit: 1,
    };
    state.read(&request).await
}

/// Whether no orchestrator is on the bus, as in systems without agents: nothing failed then.
pub(super) fn is_without_agents(fault: &Fault) -> bool {
    fault.detail == "no_responder"
}

/// Who keeps the content, and until when.
pub(super) fn holder_list(found: &FoundHolders) -> Markup {
    html! {
        h2 { "Clients of agents" }
        @match found {
            Err(fault) if is_without_agents(fault) => {
                p { "No orchestrator is on the bus, so it is not known whether a client of an agent keeps this file." }
            }
            Err(fault) => (fault_notice("Files of clients cannot be searched.", fault)),
            Ok(reply) => {
                @if reply.holders.is_empty() { p { "No client of an agent keeps this file." } }
                @else { ul #holders { @for holder in &reply.holders { li { (holder_text(holder)) } } } }
                @if reply.truncated { p.muted { "Further clients keep it, which are not shown." } }
            }
        }
    }
}

fn holder_text(holder: &v1::FileHolder) -> Markup {
    html! {
        strong { (shown(&holder.principal)) } " keeps " (shown(&holder.name)) " as " code { (shown(&holder.file_id)) }
        @if holder.purpose == OUTPUT_PURPOSE { ", made by an agent in a response" }
        @else { ", uploaded for " (shown(&holder.purpose)) }
        ", since " (time_element(holder.created_at_ms)) ", until " (time_element(holder.expires_at_ms))
    }
}
