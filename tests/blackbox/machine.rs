//! The programs and rights that the suite needs, and how its programs are run. The suite fails with a list of what is
//! missing; it does not work around it.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Search path of all programs; no other variable of the caller's environment reaches a child either.
pub(crate) const PROGRAM_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs, arguments with which each succeeds, and the Debian package that contains it.
const NEEDED_PROGRAMS: [(&str, &[&str], &str); 4] = [
    ("ip", &["-Version"], "iproute2"),
    ("nft", &["--version"], "nftables"),
    ("openssl", &["version"], "openssl"),
    ("python3", &["--version"], "python3"),
];

/// The binary to test. Panics with the list of what is missing on this machine.
pub(crate) fn require() -> PathBuf {
    let mut missing = Vec::new();
    if !cfg!(target_os = "linux") {
        missing.push("Linux: network namespaces and nftables exist nowhere else".to_owned());
    }
    for (program, arguments, package) in NEEDED_PROGRAMS {
        if !bare(program)
            .args(arguments)
            .output()
            .is_ok_and(|output| output.status.success())
        {
            missing.push(format!(
                "the program `{program}`: apt-get install {package}"
            ));
        }
    }
    let root = bare("id").arg("-u").output();
    if !root.is_ok_and(|output| output.stdout.trim_ascii() == b"0") {
        missing.push("root: creating network namespaces needs it".to_owned());
    }
    let binary = binary();
    match &binary {
        Some(path) if path.is_file() => {}
        Some(path) => missing.push(format!(
            "the binary: DRAY_BINARY names {}, which is not a file",
            path.display()
        )),
        None => missing.push(
            "the variable DRAY_BINARY: path of the binary to test (`cargo xtask blackbox` sets it)"
                .to_owned(),
        ),
    }
    assert!(
        missing.is_empty(),
        "the suite needs programs that are not installed:\n  {}",
        missing.join("\n  ")
    );
    binary.unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the runner passes the binary that it built in this variable"
)]
fn binary() -> Option<PathBuf> {
    std::env::var_os("DRAY_BINARY").map(PathBuf::from)
}

/// A command whose environment has the search path alone.
pub(crate) fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", PROGRAM_PATH)
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end and returns its output; panics with its standard error when it fails.
pub(crate) fn run(command: &mut Command) -> Vec<u8> {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    output_of_success(command, output)
}

/// Like [`run`], with text on standard input.
pub(crate) fn feed(command: &mut Command, input: &str) -> Vec<u8> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    output_of_success(command, output)
}

fn output_of_success(command: &Command, output: Output) -> Vec<u8> {
    assert!(
        output.status.success(),
        "{command:?} failed, {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
