//! Tests with clients of `dray mcp` by other authors: the inspector and the SDK of the protocol's authors from
//! npm, `fastmcp`, and two frameworks for agents with a scripted model. A tokenizer counts the list of tools, and the
//! tool of the authors of `.mcpb` checks a bundle.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::process::Command;

use dray_testkit::python;
use serde_json::{Value, json};

use super::{HttpServer, McpFixture, TEST_TOKEN};
use crate::support::{self, mcp_process::McpProcess, node};

/// The packages, in the versions that the tests expect.
const NPM_PACKAGES: [&str; 4] = [
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/sdk@1.32.2",
    // The vocabularies are in the package.
    "gpt-tokenizer@4.0.0",
    "@anthropic-ai/mcpb@2.1.2",
];
/// Most tokens of the list of all tools.
const MAX_LIST_TOKENS: u64 = 3_000;

/// The directory whose `node_modules` have the packages.
fn node_directory() -> PathBuf {
    node::packages("node-mcp", &NPM_PACKAGES)
}

/// The output of the inspector for one request to a server on its standard streams.
fn inspect(fixture: &McpFixture, request: &[&str]) -> String {
    let mut inspector = Command::new("node");
    inspector
        .arg(node_directory().join("node_modules/.bin/mcp-inspector"))
        .arg("--cli")
        .arg(support::dray())
        .args(["mcp", "--root", &fixture.path("data")])
        .args(request)
        .env("HOME", fixture.path("home"));
    support::stdout(&mut inspector)
}

#[test]
fn the_inspector_finds_no_fault_in_tools_and_skills() {
    let fixture = McpFixture::new();
    // With `--strict`, the inspector fails when a schema is not portable between clients.
    let listed = inspect(&fixture, &["--method", "tools/list", "--strict"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["tools"][0]["name"], "read");
    let call = ["--method", "tools/call", "--tool-name", "read"];
    let read = inspect(
        &fixture,
        &[&call[..], &["--tool-arg", "path=notes.txt"]].concat(),
    );
    let read: Value = serde_json::from_str(&read).unwrap();
    let text = read["structuredContent"]["text"].as_str().unwrap();
    assert!(text.contains("The answer is 42."), "{text}");
    // The inspector verifies digests, sizes and the front matter of each skill.
    let skills = inspect(&fixture, &["--method", "skills/list", "--verify"]);
    let verified: Vec<Value> = skills
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(!verified.is_empty());
    for skill in verified {
        assert_eq!(skill["ok"], true, "{skill}");
    }
}

/// The commands of the first block of code below a heading of a page.
fn commands_of(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(support::root().join("docs").join(page)).unwrap();
    let (_, section) = text.split_once(heading).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_ten_minute_tutorial_of_the_page_works_as_written() {
    let fixture = McpFixture::new();
    let programs = tempfile::tempdir().unwrap();
    let inspector = node_directory().join("node_modules/.bin/mcp-inspector");
    let shim = programs.path().join("npx");
    // Replaces `npx --yes PACKAGE ARGUMENTS` by the package that is installed already.
    let script = format!(
        "#!/bin/sh\nshift 2\nexec node '{}' \"$@\"\n",
        inspector.display()
    );
    std::fs::write(&shim, script).unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(support::dray(), programs.path().join("dray")).unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-euc", &commands_of("mcp-server.md", "## Ten minutes")])
        .current_dir(fixture.path("data"))
        .env("HOME", fixture.path("home"))
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", programs.path().display()),
        );
    let output = support::stdout(&mut shell);
    assert!(output.contains("Ostermoor"), "{output}");
    for file in ["out/report.pdf", "box/uploads/report.pdf"] {
        let copy = PathBuf::from(fixture.path("home")).join(file);
        assert!(copy.exists(), "{file}: {output}");
    }
    let entry = std::fs::read_to_string(fixture.path("home/.claude.json")).unwrap();
    assert!(entry.contains("papers"), "{entry}");
}

/// Runs a script of this directory with the npm packages, and returns its report.
fn run_script(fixture: &McpFixture, name: &str, arguments: &[&str]) -> Value {
    let script = support::root().join("tests/mcp").join(name);
    // The copy is beside the packages, because Node.js looks for modules from the directory of the script.
    let copy = tempfile::Builder::new()
        .prefix("script-")
        .suffix(".mjs")
        .tempfile_in(node_directory())
        .unwrap();
    std::fs::copy(script, copy.path()).unwrap();
    let mut node = Command::new("node");
    node.arg(copy.path())
        .args(arguments)
        .env("HOME", fixture.path("home"));
    serde_json::from_str(&support::stdout(&mut node)).unwrap()
}

#[test]
fn the_list_of_all_tools_has_at_most_3000_tokens_of_two_vocabularies() {
    let fixture = McpFixture::new();
    let mut command = Command::new(support::dray());
    command
        .args(["mcp", "--root", &fixture.path("data")])
        .args(["--allow-write", "--allow-send"])
        .args(["--tickets", "127.0.0.1:0"])
        .env("HOME", fixture.path("home"));
    let listed = McpProcess::start(command).request("tools/list", &json!({}));
    let tools = &listed["tools"];
    assert_eq!(tools.as_array().map(Vec::len), Some(11), "{listed}");
    let file = fixture.path("tools.json");
    std::fs::write(&file, tools.to_string()).unwrap();
    let counts = run_script(&fixture, "count_tokens.mjs", &[&file]);
    for vocabulary in ["o200k_base", "cl100k_base"] {
        let tokens = counts[vocabulary].as_u64().unwrap();
        // Fewer tokens than tools would be a count of something else.
        assert!((500..=MAX_LIST_TOKENS).contains(&tokens), "{counts}");
    }
}

#[test]
fn the_tool_of_the_authors_of_bundles_accepts_a_bundle() {
    let fixture = McpFixture::new();
    let program = fixture.path("program");
    std::fs::write(&program, "#!/bin/sh\necho started\n").unwrap();
    let (bundle, unpacked) = (fixture.path("drayage.mcpb"), fixture.path("unpacked"));
    let mut build = Command::new(support::dray());
    build
        .args(["mcp", "bundle", &bundle, "--binary", &program])
        .env("HOME", fixture.path("home"));
    support::stdout(&mut build);
    let mcpb = |arguments: &[&str]| {
        let mut tool = Command::new("node");
        tool.arg(node_directory().join("node_modules/.bin/mcpb"))
            .args(arguments)
            .env("HOME", fixture.path("home"));
        support::stdout(&mut tool)
    };
    mcpb(&["info", &bundle]);
    mcpb(&["unpack", &bundle, &unpacked]);
    let manifest = format!("{unpacked}/manifest.json");
    let verdict = mcpb(&["validate", &manifest]);
    assert!(verdict.contains("passes"), "{verdict}");
    // The program that the manifest names is there, and its mode lets clients start it.
    let text = std::fs::read_to_string(&manifest).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let entry_point = manifest["server"]["entry_point"].as_str().unwrap();
    let mut start = Command::new(format!("{unpacked}/{entry_point}"));
    assert_eq!(support::stdout(&mut start), "started\n");
}

#[test]
fn the_typescript_sdk_reads_documents_over_stdio_and_http() {
    let fixture = McpFixture::new();
    let root = fixture.path("data");
    let dray = support::dray();
    let stdio = ["stdio", dray.to_str().unwrap(), "mcp", "--root", &root];
    let server = HttpServer::start(&fixture);
    for target in [&stdio[..], &["http", &server.url, TEST_TOKEN]] {
        check_reading(&run_script(&fixture, "sdk_client.mjs", target));
    }
}

/// Runs the client of a Python package with a server, and returns its report.
fn over_python(fixture: &McpFixture, package: &str, server: &[&str]) -> Value {
    let script = support::root().join("tests/python/mcp_judges.py");
    let mut client = Command::new(python::interpreter(package));
    client
        .args([script.to_str().unwrap(), package])
        .args(server)
        .env("HOME", fixture.path("home"));
    serde_json::from_str(&support::stdout(&mut client)).unwrap()
}

#[test]
fn fastmcp_reads_documents_over_stdio_and_http() {
    let fixture = McpFixture::new();
    let root = fixture.path("data");
    let dray = support::dray();
    let stdio = ["stdio", dray.to_str().unwrap(), "mcp", "--root", &root];
    let server = HttpServer::start(&fixture);
    for target in [&stdio[..], &["http", &server.url, TEST_TOKEN]] {
        check_reading(&over_python(&fixture, "fastmcp", target));
    }
}

/// Checks that a document arrives, that a refusal is a failed tool with advice, and that a handle is a resource.
fn check_reading(client_report: &Value) {
    assert_eq!(client_report["tools"][0], "read", "{client_report}");
    let notes = client_report["notes"].as_str().unwrap();
    assert!(notes.contains("The answer is 42."), "{client_report}");
    assert_eq!(client_report["outside"]["error"], true, "{client_report}");
    assert!(
        !client_report["outside"].to_string().contains("secret\\n"),
        "{client_report}"
    );
    assert_eq!(
        client_report["resource"], "The answer is 42.\n",
        "{client_report}"
    );
}

#[test]
fn agents_of_other_frameworks_call_the_tools() {
    let fixture = McpFixture::new();
    let root = fixture.path("data");
    let dray = support::dray();
    let stdio = ["stdio", dray.to_str().unwrap(), "mcp", "--root", &root];
    for package in ["agents", "pydantic_ai"] {
        let client_report = over_python(&fixture, package, &stdio);
        assert!(
            client_report["tools"].to_string().contains("\"read\""),
            "{client_report}"
        );
        let answer = client_report["answer"].as_str().unwrap();
        assert!(
            answer.contains("The answer is 42."),
            "{package}: {client_report}"
        );
    }
}
