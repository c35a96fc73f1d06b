//! The provider's own client against the double: what it understands, ours may rely on.
//!
//! It runs in the Python environment of the tests: `cargo xtask test` makes it and names its interpreter in
//! `DRAY_TEST_PYTHON`; without that it is made here, in the same place.

use std::path::{Path, PathBuf};

use dray_sandbox_modal::double::{Fault, TOKEN_ID, TOKEN_SECRET};
use dray_types::Sha256Digest;
use serde_json::json;
use tokio::process::Command;

use super::world::{SANDBOX, World};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

async fn succeed(command: &mut Command) -> String {
    let output = command.output().await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The interpreter of an environment with the package `modal`.
async fn interpreter() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test command names the interpreter here"
    )]
    let named = std::env::var_os("DRAY_TEST_PYTHON");
    if let Some(named) = named {
        return named.into();
    }
    let interpreter = root().join("target/python/bin/python");
    if !interpreter.exists() {
        let mut make = Command::new("python3");
        succeed(make.args(["-m", "venv"]).arg(root().join("target/python"))).await;
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        succeed(install.arg(root().join("tests/python/requirements.txt"))).await;
    }
    interpreter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_of_the_provider_takes_the_double_for_the_provider() {
    let world = World::new().await;
    let folder = world.root().join("folder");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("ours.bin"), vec![9; 300_000]).unwrap();
    std::os::unix::fs::symlink("ours.bin", folder.join("link")).unwrap();
    // It resumes like ours does.
    world.server.arm(Fault::CutOutput(123_456));
    world.server.arm(Fault::CutInput(200_000));
    let mut client = Command::new(interpreter().await);
    client
        .arg(root().join("tests/python/modal_client.py"))
        .args([SANDBOX, folder.to_str().unwrap()])
        .env("HOME", world.root())
        .env("MODAL_SERVER_URL", world.server.url())
        .env("MODAL_TOKEN_ID", TOKEN_ID)
        .env("MODAL_TOKEN_SECRET", TOKEN_SECRET)
        .kill_on_drop(true);
    let said: serde_json::Value = serde_json::from_str(&succeed(&mut client).await).unwrap();
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
    assert_eq!(said, expected);
    assert_eq!(
        std::fs::read(folder.join("new/written.bin")).unwrap(),
        content
    );
}
