//! the questions that every backend is asked.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_sandbox::conformance::{CASES, Fixture, Traits, run, run_all};
use dray_sandbox::{Address, Backend, SandboxPath};
use dray_sandbox_docker::DockerBackend;
use dray_testkit::docker::{Container, ContainerOptions, Engine};

use super::world::{address, backend, endpoint, path};

#[derive(Debug)]
struct Docker {
    engine: Engine,
    backend: Arc<DockerBackend>,
    options: ContainerOptions,
    container: Mutex<Option<Container>>,
    workspace: &'static str,
    traits: Traits,
}

impl Docker {
    fn new(options: ContainerOptions, workspace: &'static str, traits: Traits) -> Self {
        let engine = Engine::shared();
        let container = engine.container(options.clone());
        let options = ContainerOptions {
            name: container.name().to_owned(),
            ..options
        };
        Self {
            backend: backend(endpoint(&engine)),
            engine,
            options,
            container: Mutex::new(Some(container)),
            workspace,
            traits,
        }
    }
}

#[async_trait]
impl Fixture for Docker {
    fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend) as Arc<dyn Backend>
    }

    fn address(&self) -> Address {
        address(&self.options.name)
    }

    fn workspace(&self) -> SandboxPath {
        path(self.workspace)
    }

    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String> {
        let container = self.container.lock().unwrap();
        let folder = directory.to_text().unwrap();
        let user = if self.options.user == "agent" {
            1000
        } else {
            0
        };
        let output = container.as_ref().unwrap().inside(user, folder, script);
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status != 0 {
            said.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Some(said)
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    async fn replace(&self) -> bool {
        let mut container = self.container.lock().unwrap();
        drop(container.take());
        *container = Some(self.engine.container(self.options.clone()));
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_files_of_a_container_pass_the_suite() {
    let options = ContainerOptions {
        user: "agent".into(),
        ..ContainerOptions::default()
    };
    let traits = Traits {
        // The engine reads and writes with rights of its own.
        permissions: false,
        // They tell no inode, so a command cannot compare it; what they read themselves is compared by its time.
        identity: false,
        ..Traits::default()
    };
    let fixture = Docker::new(options, "/workspace", traits);
    let report = run_all(&fixture).await.unwrap();
    assert_eq!(
        report.skipped,
        [
            "a_link_put_in_place_after_the_check_is_not_followed",
            "what_the_user_may_not_touch_is_refused",
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_files_in_memory_pass_the_suite() {
    let options = ContainerOptions {
        user: "agent".into(),
        tmpfs: vec![("/memory".into(), "mode=1777".into())],
        ..ContainerOptions::default()
    };
    let fixture = Docker::new(options, "/memory", Traits::default());
    // Names go through commands as they do on every backend; here each takes as long as a process of the engine.
    let cases: Vec<_> = CASES
        .iter()
        .filter(|(name, _)| *name != "every_name_survives")
        .copied()
        .collect();
    let report = run(&fixture, &cases).await.unwrap();
    assert_eq!(report.skipped, [] as [&str; 0]);
}
