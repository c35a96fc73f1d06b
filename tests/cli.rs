//! Tests of the command line as scripts use it: what it prints, to which stream, and with which exit code.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support;
mod artifacts;
mod asyncapi;
mod bench;
mod copies;
mod cut_listings;
mod doctor;
mod egress;
mod exec;
mod interruption;
mod json_log;
mod output;
mod permissions;
mod policy;
mod policy_bucket;
mod refusals;
mod stopped_copies;
mod terminal;
mod unreadable;

/// A home directory, with the state of every command that runs in it.
struct CliHome(tempfile::TempDir);

impl CliHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A command whose environment has `HOME` alone.
    fn dray(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(support::dray());
        command
            .env_clear()
            .env("HOME", self.0.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.dray(arguments).output().unwrap()
    }
}

/// The same command, started by another program, which replaces itself by it.
fn started_by(starter: &[&str], dray: &Command) -> Command {
    let mut command = Command::new(starter[0]);
    command
        .args(&starter[1..])
        .arg(dray.get_program())
        .args(dray.get_args())
        .env_clear()
        .stdin(Stdio::null());
    for (name, value) in dray.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command
}

/// Checks the exit code, and standard output without the white space at its end.
#[track_caller]
fn check(output: &Output, code: i32, stdout: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim_end(),
        stdout,
        "{output:?}"
    );
}

/// The only line of standard output, as JSON.
#[track_caller]
fn line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "{output:?}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_demo_shows_every_feature_and_names_the_next_command() {
    let home = CliHome::new();
    let demo = home.run(&["demo"]);
    assert!(demo.status.success(), "{demo:?}");
    let text = String::from_utf8_lossy(&demo.stdout);
    for line in text.lines() {
        assert!(
            line.chars().count() <= 100,
            "wider than 100 columns: {line}"
        );
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "iVBORw0KGgo",
        "Crane 4 is back at noon.",
        "read back from the store, length and digest as claimed",
        "3 redirects, to http://files.example.org/prices.csv",
        "resolves to a blocked address (loopback, private, link-local, or cloud-metadata)",
        "http://2130706433/ writes its host in an ambiguous form",
        "127.0.0.1 is loopback",
        "0 of them to an inside address",
        "dray.event.toolcall.v1.resolved.default",
        "both files have in the chat the SHA-256 that they have in the sandbox",
        "Couldn't deliver: .env, missing.txt.",
        "2 requests before, 2 after",
        "copied report.pdf",
        "[User uploaded: ports.csv (42 KB) at /",
        "bytes as dray://artifact/",
        "status 410: the ticket was used",
        "| Crane 4 | 2026-02-14 | 20.0% | 980.5 |",
        "Summary shown 17 chapters",
        "dray up",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
    let output = home.run(&["demo", "--json"]);
    let steps = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !steps.is_empty(), "{output:?}");
    for step in steps.lines() {
        assert!(serde_json::from_str::<Value>(step).is_ok(), "{step}");
    }
}

#[test]
fn files_of_a_directory_are_sent_into_the_current_directory() {
    let home = CliHome::new();
    let (sandbox, cwd) = (home.0.path().join("box"), home.0.path().join("here"));
    std::fs::create_dir(&sandbox).unwrap();
    std::fs::create_dir(&cwd).unwrap();
    std::fs::write(sandbox.join("a.txt"), "hello").unwrap();
    std::fs::write(sandbox.join(".env"), "TOKEN=x").unwrap();
    let send = |paths: &[&str]| {
        let mut arguments = vec!["send", "--json", "--from", "local:../box"];
        arguments.extend(paths);
        home.dray(&arguments).current_dir(&cwd).output().unwrap()
    };
    let sent = send(&["a.txt"]);
    assert!(sent.status.success(), "{sent:?}");
    assert_eq!(line(&sent)["files"][0]["state"], "copied");
    let partly = send(&["a.txt", ".env", "none"]);
    assert_eq!(partly.status.code(), Some(1), "{partly:?}");
    let kind = |file: usize| line(&partly)["files"][file]["error"]["kind"].clone();
    assert_eq!((kind(1), kind(2)), ("forbidden".into(), "not_found".into()));
    assert_eq!(copies::names(&cwd), ["a (2).txt", "a.txt"]);
    assert_eq!(std::fs::read(cwd.join("a.txt")).unwrap(), b"hello");
}

#[test]
fn a_file_is_put_and_fetched_without_a_store() {
    let home = CliHome::new();
    let (sandbox, cwd) = (home.0.path().join("box"), home.0.path().join("here"));
    std::fs::create_dir(&sandbox).unwrap();
    std::fs::create_dir(&cwd).unwrap();
    let run = |arguments: &[&str], input: Stdio| {
        let mut command = home.dray(arguments);
        command.current_dir(&cwd).stdin(input).output().unwrap()
    };
    std::fs::write(cwd.join("in"), "words").unwrap();
    let input = std::fs::File::open(cwd.join("in")).unwrap();
    let put = [
        "sandbox",
        "put",
        "-",
        "local:../box",
        "--json",
        "--name",
        "a.txt",
    ];
    let put = line(&run(&put, input.into()));
    assert_eq!(put["size"], 5);
    assert_eq!(put["existed"], false);
    assert_eq!(put["receipt"]["integrity"], "sha256_after");
    let received = ["sandbox", "get", "local:../box", "a.txt", "--json"];
    let received = line(&run(&received, Stdio::null()));
    assert_eq!(received["written_to"], "a.txt");
    assert_eq!(received["receipt"]["integrity"], "sha256");
    assert_eq!(std::fs::read(cwd.join("a.txt")).unwrap(), b"words");
    let printed = run(
        &["sandbox", "get", "local:../box", "a.txt", "-o", "-"],
        Stdio::null(),
    );
    check(&printed, 0, "words");
    // A device is written to and not replaced.
    let to_device = ["sandbox", "get", "local:../box", "a.txt", "-o", "/dev/null"];
    assert!(run(&to_device, Stdio::null()).status.success());
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    let nameless = run(&["sandbox", "put", "-", "local:../box"], Stdio::null());
    check(&nameless, 2, "");
    assert_eq!(copies::names(&cwd), ["a.txt", "in"]);
}

#[test]
fn an_invalid_sandbox_or_chat_is_a_usage_error() {
    let home = CliHome::new();
    for arguments in [
        &["sandbox", "ls", "nonsense"][..],
        &["send", "a.txt", "--from", "nonsense"],
        &["send", "a.txt", "--from", "docker:web", "--to", "nonsense"],
        &["send", "a.txt"],
    ] {
        let refused = home.run(arguments);
        check(&refused, 2, "");
        assert!(!refused.stderr.is_empty(), "{arguments:?}");
    }
    let missing = home.run(&["sandbox", "ls", "local:/nowhere/at/all", "--json"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(line(&missing)["fault"]["detail"], "sandbox_gone");
}

#[test]
fn references_in_arguments_are_resolved_and_other_values_stay_as_written() {
    let home = CliHome::new();
    let arguments =
        r#"{"z": "file:url::http://x/?a=1", "n": 12345678901234567890123, "a": [1.50, null]}"#;
    let expected = r#"{"z": "http://x/?a=1", "n": 12345678901234567890123, "a": [1.50, null]}"#;
    let mut command = home.dray(&["resolve", "--arguments", arguments]);
    check(&command.output().unwrap(), 0, expected);
    // The limit demands more space than any volume has. It applies to services, so a command ignores it.
    command.env("DRAY_LIMITS__FREE_DISK_PERCENT", "99");
    command.env("DRAY_LIMITS__FREE_DISK_ENOUGH", "1000000GiB");
    check(&command.output().unwrap(), 0, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_dial_are_loaded_with_the_key_from_the_environment_or_a_file() {
    let home = CliHome::new();
    let dial = dray_testkit::dial::DialCore::start().await.unwrap();
    dial.add_key("k-1", "mine");
    dial.put("mine/a.txt", "hello", "text/plain");
    let arguments = r#"{"a":"file:text::files/mine/a.txt"}"#;
    let command = |key: Option<&str>| {
        let mut command = home.dray(&["resolve", "--arguments", arguments]);
        command.env("DIAL_URL", dial.url());
        if let Some(key) = key {
            command.env("DIAL_API_KEY", key);
        }
        command
    };
    check(
        &command(Some("k-1")).output().unwrap(),
        0,
        r#"{"a":"hello"}"#,
    );
    assert_eq!(command(None).output().unwrap().status.code(), Some(1));
    let file = home.0.path().join("key");
    std::fs::write(&file, "k-1\n").unwrap();
    let from_file = command(None)
        .arg("--api-key-file")
        .arg(&file)
        .output()
        .unwrap();
    check(&from_file, 0, r#"{"a":"hello"}"#);
}

#[test]
fn a_rejected_argument_is_a_fault_on_standard_error() {
    let home = CliHome::new();
    let refused = home.run(&["resolve", "--arguments", r#"{"doc": "file:///etc/passwd"}"#]);
    check(&refused, 1, "");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("Parameter doc is invalid, try to call the tool again with fixed exception: Missing required file prefix (base64::, url::, text::)"), "{stderr}");
    let as_json = line(&home.run(&[
        "resolve",
        "--json",
        "--arguments",
        r#"{"doc": "file:///etc/passwd"}"#,
    ]));
    assert_eq!(as_json["fault"]["code"], "invalid_argument");
}

#[test]
fn fetching_is_off_until_the_operator_enables_it() {
    let home = CliHome::new();
    let refused = home.run(&["fetch", "https://files.example.org/a", "--json"]);
    assert_eq!(refused.status.code(), Some(1));
    let verdict = line(&refused);
    assert_eq!(verdict["verdict"], "deny");
    assert_eq!(verdict["code"], "disabled_by_admin");
    assert_eq!(
        verdict["message"],
        "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED)."
    );
}

#[test]
fn the_app_may_narrow_the_policy_within_the_operator_s_limits() {
    let home = CliHome::new();
    let policy = home.0.path().join("policy.json");
    let code = |text: &str, list: &str, url: &str| {
        std::fs::write(&policy, text).unwrap();
        let mut command = home.dray(&["fetch", url, "--json", "--app-policy"]);
        command
            .arg(&policy)
            .env("EXTERNAL_URL_FETCH_ENABLED", "true");
        command.env("EXTERNAL_URL_FETCH_DNS_SERVERS", "127.0.0.1:9");
        if !list.is_empty() {
            command.env("EXTERNAL_URL_FETCH_HOST_ALLOWLIST", list);
        }
        line(&command.output().unwrap())["code"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let url = "https://a.example.org/x";
    assert_eq!(code(r#"{"enabled": false}"#, "", url), "disabled_by_app");
    assert_eq!(
        code(r#"{"enabled": true, "host_allowlist": []}"#, "", url),
        "host_not_in_app_allowlist"
    );
    assert_eq!(
        code(
            r#"{"host_allowlist": ["a.example.org"]}"#,
            "*.example.com",
            url
        ),
        "host_not_in_admin_allowlist"
    );
    assert_eq!(
        code(
            r#"{"host_allowlist": ["*.example.com"]}"#,
            "*.example.org",
            url
        ),
        "host_not_in_app_allowlist"
    );
    assert_eq!(code("{}", "", "http://169.254.169.254/"), "ssrf_blocked");
}

#[test]
fn typing_errors_have_their_own_exit_codes() {
    let home = CliHome::new();
    assert_eq!(home.run(&["fetch"]).status.code(), Some(2));
    assert_eq!(home.run(&["dlq", "list"]).status.code(), Some(2));
    assert_eq!(
        home.run(&["--set", "nonsense", "config", "check"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        home.run(&["--set", "http.port=1", "config", "check"])
            .status
            .code(),
        Some(78)
    );
    assert_eq!(
        home.run(&["--nats", "nats://127.0.0.1:9", "dlq", "list"])
            .status
            .code(),
        Some(69)
    );
    // No server is asked with such an address.
    let with_password = ["--nats", "nats://me:pw@127.0.0.1:9", "dlq", "list"];
    assert_eq!(home.run(&with_password).status.code(), Some(78));
    let mut typo = home.dray(&["config", "check"]);
    typo.env("EXTERNAL_URL_FETCH_HOST_ALOWLIST", "a.example.org");
    let output = typo.output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("EXTERNAL_URL_FETCH_HOST_ALOWLIST"));
}

#[test]
fn configuration_shows_where_each_value_came_from_and_no_secret() {
    let home = CliHome::new();
    let mut show = home.dray(&["config", "show", "--set", "limits.calls=70"]);
    show.env("DRAY_BUS__NATS__PASSWORD", "hunter2")
        .env("EXTERNAL_URL_FETCH_MAX_REDIRECTS", "3");
    let output = show.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("hunter2"), "{text}");
    for expected in [
        "limits.calls = 70",
        "egress-fetcher.max_redirects = 3",
        "EXTERNAL_URL_FETCH_MAX_REDIRECTS",
        "default",
    ] {
        assert!(text.contains(expected), "{expected} is not in:\n{text}");
    }
}

#[test]
fn a_link_opens_the_file_while_the_system_runs_and_after_its_restart() {
    let home = CliHome::new();
    let file = home.0.path().join("note.txt");
    std::fs::write(&file, "a note").unwrap();
    let put = line(&home.run(&["artifact", "put", file.to_str().unwrap(), "--json"]));
    let sha256 = put["sha256"].as_str().unwrap();
    let system = RunningSystem::up(&home);
    let link = line(&home.run(&["artifact", "url", sha256, "--json", "--name", "note.txt"]));
    let url = link["url"].as_str().unwrap();
    assert_eq!(get(url), "a note");
    drop(system);
    let _again = RunningSystem::up(&home);
    assert_eq!(get(url), "a note");
}

#[test]
fn concurrent_one_shot_commands_do_not_disturb_each_other() {
    let home = CliHome::new();
    let spawn = |_| {
        let mut command = home.dray(&["fetch", "http://127.0.0.1/", "--json"]);
        command.env("EXTERNAL_URL_FETCH_ENABLED", "true");
        command.env("EXTERNAL_URL_FETCH_DNS_SERVERS", "127.0.0.1:9");
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = (0..4).map(spawn).collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert_eq!(line(&output)["code"], "ssrf_blocked", "{output:?}");
    }
}

/// A `dray up`, which is stopped in order when it is dropped.
struct RunningSystem(std::process::Child);

impl RunningSystem {
    fn up(home: &CliHome) -> Self {
        let mut command = home.dray(&[
            "up",
            "--json",
            "--http",
            "127.0.0.1:0",
            "--chat",
            "127.0.0.1:0",
        ]);
        // The machine may have little free disk space, and a system with less than its limit accepts no work.
        command.env("DRAY_LIMITS__FREE_DISK_PERCENT", "0");
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready_line = String::new();
        let mut stdout = std::io::BufReader::new(process.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut ready_line).unwrap();
        assert!(ready_line.contains("file-resolver"), "{ready_line}");
        Self(process)
    }
}

impl Drop for RunningSystem {
    fn drop(&mut self) {
        let kill_status = Command::new("kill")
            .args(["-TERM", &self.0.id().to_string()])
            .status();
        assert!(kill_status.unwrap().success());
        self.0.wait().unwrap();
    }
}

fn get(url: &str) -> String {
    support::stdout(Command::new("curl").args(["--silent", "--show-error", "--fail", url]))
}

#[test]
fn directories_and_several_documents_are_read_in_order_by_one_process() {
    let home = CliHome::new();
    let directory = home.0.path().join("papers");
    std::fs::create_dir_all(directory.join("more")).unwrap();
    for (name, text) in [
        ("b.html", "<p>two<p hidden>secret"),
        ("a.txt", "one"),
        ("more/c.md", "three"),
    ] {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let papers = directory.to_str().unwrap();
    let read = home.run(&["read", "--markdown", papers, "/missing.txt", papers]);
    assert_eq!(read.status.code(), Some(1), "{read:?}");
    let text = String::from_utf8_lossy(&read.stdout);
    let bodies: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("==> "))
        .collect();
    assert_eq!(bodies, ["one", "two", "three", "one", "two", "three"]);
    let stderr = String::from_utf8_lossy(&read.stderr);
    assert!(
        stderr.contains("/missing.txt") && stderr.contains("hidden content dropped: 6 characters"),
        "{stderr}"
    );
    let page = directory.join("b.html");
    let with_hidden = home.run(&["read", "--hidden", "--markdown", page.to_str().unwrap()]);
    check(&with_hidden, 0, "two\n\nsecret");
}
