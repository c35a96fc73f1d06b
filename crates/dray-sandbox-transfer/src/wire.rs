//! Between the words of sandboxes and those of the contracts.

use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_sandbox::receipt::Receipt;
use dray_sandbox::transfer::Collision;
use dray_sandbox::{Address, Entry, Handle, Metadata, Probe, SandboxPath};
use dray_types::{OperationId, Sha256Digest};

/// A handle as records and replies have it.
pub fn handle(handle: &Handle) -> v1::SandboxHandle {
    v1::SandboxHandle {
        backend: handle.address.backend.clone(),
        name: handle.address.name.clone(),
        incarnation: handle.incarnation.clone(),
    }
}

/// A handle from a record.
pub fn own_handle(handle: v1::SandboxHandle) -> Handle {
    let v1::SandboxHandle {
        backend,
        name,
        incarnation,
    } = handle;
    Handle {
        address: Address { backend, name },
        incarnation,
    }
}

/// What a path is.
pub fn metadata(metadata: &Metadata) -> v1::SandboxEntry {
    v1::SandboxEntry {
        path: metadata.path.as_bytes().to_vec(),
        real_path: metadata.real_path.as_bytes().to_vec(),
        kind: metadata.kind.as_str().to_owned(),
        size: metadata.size,
        mode: metadata.mode,
        uid: metadata.uid,
        gid: metadata.gid,
        mtime_ns: metadata
            .mtime_ns
            .and_then(|mtime| i64::try_from(mtime).ok()),
        link_target: metadata.link_target.clone(),
        sha256: Vec::new(),
    }
}

/// One entry of a listing.
pub fn entry(entry: &Entry) -> v1::SandboxEntry {
    v1::SandboxEntry {
        path: entry.path.as_bytes().to_vec(),
        real_path: entry.path.as_bytes().to_vec(),
        kind: entry.kind.as_str().to_owned(),
        size: entry.size,
        mode: entry.mode,
        uid: None,
        gid: None,
        mtime_ns: entry.mtime_ns.and_then(|mtime| i64::try_from(mtime).ok()),
        link_target: entry.link_target.clone(),
        sha256: Vec::new(),
    }
}

/// What a sandbox offers.
pub fn probe(of: &Handle, probe: &Probe) -> v1::SandboxProbe {
    v1::SandboxProbe {
        handle: Some(handle(of)),
        home: probe.home.as_bytes().to_vec(),
        working_directory: probe.working_directory.as_bytes().to_vec(),
        uid: probe.uid,
        gid: probe.gid,
        free: probe.free,
        transports: probe
            .transports
            .iter()
            .map(|transport| transport.as_str().to_owned())
            .collect(),
        tools: probe.tools.clone(),
        life_ms: probe.life_ms,
    }
}

/// A receipt of `operation` (`get`, `put` …) in this incarnation.
pub fn receipt(
    receipt: &Receipt,
    operation: &'static str,
    id: &OperationId,
    of: &Handle,
) -> v1::TransferReceipt {
    v1::TransferReceipt {
        operation_id: id.to_string(),
        handle: Some(handle(of)),
        operation: operation.to_owned(),
        transport: receipt
            .transport
            .map_or_else(String::new, |transport| transport.as_str().to_owned()),
        attempts: receipt.attempts,
        skipped: receipt
            .skipped
            .iter()
            .map(|skipped| format!("{}:{}", skipped.transport.as_str(), skipped.reason))
            .collect(),
        bytes: receipt.bytes,
        sha256: receipt.sha256.map_or_else(Vec::new, digest),
        integrity: receipt
            .integrity
            .map_or_else(String::new, |integrity| integrity.as_str().to_owned()),
        atomic: receipt.atomic.unwrap_or(false),
        resumed: receipt.resumed,
        milliseconds: receipt.milliseconds,
        error: String::new(),
        path: Vec::new(),
    }
}

/// A digest as bytes.
pub fn digest(digest: Sha256Digest) -> Vec<u8> {
    digest.as_bytes().to_vec()
}

/// What to do when a name is taken; empty means renaming.
pub fn collision(word: &str) -> Result<Collision, InvalidMessage> {
    match word {
        "" | "rename" => Ok(Collision::Rename),
        "fail" => Ok(Collision::Fail),
        "overwrite" => Ok(Collision::Overwrite),
        _ => Err(InvalidMessage::field(
            "collision",
            "it is `rename`, `fail` or `overwrite`",
        )),
    }
}

/// An absolute path of a request or a record.
pub fn path(field: &'static str, bytes: &[u8]) -> Result<SandboxPath, InvalidMessage> {
    SandboxPath::new(bytes).map_err(|error| InvalidMessage::field(field, error.context()))
}
