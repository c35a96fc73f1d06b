//! Tests `examples/go` as its README says: generated with the compilers of Debian, built, and run over TLS with a
//! token.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::fixture::ClientFixture;
use crate::support;

/// Packages of Go that Debian installs.
const DEBIAN_GOPATH: &str = "/usr/share/gocode";

/// The `go` command without modules and without network.
fn go_command(directory: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(support::root())
        .env("GO111MODULE", "off")
        .env("GOPATH", format!("{}:{DEBIAN_GOPATH}", directory.display()))
        .env("GOCACHE", support::root().join("target/go-cache"));
    command
}

/// Builds the example in this directory and returns the program.
fn build_example(directory: &Path) -> PathBuf {
    let generate = support::root().join("examples/go/generate.sh");
    support::stdout(Command::new(generate).arg(directory));
    support::stdout(go_command(directory).args(["vet", "./examples/go"]));
    let program = directory.join("drayage-example");
    support::stdout(
        go_command(directory)
            .args(["build", "-o"])
            .arg(&program)
            .arg("./examples/go"),
    );
    program
}

fn run_example(program: &Path, scenario: &Value, token: &str, arguments: &str) -> Output {
    let text = |key: &str| scenario[key].as_str().unwrap().to_owned();
    Command::new(program)
        .env("DRAYAGE_TOKEN", text(token))
        // Go compares the host name with the certificate, which is not for the IP address.
        .args(["-target", &text("target").replace("127.0.0.1", "localhost")])
        .args(["-ca", &text("ca")])
        .args(["-sandbox", &format!("local:{}", text("box"))])
        .args(["-arguments", arguments])
        .output()
        .unwrap()
}

#[test]
fn the_go_example_builds_and_uses_three_services_over_tls_with_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let program = build_example(directory.path());
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    let sandbox = Path::new(scenario["box"].as_str().unwrap());
    std::fs::write(sandbox.join("hello.txt"), "Hello\n").unwrap();

    let completed = run_example(&program, &scenario, "token", r#"{"text": "plain"}"#);
    let printed = String::from_utf8(completed.stdout).unwrap();
    let failed = String::from_utf8(completed.stderr).unwrap();
    let lines: Vec<_> = printed.lines().collect();
    let [listed, resolved, outcome] = lines[..] else {
        panic!("{printed}{failed}");
    };
    assert!(listed.ends_with("hello.txt 6"), "{listed}");
    assert_eq!(resolved, r#"resolved: {"text": "plain"}"#);
    assert_eq!(outcome, "outcome: TERMINAL_STATE_DONE");

    let invalid = run_example(
        &program,
        &scenario,
        "token",
        r#"{"page": "file:text::http://127.0.0.1/"}"#,
    );
    let printed = String::from_utf8(invalid.stdout).unwrap();
    assert!(
        printed.contains("invalid: Parameter page is invalid"),
        "{printed}"
    );

    let refused = run_example(&program, &scenario, "narrow_token", "{}");
    assert!(!refused.status.success());
    let failed = String::from_utf8(refused.stderr).unwrap();
    assert!(failed.contains("FAULT_CODE_DENIED"), "{failed}");
    server.end();
}
