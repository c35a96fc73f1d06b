//! Tests of the engine on a real file system.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use dray_sandbox::backend::Backend as _;
use dray_sandbox::handle::Address;
use dray_sandbox::metadata::{Integrity, Transport};
use dray_sandbox_local::{LocalBackend, LocalOptions};
use dray_sandbox_tree as tree;

use super::*;
use crate::policy::PolicyOptions;

struct LocalFixture {
    directory: tempfile::TempDir,
    engine: Engine,
    policy: Policy,
}

impl LocalFixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().to_str().unwrap().to_owned();
        let backend = LocalBackend::new(LocalOptions {
            roots: vec![directory.path().to_owned()],
        });
        let address = Address {
            backend: "local".to_owned(),
            name,
        };
        let handle = backend.resolve(&address).await.unwrap();
        let sandbox = backend.open(&handle).await.unwrap();
        let engine = Engine::new(sandbox, EngineOptions::default());
        let policy = engine
            .policy(&PolicyOptions::default(), None)
            .await
            .unwrap();
        Self {
            directory,
            engine,
            policy,
        }
    }

    fn path(&self, name: &str) -> SandboxPath {
        path(&format!("{}/{name}", self.directory.path().display()))
    }

    async fn get(&self, name: &str) -> Result<(GetResult, Vec<u8>), TransferFailure> {
        let options = GetOptions {
            policy: &self.policy,
            max_bytes: 64 << 20,
        };
        let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
        let path = self.path(name);
        let result = self
            .engine
            .get(&path, &options, &mut sink, &(), &cancel)
            .await?;
        Ok((result, sink.into_bytes().unwrap()))
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<PutResult, TransferFailure> {
        let options = PutOptions {
            policy: &self.policy,
            collision: Collision::Rename,
            mode: 0o640,
            operation: "op1",
            epoch: 1,
        };
        let (source, cancel) = (BytesSource::new(content), CancellationToken::new());
        let directory = self.path("uploads");
        let name = name.as_bytes();
        self.engine
            .put(&directory, name, &source, &options, &(), &cancel)
            .await
    }
}

#[tokio::test]
async fn a_file_goes_in_and_comes_out_with_proof() {
    let real = LocalFixture::new().await;
    let content = pattern(9 << 20);
    let put = real.put("big.bin", content.clone()).await.unwrap();
    assert_eq!((put.receipt.atomic, put.receipt.attempts), (Some(true), 1));
    assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
    let placed = real.directory.path().join("uploads/big.bin");
    assert_eq!(
        fs::metadata(&placed).unwrap().permissions().mode() & 0o7777,
        0o640
    );
    assert_eq!(fs::read_dir(placed.parent().unwrap()).unwrap().count(), 1);
    let (got, bytes) = real.get("uploads/big.bin").await.unwrap();
    assert!(bytes == content);
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    assert_eq!(got.receipt.transport, Some(Transport::Direct));
    assert!(real.put("big.bin", content).await.unwrap().existed);
    let second = real.put("big.bin", pattern(10)).await.unwrap();
    assert_eq!(second.path, real.path("uploads/big_2.bin"));
}

#[tokio::test]
async fn links_and_secrets_stay_inside() {
    let real = LocalFixture::new().await;
    std::os::unix::fs::symlink("/etc/hostname", real.directory.path().join("out")).unwrap();
    fs::write(real.directory.path().join(".env"), "KEY=1").unwrap();
    let out = real.get("out").await.unwrap_err().error.kind();
    let refusals = [
        ErrorKind::OutsideRoot,
        ErrorKind::DeniedPath,
        ErrorKind::NotFound,
    ];
    assert!(refusals.contains(&out), "{out}");
    assert_eq!(
        real.get(".env").await.unwrap_err().error.kind(),
        ErrorKind::DeniedPath
    );
}

#[tokio::test]
async fn a_directory_goes_out_and_in_again() {
    let real = LocalFixture::new().await;
    let base = real.directory.path();
    fs::create_dir_all(base.join("from/sub")).unwrap();
    fs::create_dir(base.join("to")).unwrap();
    fs::write(base.join("from/a"), "a").unwrap();
    fs::write(base.join("from/sub/b"), pattern(300_000)).unwrap();
    let options = GetTreeOptions {
        policy: &real.policy,
        limits: tree::Limits::default(),
        format: TreeFormat::Tar,
    };
    let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
    let from = real.path("from");
    let result = real
        .engine
        .get_tree(&from, &options, &mut sink, &(), &cancel)
        .await
        .unwrap();
    assert_eq!(result.files, 2);
    let options = PutTreeOptions {
        policy: &real.policy,
        limits: tree::Limits::default(),
        operation: "op1",
        epoch: 1,
    };
    let tar = BytesSource::new(sink.into_bytes().unwrap());
    let to = real.path("to");
    let put = real
        .engine
        .put_tree(&to, &tar, &options, &(), &cancel)
        .await
        .unwrap();
    assert_eq!(put.files, 2);
    assert_eq!(fs::read(base.join("to/sub/b")).unwrap(), pattern(300_000));
}
