//! The double is proved with a client that we did not write: matrix-nio.
//!
//! It runs in the Python environment of the tests, which `cargo xtask test` makes and names in `DRAY_TEST_PYTHON`;
//! without that it is made here, in the same place.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_types::Sha256Digest;
use serde_json::{Value, json};

use crate::double::{Double, Fault, ME, TOKEN, USER};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

/// An interpreter with matrix-nio.
fn interpreter() -> PathBuf {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test command names the interpreter here"
    )]
    let named = std::env::var_os("DRAY_TEST_PYTHON");
    if let Some(named) = named {
        return named.into();
    }
    let folder = root().join("target/python");
    let interpreter = folder.join("bin/python");
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    if !interpreter.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    }
    let has_it = Command::new(&interpreter)
        .args(["-c", "import nio"])
        .stderr(Stdio::null())
        .status();
    if !has_it.unwrap().success() {
        let mut install = Command::new(&interpreter);
        install.args(["-m", "pip", "install", "--quiet", "--requirement"]);
        run(install.arg(root().join("tests/python/requirements.txt")));
    }
    interpreter
}

#[tokio::test]
async fn matrix_nio_takes_the_double_for_a_homeserver() {
    let double = Double::start(200_000).await.unwrap();
    let room = double.room();
    double.alias("#room:double.example", &room);
    double.user_writes(&room, &json!({ "msgtype": "m.text", "body": "привет" }));
    // The first two events go through.
    double.script(Fault::Nothing);
    double.script(Fault::Nothing);
    double.script(Fault::RateLimit(Duration::from_secs(97)));
    double.script(Fault::Refuse(403, "M_FORBIDDEN"));
    let output = tokio::process::Command::new(interpreter())
        .arg(root().join("tests/python/matrix_client.py"))
        .args([&double.url(), TOKEN, &room, USER])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 40).collect();
    let digest = Sha256Digest::of(&bytes);
    let seen = double.seen(&room);
    let [file] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!(file.file.as_ref().unwrap().sha256, digest);
    let expected = json!({
        "me": ME,
        "limit": 200_000,
        "alias": room,
        "nowhere": "M_NOT_FOUND",
        "uri": file.content["url"],
        "download": digest.to_hex(),
        "gone": "M_NOT_FOUND",
        "large": "M_TOO_LARGE",
        "event": file.event_id,
        "same": true,
        "limited": ["M_LIMIT_EXCEEDED", 97_000],
        "refused": "M_FORBIDDEN",
        "files": [[ME, "отчёт.csv", file.content["url"]]],
        "texts": [[USER, "привет"]],
        "last": [file.event_id],
        "silence": 0,
        "token": "M_UNKNOWN_TOKEN",
    });
    assert_eq!(shown, expected);
}
