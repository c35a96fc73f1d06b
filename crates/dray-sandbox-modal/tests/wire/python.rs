//! Runs the provider's own client with the fake server, to check that the fake server behaves like the real one.

use dray_sandbox_modal::fake_server::{InjectedFault, TOKEN_ID, TOKEN_SECRET};
use dray_testkit::python;
use dray_types::Sha256Digest;
use serde_json::json;

use super::fixture::{ModalFixture, SANDBOX_ID};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_the_provider_accepts_the_fake_server() {
    let fixture = ModalFixture::new().await;
    let directory = fixture.root().join("folder");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("ours.bin"), vec![9; 300_000]).unwrap();
    std::os::unix::fs::symlink("ours.bin", directory.join("link")).unwrap();
    // The client must resume after both faults.
    fixture.server.arm(InjectedFault::CutOutput(123_456));
    fixture.server.arm(InjectedFault::CutInput(200_000));
    let mut client = python::script_command("modal_client.py", "modal");
    client
        .args([SANDBOX_ID, directory.to_str().unwrap()])
        .env("HOME", fixture.root())
        .env("MODAL_SERVER_URL", fixture.server.url())
        .env("MODAL_TOKEN_ID", TOKEN_ID)
        .env("MODAL_TOKEN_SECRET", TOKEN_SECRET);
    let printed = python::run_json(&mut client).await;
    let content: Vec<u8> = (0..4096).flat_map(|_| 0..=255).collect();
    let expected = json!({
        "out": "00ff20696e",
        "problem": "problem\n",
        "status": 3,
        "written": Sha256Digest::of(&content).to_hex(),
        "ours": Sha256Digest::of(&vec![9; 300_000]).to_hex(),
        "listed": [["link", "symlink"], ["new", "directory"], ["ours.bin", "file"]],
        "link": ["symlink", "ours.bin"],
        "missing": "SandboxFilesystemNotFoundError",
        "directory": "SandboxFilesystemIsADirectoryError",
        "not_directory": "SandboxFilesystemNotADirectoryError",
    });
    assert_eq!(printed, expected);
    assert_eq!(
        std::fs::read(directory.join("new/written.bin")).unwrap(),
        content
    );
}
