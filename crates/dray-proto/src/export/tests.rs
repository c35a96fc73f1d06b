//! The steps of an export, against replies that were written beforehand.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use dray_types::{Artifact, Sha256Digest, TenantId};
use prost::Message as _;

use super::*;

const EXPORTED_CONTENT: &[u8] = b"content";

/// A sandbox service that returns one kind for every stat, and one reply for every copy.
struct FakeCalls {
    kind: SandboxEntryKind,
    reply: Vec<u8>,
    copies: Mutex<Vec<(&'static str, Vec<u8>)>>,
}

impl FakeCalls {
    fn new(kind: SandboxEntryKind, reply: &impl prost::Message) -> Self {
        Self {
            kind,
            reply: reply.encode_to_vec(),
            copies: Mutex::default(),
        }
    }

    fn export(&self) -> Result<(v1::SandboxEntry, Exported), ExportError> {
        let export = Export {
            sandbox: v1::SandboxRef::default(),
            path: b"out".to_vec(),
            format: TreeFormat::Tar,
            max_bytes: 9,
        };
        match pin!(export.run(self)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("a fake never waits"),
        }
    }
}

impl ExportCalls for FakeCalls {
    type Error = ExportError;

    async fn stat(
        &self,
        request: &v1::StatSandboxRequest,
    ) -> Result<v1::SandboxEntry, ExportError> {
        assert!(request.follow, "a link is exported as what it leads to");
        let entry = v1::SandboxEntry {
            path: request.path.clone(),
            ..v1::SandboxEntry::default()
        };
        Ok(entry.with_kind(self.kind))
    }

    async fn copy<C: Call>(
        &self,
        entry: &v1::SandboxEntry,
        request: &C,
    ) -> Result<C::Reply, ExportError> {
        assert_eq!(entry.entry_kind(), self.kind);
        let sent = (C::VERB, request.encode_to_vec());
        self.copies.lock().unwrap().push(sent);
        Ok(C::Reply::decode(self.reply.as_slice()).unwrap())
    }
}

fn claim() -> Claim {
    Claim {
        artifact: Artifact {
            tenant: TenantId::new("acme").unwrap(),
            sha256: Sha256Digest::of(EXPORTED_CONTENT),
            size: EXPORTED_CONTENT.len() as u64,
            media_type: "text/plain".to_owned(),
            name: "out".to_owned(),
        },
        store: "s".to_owned(),
        version_id: None,
        created_at_ms: 1,
        expires_at_ms: 2,
    }
}

fn receipt() -> v1::TransferReceipt {
    v1::TransferReceipt {
        bytes: EXPORTED_CONTENT.len() as u64,
        sha256: Sha256Digest::of(EXPORTED_CONTENT).as_bytes().to_vec(),
        ..v1::TransferReceipt::default()
    }
}

fn file(receipt: Option<v1::TransferReceipt>) -> v1::SandboxFile {
    v1::SandboxFile {
        claim: Some(claim().into()),
        receipt,
        ..v1::SandboxFile::default()
    }
}

fn tree(receipt: Option<v1::TransferReceipt>) -> v1::SandboxTree {
    v1::SandboxTree {
        claim: Some(claim().into()),
        receipt,
        skipped: vec!["link: a".to_owned()],
        ..v1::SandboxTree::default()
    }
}

#[test]
fn a_file_is_copied_with_the_limit_and_its_proof() {
    let calls = FakeCalls::new(SandboxEntryKind::File, &file(Some(receipt())));
    let (entry, exported) = calls.export().unwrap();
    assert_eq!(entry.entry_kind(), SandboxEntryKind::File);
    assert_eq!(exported.claim, claim());
    assert_eq!(exported.receipt, receipt());
    let request = v1::GetSandboxFileRequest {
        sandbox: Some(v1::SandboxRef::default()),
        path: b"out".to_vec(),
        max_bytes: 9,
        ..v1::GetSandboxFileRequest::default()
    };
    let copies = calls.copies.into_inner().unwrap();
    assert_eq!(copies, [("get", request.encode_to_vec())]);
}

#[test]
fn a_directory_is_copied_as_an_archive_whose_receipt_counts_its_files() {
    let mut receipt = receipt();
    receipt.bytes = 4711;
    let calls = FakeCalls::new(SandboxEntryKind::Directory, &tree(Some(receipt)));
    let (_, exported) = calls.export().unwrap();
    assert_eq!(exported.skipped, ["link: a"]);
    let request = v1::GetSandboxTreeRequest {
        sandbox: Some(v1::SandboxRef::default()),
        path: b"out".to_vec(),
        format: "tar".to_owned(),
        max_bytes: 9,
    };
    let copies = calls.copies.into_inner().unwrap();
    assert_eq!(copies, [("get-tree", request.encode_to_vec())]);
}

#[test]
fn r_2_only_files_and_directories_are_copied() {
    for kind in [
        SandboxEntryKind::Fifo,
        SandboxEntryKind::Socket,
        SandboxEntryKind::CharDevice,
        SandboxEntryKind::BlockDevice,
        SandboxEntryKind::Symlink,
        SandboxEntryKind::Other,
        SandboxEntryKind::Unspecified,
    ] {
        let calls = FakeCalls::new(kind, &file(Some(receipt())));
        assert_eq!(calls.export().unwrap_err(), ExportError::NotExportable);
        assert!(calls.copies.into_inner().unwrap().is_empty(), "{kind:?}");
    }
}

#[test]
fn r_8_a_copy_without_proof_is_refused() {
    let bent: [fn(&mut v1::TransferReceipt); 3] = [
        |receipt| receipt.bytes -= 1,
        |receipt| receipt.sha256.reverse(),
        |receipt| receipt.error = "truncated".to_owned(),
    ];
    for bend in bent {
        let mut receipt = receipt();
        bend(&mut receipt);
        let calls = FakeCalls::new(SandboxEntryKind::File, &file(Some(receipt)));
        assert_eq!(calls.export().unwrap_err(), ExportError::Unproven);
    }
    let calls = FakeCalls::new(SandboxEntryKind::File, &file(None));
    assert_eq!(calls.export().unwrap_err(), ExportError::Unproven);
    let calls = FakeCalls::new(SandboxEntryKind::Directory, &tree(None));
    assert_eq!(calls.export().unwrap_err(), ExportError::Unproven);
    let mut failed = receipt();
    failed.error = "truncated".to_owned();
    let calls = FakeCalls::new(SandboxEntryKind::Directory, &tree(Some(failed)));
    assert_eq!(calls.export().unwrap_err(), ExportError::Unproven);
    let fault = Fault::from(ExportError::Unproven);
    assert!(fault.is_retryable(), "a later copy may have its proof");
}

#[test]
fn a_reply_without_a_claim_is_the_fault_of_the_service() {
    let calls = FakeCalls::new(SandboxEntryKind::File, &v1::SandboxFile::default());
    let error = calls.export().unwrap_err();
    assert_eq!(error, ExportError::Reply(InvalidMessage::Missing("claim")));
    assert_eq!(Fault::from(error), Fault::internal());
}
