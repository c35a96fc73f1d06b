//! Tests of the first output that a person at a terminal sees: sample files, a short start, advice, completions, manual
//! pages, colour.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use super::CliHome;

#[test]
fn sample_files_of_the_readme_can_be_read() {
    let home = CliHome::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let read = |arguments: &[&str]| {
        let output = home.dray(arguments).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let report = read(&["read", "examples/files/report.pdf"]);
    assert!(report.contains("Crane 4 was out of service"), "{report}");
    let prices = read(&[
        "read",
        "examples/files/prices.xlsx",
        "--range",
        "sheet Prices rows 1-20",
        "--json",
    ]);
    assert!(prices.contains("Rotterdam"), "{prices}");
}

#[test]
fn up_logs_no_details_by_default_and_more_with_verbose() {
    let home = CliHome::new();
    let first_lines = |flags: &[&str]| {
        // Another test may listen on the console's default port, and `up` says so in a separate line.
        let addresses = ["--http", "--chat", "--console"].map(|flag| [flag, "127.0.0.1:0"]);
        let mut arguments = vec!["up"];
        arguments.extend(addresses.as_flattened());
        arguments.extend(flags);
        let mut up = home.dray(&arguments);
        let mut up = up.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(up.stderr.take().unwrap()).lines() {
            let line = line.unwrap();
            let is_last = line.starts_with("chat completions:");
            lines.push(line);
            if is_last {
                break;
            }
        }
        up.kill().unwrap();
        up.wait().unwrap();
        lines
    };
    let quiet = first_lines(&[]);
    // Two warnings: neither DIAL nor a model is configured.
    let running = quiet.iter().position(|line| line.starts_with("running: "));
    assert!(running.is_some_and(|index| index <= 2), "{quiet:#?}");
    assert!(
        !quiet.iter().any(|line| line.contains(" INFO ")),
        "{quiet:#?}"
    );
    let verbose = first_lines(&["-v"]);
    assert!(
        verbose.iter().any(|line| line.contains("starting")),
        "{verbose:#?}"
    );
    let values = verbose.iter().filter(|line| line.contains("configuration"));
    assert!(values.count() < 20, "defaults are not listed: {verbose:#?}");
}

#[test]
fn the_advice_names_a_port_in_use_and_a_state_directory_without_permission() {
    let home = CliHome::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let busy = home.run(&[
        "up",
        "--http",
        &address,
        "--chat",
        "127.0.0.1:0",
        "--console",
        "127.0.0.1:0",
    ]);
    let text = String::from_utf8_lossy(&busy.stderr);
    assert!(
        text.contains("End the program that uses the address"),
        "{text}"
    );
    assert!(text.starts_with("error: "), "it is the first line: {text}");
    let file = home.0.path().join("file");
    std::fs::write(&file, "").unwrap();
    let state = file.join("state");
    let refused = home.run(&[
        "up",
        "--http",
        "127.0.0.1:0",
        "--chat",
        "127.0.0.1:0",
        "--state",
        state.to_str().unwrap(),
    ]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("name another one with --state"), "{text}");
}

#[test]
fn a_state_directory_that_another_process_serves_gets_its_own_advice() {
    let home = CliHome::new();
    let state = home.0.path().join("state");
    let flags = ["--http", "127.0.0.1:0", "--chat", "127.0.0.1:0", "--state"];
    let up = |stderr: Stdio| {
        let mut up = home.dray(&["up"]);
        up.args(flags).arg(&state).stderr(stderr).spawn().unwrap()
    };
    let mut first = up(Stdio::piped());
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("running: ")));
    let second = up(Stdio::piped()).wait_with_output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success(), "{text}");
    assert!(
        text.contains("Another dray process serves this directory"),
        "{text}"
    );
}

#[test]
fn completions_and_man_pages_are_generated_from_the_command_line() {
    let home = CliHome::new();
    for (shell, marker) in [
        ("bash", "complete -F _dray"),
        ("zsh", "#compdef dray"),
        ("fish", "complete -c dray"),
    ] {
        let script = home.run(&["completions", shell]);
        let text = String::from_utf8_lossy(&script.stdout);
        assert!(script.status.success(), "{script:?}");
        assert!(text.contains(marker) && text.contains("sandbox"), "{shell}");
    }
    let directory = home.0.path().join("man");
    let written = home.run(&["man", directory.to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    let page = std::fs::read_to_string(directory.join("dray-sandbox-get.1")).unwrap();
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    assert!(directory.join("dray.1").is_file());
    assert!(
        !directory.join("dray-reference.1").exists(),
        "hidden commands have no page"
    );
}

#[test]
fn errors_have_colour_only_when_a_variable_forces_it_and_no_color_is_unset() {
    let home = CliHome::new();
    let error_text = |variables: &[(&str, &str)]| {
        let mut command = home.dray(&["fetch", "http://127.0.0.1/"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(!error_text(&[]).contains('\u{1b}'), "a pipe gets no colour");
    assert!(error_text(&[("CLICOLOR_FORCE", "1")]).contains("\u{1b}["));
    assert!(!error_text(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'));
}
