//! Tests of standard output that cannot be written: a full disk is a failure, but a reader that has ended is not.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use super::{CliHome, line};

/// Runs a command whose standard output is a full device, and checks that it fails with the reason on standard error.
#[track_caller]
fn check_full(home: &CliHome, arguments: &[&str]) {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = home.dray(arguments).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("cannot write to standard output"),
        "{arguments:?}: {errors}"
    );
}

#[test]
fn output_onto_a_full_device_is_a_failure() {
    let home = CliHome::new();
    let directory = home.0.path().join("folder");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("a.txt");
    std::fs::write(&file, "Crane 4 is back at noon.\n").unwrap();
    let file = file.to_str().unwrap();
    let sandbox = format!("local:{}", directory.display());
    check_full(&home, &["read", file]);
    check_full(&home, &["read", "--json", file]);
    check_full(&home, &["classify", file]);
    check_full(&home, &["sandbox", "ls", &sandbox]);
    check_full(&home, &["config", "show"]);
    check_full(&home, &["completions", "bash"]);
    check_full(&home, &["doctor"]);
}

/// Runs a command of whose output only the beginning is read, and checks that it succeeds.
#[track_caller]
fn check_head(home: &CliHome, arguments: &[&str]) {
    let mut command = home.dray(arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut head = [0; 10];
    let mut output = child.stdout.take().unwrap();
    output.read_exact(&mut head).unwrap();
    drop(output);
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    assert!(ended.stderr.is_empty(), "{arguments:?}: {ended:?}");
}

#[test]
fn a_reader_that_ends_early_does_not_fail_the_command() {
    let home = CliHome::new();
    check_head(&home, &["completions", "bash"]);
    // Larger than a pipe, so that the command writes after the end of its reader.
    std::fs::write(home.0.path().join("large.bin"), vec![7; 1 << 20]).unwrap();
    let file = home.0.path().join("large.bin").display().to_string();
    let put = line(&home.run(&["artifact", "put", &file, "--json"]));
    let sha256 = put["sha256"].as_str().unwrap();
    check_head(&home, &["artifact", "get", sha256, "-o", "-"]);
    let sandbox = format!("local:{}", home.0.path().display());
    let get = ["sandbox", "get", &sandbox, "large.bin", "-o", "-"];
    check_head(&home, &get);
}

#[test]
fn a_dry_run_prints_account_policy_limits_and_steps_and_sends_nothing() {
    let home = CliHome::new();
    let (sandbox, cwd) = (home.0.path().join("box"), home.0.path().join("here"));
    for directory in [&sandbox, &cwd] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::write(sandbox.join("a.txt"), "hello").unwrap();
    let mut command = home.dray(&["send", "a.txt", "--from", "local:../box", "--dry-run"]);
    let plan = command.current_dir(&cwd).output().unwrap();
    assert!(plan.status.success(), "{plan:?}");
    let text = String::from_utf8_lossy(&plan.stdout);
    let begins_with = |word: &str| text.lines().any(|line| line.starts_with(word));
    for word in ["to ", "policy ", "limits ", "1 ", "Nothing was sent."] {
        assert!(begins_with(word), "{word}: {text}");
    }
    assert!(text.contains("a.txt") && text.contains("cli:"), "{text}");
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
}
