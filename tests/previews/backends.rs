//! Sandboxes of the backends that need no container engine and no SSH server. Their fake servers and programs run real
//! commands on directories of this host.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::Command;

use dray_types::Clock;

use crate::support;

/// Id of the sandbox on the fake of E2B.
const E2B_ID: &str = "i3xy8zq0";
/// Name of the sandbox on the fake of Daytona.
const DAYTONA_NAME: &str = "my-box";
/// Id of the sandbox on the fake of Modal, of the first version.
const MODAL_ID: &str = "sb-0123456789abcdefghijKL";

/// A sandbox that is a directory of this host, until it is dropped.
pub(super) struct BackendSandbox {
    /// Name as people write it, such as `modal:sb-…`.
    pub(super) address: String,
    /// Directory of this host with its files, which have the same path in the sandbox.
    pub(super) root: PathBuf,
    /// Configuration file with which this sandbox is reached.
    pub(super) config: PathBuf,
    /// The fake server or instance, which ends before its directory is removed.
    _server: Box<dyn Any>,
    _directory: tempfile::TempDir,
}

impl BackendSandbox {
    /// A sandbox whose server `start` starts for the directory; it returns the address and the settings in TOML.
    fn with<S: 'static>(start: impl FnOnce(&Path) -> (S, String, String)) -> Self {
        // Below `/tmp`, where files of sandboxes may lie by default.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let root = directory.path().canonicalize().unwrap().join("box");
        std::fs::create_dir(&root).unwrap();
        let (server, address, settings) = start(&root);
        let kind = address.split(':').next().unwrap();
        let config = directory.path().join("dray.toml");
        let text = format!("[sandbox-transfer]\nkinds = [\"{kind}\"]\n{settings}");
        std::fs::write(&config, text).unwrap();
        Self {
            address,
            root,
            config,
            _server: Box::new(server),
            _directory: directory,
        }
    }

    pub(super) fn local() -> Self {
        Self::with(|root| {
            let settings = format!(
                "[sandbox-transfer.local]\nroots = [\"{}\"]\n",
                root.display()
            );
            ((), format!("local:{}", root.display()), settings)
        })
    }

    pub(super) fn exec() -> Self {
        Self::with(|root| {
            let settings = format!(
                "[sandbox-transfer.exec.box]\ncommand = [\"env\", \"--chdir={}\"]\n",
                root.display()
            );
            ((), "exec:box".to_owned(), settings)
        })
    }

    pub(super) fn apptainer() -> Self {
        Self::with(|root| {
            let instance = ApptainerInstance::start(root.parent().unwrap().join("instances"));
            let settings = format!(
                "[sandbox-transfer.apptainer]\nprogram = \"{}\"\nenvironment = {{ APPTAINER_CONFIGDIR = \"{}\", \
                 HOME = \"{}\" }}\n",
                ApptainerInstance::program().display(),
                instance.state.display(),
                root.display()
            );
            (instance, "apptainer:box".to_owned(), settings)
        })
    }

    pub(super) async fn kubernetes() -> Self {
        use dray_sandbox_kubernetes::fake_server::{ApiServer, FakeContainer};
        let server = ApiServer::start().await.unwrap();
        Self::with(|root| {
            let mut container = FakeContainer::new("shell");
            container.root = root.to_owned();
            server.create("agents", "box", vec![container]).unwrap();
            let settings = format!(
                "[sandbox-transfer.kubernetes]\nkubeconfig = \"{}\"\n",
                server.kubeconfig("first").unwrap().display()
            );
            (server, "kubernetes:agents/box/shell".to_owned(), settings)
        })
    }

    pub(super) async fn modal() -> Self {
        use dray_sandbox_modal::fake_server::{FakeServer, TOKEN_ID, TOKEN_SECRET};
        let directory = std::env::temp_dir();
        let server = FakeServer::start(directory).await.unwrap();
        Self::with(|_| {
            server.run(MODAL_ID);
            let settings = format!(
                "[sandbox-transfer.modal]\ntoken_id = \"{TOKEN_ID}\"\ntoken_secret = \"{TOKEN_SECRET}\"\n\
                 server_url = \"{}\"\n",
                server.url()
            );
            (server, format!("modal:{MODAL_ID}"), settings)
        })
    }

    pub(super) async fn e2b() -> Self {
        use dray_sandbox_e2b::fake_server::{FAKE_API_KEY, FakeE2b};
        let server = FakeE2b::start(Clock::system()).await.unwrap();
        Self::with(|root| {
            server.run(E2B_ID, root);
            let url = server.url();
            let settings = format!(
                "[sandbox-transfer.e2b]\napi_key = \"{FAKE_API_KEY}\"\napi_url = \"{url}\"\nenvd_url = \"{url}\"\n"
            );
            (server, format!("e2b:{E2B_ID}"), settings)
        })
    }

    pub(super) async fn daytona() -> Self {
        use dray_sandbox_daytona::fake_server::{FAKE_API_KEY, FakeDaytona};
        let server = FakeDaytona::start(Clock::system()).await.unwrap();
        Self::with(|root| {
            server.run(DAYTONA_NAME, root);
            let settings = format!(
                "[sandbox-transfer.daytona]\napi_key = \"{FAKE_API_KEY}\"\napi_url = \"{}\"\n",
                server.url()
            );
            (server, format!("daytona:{DAYTONA_NAME}"), settings)
        })
    }

    /// Runs a script in the directory.
    pub(super) fn sh(&self, script: &str) {
        let status = Command::new("sh")
            .args(["-c", script])
            .current_dir(&self.root)
            .status();
        assert!(status.unwrap().success(), "{script}");
    }
}

/// An instance called `box` of the program that stands in for Apptainer. It stops when this is dropped.
struct ApptainerInstance {
    state: PathBuf,
}

impl ApptainerInstance {
    fn program() -> PathBuf {
        support::root().join("crates/dray-sandbox-apptainer/tests/run/apptainer.sh")
    }

    fn start(state: PathBuf) -> Self {
        let instance = Self { state };
        instance.run(&["instance", "start", "/images/box.sif", "box"]);
        instance
    }

    fn run(&self, words: &[&str]) {
        let output = Command::new(Self::program())
            .args(words)
            .env("APPTAINER_CONFIGDIR", &self.state)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

impl Drop for ApptainerInstance {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.run(&["instance", "stop", "box"]);
        }
    }
}
