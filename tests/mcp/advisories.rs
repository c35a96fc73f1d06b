//! Tests of attacks from published advisories on other MCP servers: paths that leave the directory and the sandbox, in
//! every tool, resource and completion that takes a path. Nothing outside may be read, listed or written.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::McpFixture;
use crate::support::{self, mcp_process::McpProcess};

/// Content of the files that must stay out of reach; no name, path or message has it.
const SECRET_TEXT: &str = "f00dfeed-outside";

/// A server with all tools, whose directory and sandbox have links to files and directories outside.
struct AdvisoryFixture {
    files: McpFixture,
    server: McpProcess,
}

impl AdvisoryFixture {
    fn new() -> Self {
        let files = McpFixture::new();
        for secret in ["secret.txt", "data-old/secret.txt"] {
            std::fs::write(files.path(secret), SECRET_TEXT).unwrap();
        }
        for inside in ["data", "box"] {
            let inside = Path::new(&files.path(inside)).to_owned();
            std::fs::create_dir(inside.join("sub")).unwrap();
            let link = |target: &str, name: &str| symlink(target, inside.join(name)).unwrap();
            link("../secret.txt", "file-link");
            link("..", "directory-link");
            link("../planted.txt", "dangling-link");
        }
        let mut command = Command::new(support::dray());
        command
            .args(["mcp", "--allow-write", "--allow-send", "--root"])
            .arg(files.path("data"))
            .args(["--tickets", "127.0.0.1:0"])
            .args(["--sandbox", &format!("local:{}", files.path("box"))])
            .args(["--to", &format!("cli:{}", files.path("out"))])
            .env("HOME", files.path("home"));
        Self {
            server: McpProcess::start(command),
            files,
        }
    }

    /// Paths that lead to `name` beside the directory and the sandbox, as the advisories wrote them.
    fn escapes(&self, name: &str) -> Vec<String> {
        let outside = self.files.path(name);
        let root = self.files.path("data");
        vec![
            // mcp-python-interpreter, DesktopCommander (issue 403).
            format!("../{name}"),
            format!("./sub/../../{name}"),
            // excel-mcp-server: CVE-2026-40576; mobile-mcp: CVE-2026-33989.
            outside,
            // code-mcp: the prefix is compared before the path is normalized.
            format!("{root}/../{name}"),
            // server-filesystem: GHSA-hc55-p739-j48w, a sibling whose name begins like the root.
            format!("{root}-old/{name}"),
            // server-filesystem: GHSA-q66q-fx2p-7w4m; DesktopCommander (issue 219).
            format!("directory-link/{name}"),
            // The separator is encoded once and twice, or is that of another system.
            format!("..%2f{name}"),
            format!("%2e%2e/{name}"),
            format!("..%252f{name}"),
            format!("..\\{name}"),
            format!("....//{name}"),
            format!("notes.txt\0/../../{name}"),
        ]
    }

    /// Paths and URIs of the secret, in all forms that tools and resources accept.
    fn secret_locations(&self) -> Vec<String> {
        let secret = self.files.path("secret.txt");
        let mut locations = self.escapes("secret.txt");
        locations.push("file-link".to_owned());
        let paths = locations.clone();
        locations.extend(paths.iter().map(|path| format!("sandbox:{path}")));
        // Traversal in the URI of a resource: fastmcp, CVE-2026-32871.
        locations.extend(
            paths
                .iter()
                .map(|path| format!("dray://sandbox/mcp/{path}")),
        );
        let encoded = secret.replace('/', "%2f");
        locations.push(format!("dray://sandbox/mcp/{encoded}"));
        // markitdown-mcp converts every `file:` URI.
        locations.extend(
            ["file:", "file://", "FILE://", "file://localhost"]
                .map(|scheme| format!("{scheme}{secret}")),
        );
        locations
    }

    /// Sends a request that must fail, and checks that the response does not contain the secret.
    #[track_caller]
    fn check_refused(&mut self, method: &str, params: &Value) {
        let message = self.server.exchange(method, params);
        let is_refused = message.get("error").is_some() || message["result"]["isError"] == true;
        assert!(is_refused, "{method} {params}: {message}");
        assert!(
            !message.to_string().contains(SECRET_TEXT),
            "{method} {params}: {message}"
        );
    }

    #[track_caller]
    fn check_tool_refused(&mut self, tool: &str, arguments: &Value) {
        self.check_refused("tools/call", &json!({"name": tool, "arguments": arguments}));
    }

    /// Names and content of all files beside the directory, the sandbox and the home of the server.
    fn outside(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for directory in ["", "data-old"] {
            for entry in std::fs::read_dir(self.files.path(directory)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{directory}/{}", entry.file_name().display());
                // Directories have no text.
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                files.insert(name, text);
            }
        }
        files
    }
}

#[test]
fn no_path_of_an_advisory_is_read() {
    let mut fixture = AdvisoryFixture::new();
    for location in fixture.secret_locations() {
        for (tool, arguments) in [
            ("read", json!({"path": location})),
            ("get", json!({"from": location})),
            ("put", json!({"from": location})),
            // A list of paths, as in mcp-server-git: CVE-2026-27735.
            ("send_file", json!({"files": ["notes.txt", location]})),
            ("download_ticket", json!({"from": location})),
        ] {
            fixture.check_tool_refused(tool, &arguments);
        }
        fixture.check_refused("resources/read", &json!({"uri": location}));
    }
    // A delivery sends the permitted files and names the others; the secret is not among the sent files.
    for entry in std::fs::read_dir(fixture.files.path("out")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert_eq!(text, "The answer is 42.\n");
    }
}

#[test]
fn no_directory_of_an_advisory_is_listed_or_completed() {
    let mut fixture = AdvisoryFixture::new();
    let outside = fixture.files.directory.path().display().to_string();
    let directories = ["..", &outside, "directory-link", "/", "/etc", "..%2f"];
    for directory in directories {
        for location in [
            directory.to_owned(),
            format!("sandbox:{directory}"),
            format!("dray://sandbox/mcp/{directory}"),
        ] {
            fixture.check_tool_refused("list", &json!({"path": location}));
        }
        let completed = fixture.server.request(
            "completion/complete",
            &json!({
                "ref": {"type": "ref/resource", "uri": "dray://sandbox/{session}/{+path}"},
                "argument": {"name": "path", "value": format!("{directory}/")},
            }),
        );
        assert_eq!(completed["completion"]["values"], json!([]), "{directory}");
    }
}

#[test]
fn no_file_is_written_outside_by_the_paths_of_advisories() {
    let mut fixture = AdvisoryFixture::new();
    let before = fixture.outside();
    let mut targets = fixture.escapes("planted.txt");
    // DesktopCommander (issue 420): a link whose target does not exist yet.
    targets.push("dangling-link".to_owned());
    for target in &targets {
        let arguments = json!({"from": "notes.txt", "to": target});
        // An encoded name is a plain name below the root: a new file, or a file in a directory that does not exist.
        let message = fixture.server.exchange(
            "tools/call",
            &json!({"name": "get", "arguments": arguments}),
        );
        assert_eq!(fixture.outside(), before, "get to {target}: {message}");
        for arguments in [
            json!({"from": "notes.txt", "directory": target}),
            json!({"from": "notes.txt", "directory": format!("sandbox:{target}")}),
            json!({"from": "notes.txt", "name": target}),
        ] {
            let params = json!({"name": "put", "arguments": arguments});
            let message = fixture.server.exchange("tools/call", &params);
            assert_eq!(fixture.outside(), before, "put {arguments}: {message}");
        }
    }
    // The file arrives after the call that named its directory has returned.
    for directory in ["..", "directory-link", &fixture.files.path("data-old")] {
        let arguments = json!({"name": "planted.txt", "to": format!("sandbox:{directory}")});
        let message = fixture.server.exchange(
            "tools/call",
            &json!({"name": "upload_ticket", "arguments": arguments}),
        );
        if let Some(url) = message["result"]["structuredContent"]["url"].as_str() {
            let sent = Command::new("curl")
                .args([
                    "--silent",
                    "--show-error",
                    "--max-time",
                    "60",
                    "--upload-file",
                ])
                .args([&fixture.files.path("data/notes.txt"), url])
                .output();
            let sent = String::from_utf8(sent.unwrap().stdout).unwrap();
            assert!(sent.contains("destination-failed"), "{directory}: {sent}");
        }
        assert_eq!(fixture.outside(), before, "a ticket to {directory}");
    }
}

/// `DesktopCommander` (issue 419) allowed every path where its configuration could not be read.
#[test]
fn a_root_that_cannot_be_opened_ends_the_server() {
    let fixture = McpFixture::new();
    for root in ["missing", "data/notes.txt"] {
        let refused = Command::new(support::dray())
            .args(["mcp", "--root", &fixture.path(root)])
            .env("HOME", fixture.path("home"))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert!(!refused.status.success(), "{root}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{root}: {refused:?}");
    }
}
