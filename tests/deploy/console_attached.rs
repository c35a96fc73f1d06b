//! Tests of `dray console --nats --s3` with the shipped permissions: `console` sees every page and changes nothing, and
//! `console-operator` can act.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use dray_testkit::eventually;

use super::distributed::DistributedSystem;
use super::mcp_attached::AttachedSystem;
use crate::support;

/// `dray console` with a login, until it is dropped.
pub(super) struct ConsoleProcess {
    process: Child,
    /// The pipe stays open, because a process that cannot write its messages ends.
    _messages: BufReader<ChildStderr>,
    base_url: String,
    cookies: PathBuf,
}

impl ConsoleProcess {
    pub(super) fn start(system: &DistributedSystem, user: &str, role: &str) -> Self {
        let arguments = ["console", "--listen", "127.0.0.1:0", "--role", role];
        let mut command = system.command_as(user, &arguments);
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(process.stderr.take().unwrap());
        let link = loop {
            let mut line = String::new();
            assert!(
                messages.read_line(&mut line).unwrap() > 0,
                "dray console ended"
            );
            if let Some(rest) = line.trim().strip_prefix("console: ") {
                break rest.split(' ').next().unwrap().to_owned();
            }
        };
        let (base_url, _) = link.split_once("/login").unwrap();
        let console = Self {
            process,
            _messages: messages,
            base_url: base_url.to_owned(),
            cookies: system.directory().join(format!("cookies-{user}")),
        };
        let path = link.strip_prefix(base_url).unwrap();
        assert!(console.open(path, &[]).contains("You are logged in"));
        console
    }

    /// Opens a page with the cookie of the login.
    fn open(&self, path: &str, options: &[&str]) -> String {
        let cookies = self.cookies.to_string_lossy().into_owned();
        let origin = format!("Origin: {}", self.base_url);
        let mut command = Command::new("curl");
        command
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--header",
                &origin,
            ])
            .args(["--cookie", &cookies, "--cookie-jar", &cookies])
            .args(options)
            .arg(format!("{}{path}", self.base_url));
        support::stdout(&mut command)
    }

    /// Opens a page until it contains this text.
    pub(super) async fn wait_for(&self, path: &str, text: &str) -> String {
        eventually(text, async || {
            let page = self.open(path, &[]);
            page.contains(text).then_some(page)
        })
        .await
    }

    /// The hidden field against cross-site request forgery in the forms of this login, as `NAME=VALUE`.
    fn form_token(&self) -> String {
        let page = self.open("/policy", &[]);
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        format!("csrf={}", rest.split('"').next().unwrap())
    }
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consoles_work_under_their_shipped_identities() {
    let fixture = AttachedSystem::start().await;
    let _server = fixture.serve();
    let viewer = ConsoleProcess::start(&fixture.system, "console", "look");
    // The server binds the sandbox to the session `mcp` when it has started.
    viewer.wait_for("/sandboxes?session=mcp", "notes.txt").await;
    let setup = viewer.open("/setup", &[]);
    assert_eq!(setup.matches(">yes<").count(), 4, "{setup}");
    let form = format!("{}&url=http://10.0.0.1/", viewer.form_token());
    let verdict = viewer.open("/policy", &["--data", &form]);
    assert!(verdict.contains("data-verdict=\"refused\""), "{verdict}");
    for (path, text) in [
        ("/live", "<h1>Live</h1>"),
        ("/deliveries", "<h1>Deliveries</h1>"),
        ("/letters", "No dead letters."),
        ("/operations/none", "No event of this operation"),
    ] {
        let page = viewer.open(path, &[]);
        assert!(page.contains(text), "{path}: {page}");
    }
    let operator = ConsoleProcess::start(&fixture.system, "console-operator", "act");
    let file = fixture.system.directory().join("own.txt");
    std::fs::write(&file, "by console").unwrap();
    let placed = operator.open(
        "/sandboxes/put",
        &[
            ["--form-string", &operator.form_token()],
            ["--form-string", "session=mcp"],
            ["--form", &format!("file=@{}", file.display())],
        ]
        .concat(),
    );
    assert!(placed.contains("is in the sandbox"), "{placed}");
    assert_eq!(fixture.refusals(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_name_a_service_that_was_killed_and_show_its_content_again_after_a_restart() {
    let mut fixture = AttachedSystem::start().await;
    let _server = fixture.serve();
    let viewer = ConsoleProcess::start(&fixture.system, "console", "look");
    let directory = "/sandboxes?session=mcp";
    viewer.wait_for(directory, "notes.txt").await;
    fixture.kill("sandbox-transfer");
    // The bus may notice the end of the connection after the first call.
    let reported = "The service sandbox-transfer does not respond";
    let page = viewer.wait_for(directory, reported).await;
    assert!(!page.contains("notes.txt"), "{page}");
    let setup = viewer.open("/setup", &[]);
    assert_eq!(setup.matches(">yes<").count(), 3, "{setup}");
    let deliveries = viewer.open("/deliveries", &[]);
    assert!(deliveries.contains("No deliveries."), "{deliveries}");
    fixture.restart("sandbox-transfer").await;
    let listed = async || {
        viewer
            .open(directory, &[])
            .contains("notes.txt")
            .then_some(())
    };
    eventually("the directory after the restart", listed).await;
}
