//! Conversions between the types of sandboxes and those of the contracts.

use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, SandboxEntryKind};
use dray_sandbox::{Address, Entry, FileKind, Handle, Metadata, Probe, SandboxPath};
use dray_transfer_engine::Collision;
use dray_transfer_engine::policy::Finding;
use dray_transfer_engine::receipt::Receipt;
use dray_types::{OperationId, Sha256Digest};

/// Converts a handle for records and replies.
pub fn handle(handle: &Handle) -> v1::SandboxHandle {
    v1::SandboxHandle {
        backend: handle.address.backend.clone(),
        name: handle.address.name.clone(),
        incarnation: handle.incarnation.clone(),
    }
}

/// Converts a handle from a record.
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

/// Converts the metadata of a path. The digest is left for the caller.
pub fn metadata(metadata: &Metadata) -> v1::SandboxEntry {
    let wire = v1::SandboxEntry {
        path: metadata.path.as_bytes().to_vec(),
        real_path: metadata.real_path.as_bytes().to_vec(),
        size: metadata.size,
        mode: metadata.mode,
        uid: metadata.uid,
        gid: metadata.gid,
        mtime_ns: metadata
            .mtime_ns
            .and_then(|mtime| i64::try_from(mtime).ok()),
        link_target: metadata.link_target.clone(),
        ..v1::SandboxEntry::default()
    };
    wire.with_kind(entry_kind(metadata.kind))
}

/// Converts one entry of a listing.
pub fn entry(entry: &Entry) -> v1::SandboxEntry {
    let wire = v1::SandboxEntry {
        path: entry.path.as_bytes().to_vec(),
        // A listing resolves its directory, and links in it are not followed.
        real_path: entry.path.as_bytes().to_vec(),
        size: entry.size,
        mode: entry.mode,
        uid: None,
        gid: None,
        mtime_ns: entry.mtime_ns.and_then(|mtime| i64::try_from(mtime).ok()),
        link_target: entry.link_target.clone(),
        ..v1::SandboxEntry::default()
    };
    wire.with_kind(entry_kind(entry.kind))
}

const fn entry_kind(kind: FileKind) -> SandboxEntryKind {
    match kind {
        FileKind::File => SandboxEntryKind::File,
        FileKind::Directory => SandboxEntryKind::Directory,
        FileKind::Symlink => SandboxEntryKind::Symlink,
        FileKind::Fifo => SandboxEntryKind::Fifo,
        FileKind::Socket => SandboxEntryKind::Socket,
        FileKind::CharDevice => SandboxEntryKind::CharDevice,
        FileKind::BlockDevice => SandboxEntryKind::BlockDevice,
        FileKind::Other => SandboxEntryKind::Other,
    }
}

/// Converts the probe of a sandbox.
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

/// Converts the receipt of an `operation` (`get`, `put` …) in this incarnation.
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
        // Without evidence the receipt claims nothing.
        atomic: receipt.atomic.unwrap_or(false),
        resumed: receipt.resumed,
        milliseconds: receipt.milliseconds,
        error: String::new(),
        path: Vec::new(),
        content_warning: String::new(),
    }
}

/// The receipt of a file or directory that left the sandbox with this warning.
pub fn with_warning(receipt: v1::TransferReceipt, warning: Option<Finding>) -> v1::TransferReceipt {
    v1::TransferReceipt {
        content_warning: warning
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        ..receipt
    }
}

/// A digest as bytes, 32 of them.
pub fn digest(digest: Sha256Digest) -> Vec<u8> {
    digest.as_bytes().to_vec()
}

/// Parses the policy for a name that is taken; an empty word means renaming.
pub fn collision(word: &str) -> Result<Collision, InvalidMessage> {
    match word {
        "" | "rename" => Ok(Collision::Rename),
        "fail" => Ok(Collision::Fail),
        "overwrite" => Ok(Collision::Overwrite),
        _ => Err(InvalidMessage::field(
            "collision",
            "must be `rename`, `fail` or `overwrite`",
        )),
    }
}

/// Parses an absolute path of a request or a record.
pub fn path(field: &'static str, bytes: &[u8]) -> Result<SandboxPath, InvalidMessage> {
    SandboxPath::new(bytes).map_err(|error| InvalidMessage::field(field, error.context()))
}
