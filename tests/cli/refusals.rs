//! Tests of flag values that cannot be used: each is refused with the flag's name, and nothing runs.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use super::{CliHome, check, line};

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
fn a_system_whose_tickets_have_no_records_does_not_start() {
    let home = CliHome::new();
    let state = home.0.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("tickets"), "not a directory").unwrap();
    let state = state.display().to_string();
    // The service `tickets` would refuse to start, but the endpoint does not need it.
    let options = ["--only", "egress-fetcher", "--http", "127.0.0.1:0"];
    let tickets = ["--tickets", "127.0.0.1:0", "--json", "--state", &state];
    let mut command = home.dray(&["up"]);
    let mut up = command
        .args(options)
        .args(tickets)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(up.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    // A system that has started would run until a signal.
    let _ = up.kill();
    up.wait().unwrap();
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let message = first["fault"]["message"].as_str();
    let is_named = message.is_some_and(|message| message.contains("records of tickets"));
    assert!(is_named, "{first}");
}

#[test]
fn an_account_with_which_its_service_does_not_start_fails_the_check_of_the_configuration() {
    let home = CliHome::new();
    let account = "platform-delivery.accounts.hooks.webhook.hooks.ci.url=http://example.org/in";
    let check = ["config", "check", "--set", account];
    let checked = home.run(&check);
    assert_eq!(checked.status.code(), Some(78), "{checked:?}");
    let errors = String::from_utf8_lossy(&checked.stderr);
    for words in [
        "platform-delivery.accounts.hooks",
        "flag --set",
        "url must be https",
    ] {
        assert!(errors.contains(words), "{errors}");
    }
    let file = home.0.path().join("a.txt");
    std::fs::write(&file, "a").unwrap();
    let file = file.to_str().unwrap();
    let planned = home.run(&[
        "deliver",
        file,
        "--to",
        "webhook:ci",
        "--dry-run",
        "--set",
        account,
    ]);
    assert_eq!(planned.status.code(), Some(78), "{planned:?}");
    let errors = String::from_utf8_lossy(&planned.stderr);
    assert!(errors.contains("url must be https"), "{errors}");
    let shown = home.run(&["config", "show", "--set", account]);
    assert!(shown.status.success(), "{shown:?}");
    // Other services start with the same file and without the secrets of the accounts.
    let receipts = home.run(&["receipts", "--nats", "nats://127.0.0.1:1", "--set", account]);
    assert_eq!(receipts.status.code(), Some(69), "{receipts:?}");
}

#[test]
fn a_fault_in_an_account_shows_no_token_of_it() {
    let home = CliHome::new();
    let account = "platform-delivery.accounts.bot";
    let [telegram, slack] =
        ["telegram", "slack"].map(|platform| format!("{account}.{platform}.token=hunter2"));
    let checked = home.run(&["config", "check", "--set", &telegram, "--set", &slack]);
    assert_eq!(checked.status.code(), Some(78), "{checked:?}");
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(errors.contains("must set exactly one platform"), "{errors}");
    assert!(!errors.contains("hunter2"), "{errors}");
}

#[test]
fn a_setting_that_is_not_unicode_is_refused() {
    let home = CliHome::new();
    let output = home
        .dray(&["config", "show"])
        .env("DRAY_CONFIG", OsStr::from_bytes(b"/etc/dray-\xff.toml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("DRAY_CONFIG"), "{errors}");
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

#[test]
fn limits_of_reading_that_are_not_possible_leave_the_default_with_one_remark() {
    let home = CliHome::new();
    let files = ["a.txt", "b.txt"].map(|name| {
        let file = home.0.path().join(name);
        std::fs::write(&file, "text").unwrap();
        file.to_str().unwrap().to_owned()
    });
    let [first, second] = &files;
    for [flag, value] in [
        ["--convert-wall-clock-seconds", "-1"],
        ["--allow-kinds", "foo"],
    ] {
        for command in ["read", "classify"] {
            let output = home.run(&[command, first, second, flag, value]);
            assert!(output.status.success(), "{output:?}");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(errors.matches(flag).count(), 1, "{errors}");
        }
    }
}

#[test]
fn scripts_get_a_record_and_a_status_for_documents_that_are_not_read() {
    let home = CliHome::new();
    std::fs::write(home.0.path().join("a.txt"), "text").unwrap();
    let root = home.0.path().to_str().unwrap();
    let url = "http://127.0.0.1:1/a";
    let output = home.run(&["read", "--json", "--root", root, "/nope", "a.txt", url]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let records: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let outcomes: Vec<_> = records.iter().map(|record| &record["outcome"]).collect();
    assert_eq!(outcomes, ["refuse", "inline", "refuse"]);
    assert!(!text.contains("config.yml"), "{text}");
}

#[test]
fn names_of_files_do_not_change_the_terminal() {
    let home = CliHome::new();
    let file = home.0.path().join("bad\u{1b}[31m\nname.txt");
    std::fs::write(&file, "text").unwrap();
    for command in ["classify", "read"] {
        let output = home.run(&[command, file.to_str().unwrap(), "--root", "/nope"]);
        let shown = [output.stdout, output.stderr].concat();
        assert!(!shown.contains(&0x1b), "{command}: {shown:?}");
    }
    let classified = home.run(&["classify", file.to_str().unwrap()]);
    let text = String::from_utf8(classified.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("bad?[31m?name.txt: text"), "{text}");
}

#[test]
fn a_document_on_standard_input_is_read_and_only_once() {
    let home = CliHome::new();
    let read = |arguments: &[&str], input: &str| {
        let file = home.0.path().join("input");
        std::fs::write(&file, input).unwrap();
        let file = std::fs::File::open(file).unwrap();
        home.dray(arguments).stdin(file).output().unwrap()
    };
    let table = read(&["read", "--markdown", "-"], "crane,hours\n4,12\n");
    let text = String::from_utf8_lossy(&table.stdout);
    assert!(text.contains("crane") && text.contains("12"), "{table:?}");
    let record = read(&["read", "--json", "-"], "plain words\n");
    let record: serde_json::Value = serde_json::from_slice(&record.stdout).unwrap();
    assert_eq!(record["outcome"], "inline", "{record}");
    let large = read(
        &["read", "-", "--max-file-bytes", "10"],
        "more than ten bytes",
    );
    assert_eq!(large.status.code(), Some(1), "{large:?}");
    assert!(String::from_utf8_lossy(&large.stderr).contains("too_large"));
    check_refused(&home, &["read", "-", "-"], &["only once"]);
    let kind = read(&["classify", "-"], "%PDF-1.7\n");
    let text = String::from_utf8_lossy(&kind.stdout);
    assert!(
        text.starts_with("-: document (application/pdf, 9 bytes)"),
        "{kind:?}"
    );
    check_refused(&home, &["classify", "-", "-"], &["only once"]);
}

#[test]
fn a_missing_subcommand_is_one_sentence_in_json() {
    let output = CliHome::new().run(&["--json", "events"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let fault: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = fault["fault"]["message"].as_str().unwrap();
    assert!(message.starts_with("a subcommand is missing"), "{message}");
}

#[test]
fn an_empty_directory_is_reported() {
    let home = CliHome::new();
    let directory = home.0.path().join("empty");
    std::fs::create_dir(&directory).unwrap();
    let output = home.run(&["read", directory.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("Nothing to read"), "{note}");
}

#[test]
fn a_file_that_is_too_large_is_not_copied_first() {
    let home = CliHome::new();
    let large = home.0.path().join("large.bin");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(5 << 40).unwrap();
    let target = format!("cli:{}", home.0.path().display());
    let arguments = ["deliver", large.to_str().unwrap(), "--to", &target];
    for arguments in [
        arguments.to_vec(),
        [&arguments[..], &["--dry-run"]].concat(),
    ] {
        let output = home.run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("more than the limit of 49 GB"), "{errors}");
    }
    let put = home.run(&["artifact", "put", large.to_str().unwrap()]);
    assert_eq!(put.status.code(), Some(1), "{put:?}");
    let errors = String::from_utf8_lossy(&put.stderr);
    assert!(errors.contains("too_large"), "{errors}");
}

#[test]
fn a_sandbox_that_cannot_be_reached_is_named_with_the_cause_and_the_remedy() {
    let home = CliHome::new();
    let endpoint = format!("unix://{}", home.0.path().join("engine.sock").display());
    let listed = home.run(&[
        "sandbox",
        "ls",
        "docker:box",
        "/",
        "--set",
        &format!("sandbox-transfer.docker.endpoint={endpoint}"),
    ]);
    let errors = String::from_utf8_lossy(&listed.stderr);
    assert!(
        errors.contains("The sandbox docker:box cannot be reached: no engine runs at its socket."),
        "{errors}"
    );
    assert!(errors.contains("Start the engine"), "{errors}");
    assert!(!errors.contains("engine.sock"), "{errors}");
}

#[test]
fn the_limit_for_files_of_sandboxes_does_not_apply_to_local_files() {
    let home = CliHome::new();
    let large = home.0.path().join("large.bin");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(3 << 30).unwrap();
    let target = format!("cli:{}", home.0.path().display());
    let path = large.to_str().unwrap();
    let planned = home.run(&["deliver", path, "--to", &target, "--dry-run"]);
    let errors = String::from_utf8_lossy(&planned.stderr);
    assert!(!errors.contains("too_large"), "{errors}");
    let plan = String::from_utf8_lossy(&planned.stdout);
    assert!(plan.contains("large.bin"), "{planned:?}");
}

#[test]
fn scripts_get_a_fault_for_wrong_arguments() {
    let home = CliHome::new();
    for arguments in [&["--json", "read"][..], &["fetch", "--json", "--none"]] {
        let output = home.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["fault"]["detail"], "usage");
        assert!(!output.stderr.is_empty());
    }
    let help = home.run(&["--help", "--json"]);
    let text = String::from_utf8_lossy(&help.stdout);
    assert!(
        help.status.success() && text.contains("Usage: dray"),
        "{help:?}"
    );
}

#[test]
fn empty_limits_and_empty_bindings_are_refused() {
    let home = CliHome::new();
    let refused: [(&[&str], &str); 5] = [
        (&["sandbox", "ls", "local:/tmp", "--limit", "0"], "--limit"),
        (&["receipts", "--limit", "0"], "--limit"),
        (
            &["fetch", "http://127.0.0.1:1/", "--size-limit", "0"],
            "--size-limit",
        ),
        (
            &["sandbox", "get", "local:/tmp", "a", "--size-limit", "0"],
            "--size-limit",
        ),
        (&["session", "bind", "s 3"], "--sandbox"),
    ];
    for (arguments, flag) in refused {
        check_refused(&home, arguments, &[flag]);
    }
    let link = ["console", "link", "--console", "nonsense"];
    check_refused(&home, &link, &["--console is not an http or https URL"]);
}

#[test]
fn a_document_that_is_not_read_is_an_error_that_names_it() {
    let home = CliHome::new();
    let missing = home.run(&["read", "missing.pdf"]);
    check(&missing, 1, "");
    let reason = String::from_utf8_lossy(&missing.stderr);
    assert!(
        reason.contains("The file missing.pdf does not exist.") && reason.contains("not_found"),
        "{reason}"
    );
    let record = home.run(&["read", "--json", "missing.pdf"]);
    assert_eq!(record.status.code(), Some(1), "{record:?}");
    assert_eq!(line(&record)["error_code"], "not_found");
}

#[test]
fn an_address_that_is_no_ip_address_with_a_port_is_refused_with_an_example() {
    let home = CliHome::new();
    for address in ["localhost:50051", "50051", "127.0.0.1"] {
        for (command, option) in [("up", "--grpc"), ("healthcheck", "--http")] {
            let words = [option, "an IP address and a port, such as 127.0.0.1:50051"];
            check_refused(&home, &[command, option, address], &words);
        }
        let setting = format!("grpc.listen={address}");
        let checked = home.run(&["config", "check", "--set", &setting]);
        assert_eq!(checked.status.code(), Some(78), "{checked:?}");
        let errors = String::from_utf8_lossy(&checked.stderr);
        assert!(
            errors.contains("must be an IP address and a port"),
            "{errors}"
        );
    }
}

#[test]
fn content_of_a_system_behind_nats_is_not_looked_for_in_the_own_store() {
    let home = CliHome::new();
    let file = home.0.path().join("a.txt");
    std::fs::write(&file, "a").unwrap();
    let file = file.to_str().unwrap();
    let digest = "a".repeat(64);
    let digest = digest.as_str();
    let system = ["--nats", "nats://127.0.0.1:1"];
    for command in [
        &["artifact", "put", file][..],
        &["artifact", "get", digest],
        &["artifact", "url", digest],
    ] {
        check_refused(&home, &[command, &system[..]].concat(), &["--s3"]);
    }
    // The directory of the store is named.
    let state = home.0.path().join("state");
    let state = ["--state", state.to_str().unwrap()];
    let put = [&["artifact", "put", file][..], &system, &state].concat();
    assert!(home.run(&put).status.success());
}

#[test]
fn options_that_the_mcp_server_would_refuse_are_not_installed() {
    let home = CliHome::new();
    for (options, words) in [
        (&["--bogus"][..], &["after `--`", "--bogus"][..]),
        (&["--tools", "read,nothing"], &["after `--`", "nothing"]),
        (&["--confirm-send"], &["after `--`", "--allow-send"]),
        (&["--http", "127.0.0.1:7333"], &["after `--`", "--url"]),
        (&["--help"], &["after `--`", "print a help text"]),
        (&["install", "codex"], &["after `--`", "another command"]),
        (&["serve"], &["after `--`", "serve"]),
        (&["--sandbox", "foo"], &["after `--`", "KIND:NAME"]),
        (&["--to", "bar"], &["after `--`", "PLATFORM"]),
        (
            &["--allow-send", "--offer-chat", "bar"],
            &["after `--`", "PLATFORM"],
        ),
    ] {
        for command in [
            &["mcp", "install", "codex", "--"][..],
            &["mcp", "bundle", "out.mcpb", "--"],
        ] {
            check_refused(&home, &[command, options].concat(), words);
        }
    }
    for command in ["install", "bundle"] {
        let misplaced = ["mcp", command, "codex", "--tenant", "acme"];
        check_refused(&home, &misplaced, &["--tenant", "after `--`"]);
    }
    assert!(!home.0.path().join(".codex").exists());
    let valid = [
        "mcp",
        "install",
        "codex",
        "--",
        "--tools",
        "read,list",
        "--state",
        "/var/lib/dray",
    ];
    assert!(home.run(&valid).status.success());
    let missing = [
        "mcp",
        "install",
        "cursor",
        "--",
        "--root",
        "/nonexistent/papers",
    ];
    let installed = home.run(&missing);
    assert!(installed.status.success(), "{installed:?}");
    let notes = String::from_utf8_lossy(&installed.stderr);
    assert!(
        notes.contains("/nonexistent/papers is not a directory"),
        "{notes}"
    );
}

#[test]
fn relative_paths_of_an_installed_server_begin_where_it_was_installed() {
    let home = CliHome::new();
    let directory = home.0.path().join("work");
    std::fs::create_dir_all(directory.join("data")).unwrap();
    let options = ["--", "--root", "data", "--sandbox", "local:box"];
    let install = |client: &[&str]| {
        let arguments = [&["mcp", "install"][..], client, &options[..]].concat();
        let output = home
            .dray(&arguments)
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let written = |file: &str| {
        let text = std::fs::read_to_string(home.0.path().join(file)).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        config["mcpServers"]["drayage"]["args"].clone()
    };
    install(&["cursor"]);
    let directory = directory.canonicalize().unwrap();
    let root = directory.join("data");
    let sandbox = format!("local:{}", directory.join("box").display());
    assert_eq!(
        written(".cursor/mcp.json"),
        serde_json::json!(["mcp", "--root", root, "--sandbox", sandbox])
    );
    install(&["claude-code", "--scope", "project"]);
    assert_eq!(
        written("work/.mcp.json"),
        serde_json::json!(["mcp", "--root", "data", "--sandbox", "local:box"])
    );
    let bundle = ["mcp", "bundle", "out.mcpb", "--", "--root", "data"];
    check_refused(&home, &bundle, &["after `--`", "absolute paths"]);
}
