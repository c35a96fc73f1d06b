//! Tests that `kubectl` and the Python client accept the fake API server as a cluster.

use std::process::{Command, Output};

use super::fixture::PodFixture;

async fn run(mut command: Command) -> Output {
    let ran = tokio::task::spawn_blocking(move || match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}; `cargo xtask test` says what to install"),
    });
    ran.await.unwrap()
}

impl PodFixture {
    /// `kubectl` with these arguments, its files in a directory of the test.
    async fn kubectl(&self, arguments: &[&str]) -> Output {
        let directory = self.server.directory();
        let mut command = Command::new(dray_testkit::kubectl::program());
        command
            .env_clear()
            .env("PATH", crate::fake_server::SEARCH_PATH)
            .env("HOME", directory)
            .arg("--kubeconfig")
            .arg(directory.join("kubeconfig"))
            .arg("--cache-dir")
            .arg(directory.join("cache"))
            .args(["--namespace", "agents"])
            .args(arguments)
            .current_dir(directory);
        run(command).await
    }
}

fn stdout_of_success(output: &Output) -> &[u8] {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    &output.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_runs_commands_in_the_fake_server() {
    let fixture = PodFixture::new().await;
    let output = fixture
        .kubectl(&[
            "exec",
            "box",
            "-c",
            "shell",
            "--",
            "printf",
            "%s|",
            "a b",
            "c&d=\u{e4}",
        ])
        .await;
    assert_eq!(stdout_of_success(&output), "a b|c&d=\u{e4}|".as_bytes());
    let output = fixture
        .kubectl(&[
            "exec",
            "box",
            "--",
            "sh",
            "-c",
            "echo out; echo wrong >&2; exit 3",
        ])
        .await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("wrong"));
    let output = fixture.kubectl(&["exec", "none", "--", "true"]).await;
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("pods \"none\" not found"),
        "{output:?}"
    );
    let output = fixture
        .kubectl(&["exec", "box", "--", "no-such-program"])
        .await;
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("executable file not found"),
        "{output:?}"
    );
    // A GET means WebSockets, in the version that can close channels.
    assert!(fixture.count_requests("GET /api/v1/namespaces/agents/pods/box/exec ") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_copies_files_both_ways() {
    let fixture = PodFixture::new().await;
    let bytes: Vec<u8> = (0..1_500_000_u32)
        .map(|at| u8::try_from(at % 253).unwrap())
        .collect();
    let local = fixture.server.directory().join("local.bin");
    std::fs::write(&local, &bytes).unwrap();
    let inside = format!("box:{}/copy.bin", fixture.work().display());
    let output = fixture
        .kubectl(&["cp", "local.bin", &inside, "-c", "shell"])
        .await;
    stdout_of_success(&output);
    assert!(std::fs::read(fixture.work().join("copy.bin")).unwrap() == bytes);
    let output = fixture
        .kubectl(&["cp", &inside, "back.bin", "-c", "shell"])
        .await;
    stdout_of_success(&output);
    assert!(std::fs::read(fixture.server.directory().join("back.bin")).unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_runs_commands_in_the_fake_server() {
    let fixture = PodFixture::new().await;
    let output = dray_testkit::python::script_command("kubernetes_client.py", "kubernetes")
        .arg(fixture.server.directory().join("kubeconfig"))
        .args(["agents", "box", "shell"])
        .arg(fixture.work())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .await
        .unwrap();
    assert_eq!(stdout_of_success(&output), b"done\n");
    assert!(fixture.count_requests("/exec ") > 0);
}
