//! The suite of all backends (sandbox-transfer R-17).

use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use dray_sandbox::{Address, Backend, SandboxPath};
use dray_sandbox_conformance::{Fixture, Traits, run_all};

use super::{DaytonaFixture, SANDBOX_ID, address};

#[derive(Debug)]
struct ProviderCases {
    fixture: DaytonaFixture,
    backend: Arc<dyn Backend>,
}

#[async_trait]
impl Fixture for ProviderCases {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    fn address(&self) -> Address {
        address()
    }

    fn workspace(&self) -> SandboxPath {
        self.fixture.path("")
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let output = tokio::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(directory.to_text().unwrap())
            .stderr(Stdio::inherit())
            .output()
            .await
            .unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn traits(&self) -> Traits {
        Traits {
            // JSON carries text only.
            byte_names: false,
            ..Traits::default()
        }
    }

    async fn replace(&self) -> bool {
        self.fixture
            .fake_server
            .run(SANDBOX_ID, self.fixture.folder.path());
        true
    }
}

#[tokio::test]
async fn r_17_a_sandbox_of_the_provider_is_like_any_other() {
    let fixture = DaytonaFixture::new().await;
    let backend = Arc::new(fixture.backend());
    let report = run_all(&ProviderCases { fixture, backend }).await.unwrap();
    let unasked = ["what_the_user_may_not_touch_is_refused"];
    assert!(
        report.skipped.iter().all(|name| unasked.contains(name)),
        "{:?}",
        report.skipped
    );
}
