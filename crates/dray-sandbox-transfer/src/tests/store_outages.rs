//! Transfers while the object store is away or full: the fault names the store, and not the sandbox.

use dray_testkit::s3::{FaultRule, S3Fault};

use super::commands::{ALLOW_ACME, exec, script};
use super::*;

/// Ways in which the store fails, and the detail of each.
const OUTAGES: [(S3Fault, &str); 3] = [
    (S3Fault::Down, "store_unreachable"),
    (S3Fault::Status(503), "store_unavailable"),
    (S3Fault::Status(507), "store_full"),
];

#[track_caller]
fn names_the_store(fault: &Fault, detail: &str) {
    assert_eq!(fault.detail, detail, "{fault:?}");
    assert!(fault.message.contains("store"), "{fault:?}");
    assert!(!fault.message.contains("sandbox"), "{fault:?}");
}

#[tokio::test]
async fn a_transfer_reports_the_fault_of_the_store() {
    let (fixture, proxy) = TransferFixture::behind_proxy(&[ALLOW_ACME], true).await;
    let proxy = proxy.unwrap();
    let (path, sandbox) = fixture.sandbox("open");
    std::fs::create_dir(path.join("d")).unwrap();
    std::fs::write(path.join("d/a.txt"), "a").unwrap();
    let sandbox_reference = || Some(address(&sandbox));
    let get = v1::GetSandboxFileRequest {
        sandbox: sandbox_reference(),
        path: b"d/a.txt".to_vec(),
        ..v1::GetSandboxFileRequest::default()
    };
    let get_tree = |format: &str| v1::GetSandboxTreeRequest {
        sandbox: sandbox_reference(),
        path: b"d".to_vec(),
        format: format.to_owned(),
        max_bytes: 0,
    };
    let put = v1::PutSandboxFileRequest {
        sandbox: sandbox_reference(),
        claim: Some(fixture.store("data.csv", b"1,2\n").await),
        ..v1::PutSandboxFileRequest::default()
    };
    let tar = fixture.ask(&get_tree("tar")).await.unwrap();
    let put_tree = v1::PutSandboxTreeRequest {
        sandbox: sandbox_reference(),
        claim: tar.claim,
        directory: b"d".to_vec(),
    };
    for (fault, detail) in OUTAGES {
        proxy.add(FaultRule::all(fault));
        names_the_store(&fixture.ask_once(&get).await, detail);
        names_the_store(&fixture.ask_once(&get_tree("zip")).await, detail);
        names_the_store(&fixture.ask_once(&put).await, detail);
        names_the_store(&fixture.ask_once(&put_tree).await, detail);
        proxy.clear_faults();
        fixture.ask(&get).await.unwrap();
    }
    fixture.ask(&put).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn a_program_reports_the_fault_of_the_store() {
    let (fixture, proxy) = TransferFixture::behind_proxy(&[ALLOW_ACME], true).await;
    let proxy = proxy.unwrap();
    let (path, sandbox) = fixture.sandbox("open");
    let mut with_input = exec(address(&sandbox), &["touch", "ran"]);
    with_input.input_claim = Some(fixture.store("input", &vec![0; 200_000]).await);
    for (fault, detail) in OUTAGES {
        proxy.add(FaultRule::all(fault));
        // The input is read before the program begins.
        names_the_store(&fixture.ask_once(&with_input).await, detail);
        let with_output = script(&sandbox, "head -c 100000 /dev/zero");
        let output = fixture.ask_once(&with_output).await;
        names_the_store(&output, detail);
        assert!(!output.is_retryable(), "the program has run: {output:?}");
        proxy.clear_faults();
    }
    assert!(!path.join("ran").exists());
    fixture.end().await;
}

impl TransferFixture {
    /// The fault of a request that is made once.
    async fn ask_once<C: Call>(&self, request: &C) -> Fault
    where
        C::Reply: std::fmt::Debug,
    {
        let replied = self.bus.call_once(&self.meta("acme"), request).await;
        replied.unwrap_err().into()
    }
}
