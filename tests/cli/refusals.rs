//! Tests of values that a command line cannot mean: each is refused with the flag's name, and nothing runs.

use super::CliHome;

/// Checks that a command line is refused as wrong, and that the reason has these words.
#[track_caller]
fn check_refused(home: &CliHome, arguments: &[&str], words: &[&str]) {
    let output = home.run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    for word in words {
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_timeout_of_centuries_is_refused() {
    let home = CliHome::new();
    let longest = u64::MAX.to_string();
    let timeout = ["--timeout", &longest];
    for command in [
        &["fetch", "http://127.0.0.1:1/"][..],
        &["sandbox", "get", "local:/tmp", "a"],
        &["deliver", "a"],
        &["sandbox", "exec", "local:/tmp"],
    ] {
        let mut arguments = [command, &timeout].concat();
        if command.contains(&"exec") {
            arguments.extend(["--", "true"]);
        }
        check_refused(&home, &arguments, &["--timeout", "1..=31536000"]);
    }
}
