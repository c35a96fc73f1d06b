//! R-17 for a container whose files a helper accesses: its root is a directory of this host.

use std::path::PathBuf;
use std::sync::Arc;

use dray_sandbox::Address;
use dray_sandbox::Backend;
use dray_sandbox_conformance::{
    CONFORMANCE_CASES, Fixture, PROGRAM_CASES, SandboxTraits, run_cases,
};
use dray_sandbox_exec::LocalExec;
use tempfile::TempDir;

use super::*;

#[derive(Debug)]
struct RootedFixture {
    directory: TempDir,
}

impl RootedFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap()
    }

    fn sandbox(&self) -> RootedSandbox<LocalExec> {
        let handle = Handle {
            address: self.address(),
            incarnation: "one".into(),
        };
        let none: [&str; 0] = [];
        let root = SandboxPath::new(self.root().to_str().unwrap()).unwrap();
        RootedSandbox::new(handle, LocalExec::new(none), root)
    }
}

#[derive(Debug)]
struct SingleBackend(PathBuf);

#[async_trait]
impl Backend for SingleBackend {
    fn name(&self) -> &'static str {
        "beside"
    }

    async fn resolve(&self, address: &Address) -> Result<Handle, Error> {
        if address.name != "box" {
            return Err(Error::new(ErrorKind::SandboxGone, "there is only one"));
        }
        Ok(Handle {
            address: address.clone(),
            incarnation: "one".into(),
        })
    }

    async fn open(&self, handle: &Handle) -> Result<Arc<dyn Sandbox>, Error> {
        let none: [&str; 0] = [];
        let root = SandboxPath::new(self.0.to_str().unwrap())?;
        let exec = LocalExec::new(none);
        Ok(Arc::new(RootedSandbox::new(handle.clone(), exec, root)))
    }
}

#[async_trait]
impl Fixture for RootedFixture {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::new(SingleBackend(self.root()))
    }

    fn address(&self) -> Address {
        "beside:box".parse().unwrap()
    }

    fn workspace(&self) -> SandboxPath {
        SandboxPath::new("/work").unwrap()
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let inside = directory.to_text().unwrap().trim_start_matches('/');
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(self.root().join(inside))
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The helper sees only the files of the container and cannot run its programs.
    fn traits(&self) -> SandboxTraits {
        SandboxTraits {
            commands: false,
            ..SandboxTraits::default()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_a_container_read_from_a_helper_passes_the_suite() {
    // `/proc` and `/dev` are those of this host and not of the directory; cases of devices run on whole containers.
    let cases: Vec<_> = CONFORMANCE_CASES
        .iter()
        .filter(|(name, _)| *name != "devices_and_pseudo_files_are_not_read")
        .copied()
        .collect();
    let report = run_cases(&RootedFixture::new(), &cases).await.unwrap();
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .filter(|name| **name != "access_without_permission_is_refused")
        .filter(|name| !PROGRAM_CASES.contains(name))
        .collect();
    assert_eq!(skipped, [&"a_replaced_sandbox_is_gone"]);
}

#[tokio::test]
async fn r_9_links_never_leave_the_container() {
    let fixture = RootedFixture::new();
    let root = fixture.root();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "host").unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/hostname"), "inside").unwrap();
    for (name, target) in [
        ("absolute", "/etc/hostname".to_owned()),
        ("above", "../../../../../../etc/hostname".to_owned()),
        ("chain", "/work/absolute".to_owned()),
        ("directory", "/etc".to_owned()),
        ("host", outside.path().join("secret").display().to_string()),
        ("loop", "loop".to_owned()),
        ("nowhere", "/etc/none".to_owned()),
    ] {
        std::os::unix::fs::symlink(target, root.join("work").join(name)).unwrap();
    }
    let sandbox = fixture.sandbox();
    let stat = async |name: &str| {
        let path = SandboxPath::new(format!("/work/{name}")).unwrap();
        let metadata = sandbox.stat(&path, Follow::Yes).await;
        metadata
            .map(|metadata| metadata.real_path.to_text().unwrap().to_owned())
            .map_err(|error| error.kind())
    };
    for name in ["absolute", "above", "chain", "directory/hostname"] {
        assert_eq!(stat(name).await.as_deref(), Ok("/etc/hostname"), "{name}");
    }
    assert_eq!(stat("host").await, Err(ErrorKind::NotFound));
    assert_eq!(stat("loop").await, Err(ErrorKind::Loop));
    assert_eq!(stat("nowhere").await, Err(ErrorKind::NotFound));
    assert_eq!(
        stat("directory/hostname/x").await,
        Err(ErrorKind::NotDirectory)
    );
    let made = SandboxPath::new("/work/directory/new").unwrap();
    sandbox.make_directory(&made).await.unwrap();
    assert!(root.join("etc/new").is_dir());
}
