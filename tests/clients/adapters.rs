//! Tests the adapters for agent frameworks with the packages of the frameworks: their own suite where there is one,
//! scripted models, and the examples of `docs/agent-frameworks.md`.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};
use dray_testkit::{node, python};

use super::fixture::{ClientFixture, examples};
use super::python::{client_directory, client_python_with};
use super::typescript::compile;
use crate::support;
use crate::support::up::UpServer;

/// The modules that the tests import.
const PYTHON_MODULES: &str =
    "grpc, agents, agents.sandbox, deepagents, pydantic_ai, langchain_tests, pytest_asyncio";
/// The newest deepagents, with a later version of `wcmatch` than the other requirements allow.
const NEWEST_DEEPAGENTS: [&str; 2] = ["deepagents==0.7.32", "wcmatch==12.0.1"];
/// A model of the AI SDK that makes one call and ends with its result.
const AI_SDK_MODEL: &str = r#"
import { MockLanguageModelV4 } from "ai/test";
const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) => {
    const usage = { inputTokens: tokens, outputTokens: { total: 1, text: 1, reasoning: 0 } };
    const last = prompt.at(-1);
    return last?.role === "tool"
      ? { content: [{ type: "text", text: JSON.stringify(last) }], finishReason: { unified: "stop", raw: "" }, usage, warnings: [] }
      : {
          content: [{ type: "tool-call", toolCallId: "c", toolName: "list", input: "{}" }],
          finishReason: { unified: "tool-calls", raw: "" },
          usage,
          warnings: [],
        };
  },
});
"#;

/// The page with the examples.
fn page() -> PathBuf {
    support::root().join("docs/agent-frameworks.md")
}

/// Runs the suite of deepagents, without plugins that it does not use.
fn pytest() -> Command {
    let mut command = client_python_with(PYTHON_MODULES);
    command
        .args(["-m", "pytest", "-q", "-p", "pytest_asyncio.plugin"])
        .args(["-p", "no:cacheprovider", "-o", "asyncio_mode=auto"])
        .args(["-W", "ignore", "tests/deepagents_suite.py"])
        .env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1");
    command
}

/// A directory with the newest deepagents, for the front of the search path.
fn newest_deepagents() -> PathBuf {
    let directory = support::root().join("target/python-deepagents");
    let stamp = directory.join("installed");
    let package_list = NEWEST_DEEPAGENTS.join(" ");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == package_list) {
        return directory;
    }
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    support::stdout(
        Command::new(python::interpreter(PYTHON_MODULES))
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(&directory)
            .args(NEWEST_DEEPAGENTS)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    );
    // The file is written last, so that an interrupted installation has no such file.
    std::fs::write(&stamp, package_list).unwrap();
    directory
}

/// A running system, and the JSON of its addresses and credentials (`DRAYAGE_SCENARIO`).
fn start_for_suite(fixture: &ClientFixture) -> (UpServer, String) {
    let (server, mut scenario) = fixture.start_secured();
    let interpreter = python::interpreter(PYTHON_MODULES);
    scenario["python"] = interpreter.parent().unwrap().to_str().unwrap().into();
    scenario["root"] = scenario["box"].clone();
    scenario["sandbox"] = format!("local:{}", scenario["box"].as_str().unwrap()).into();
    (server, scenario.to_string())
}

/// A container with the programs of this machine, among them Python in `/opt/python`.
fn python_container(engine: &DockerEngine, fixture: &ClientFixture) -> Container {
    let printed = support::stdout(Command::new(python::interpreter(PYTHON_MODULES)).args([
        "-c",
        "import sys; print(sys.base_prefix, sys._base_executable)",
    ]));
    let (prefix, program) = printed.trim().split_once(' ').unwrap();
    let links = fixture.directory.path().join("python");
    std::fs::create_dir(&links).unwrap();
    for name in ["python", "python3"] {
        symlink(program, links.join(name)).unwrap();
    }
    // Programs look for their loader and libraries in the last two; not every machine has both.
    let libraries = ["/usr", "/lib", "/lib64"].into_iter();
    let libraries = libraries.filter(|directory| Path::new(directory).exists());
    let mut volumes: Vec<String> = libraries
        .map(|directory| format!("{directory}:{directory}:ro"))
        .collect();
    volumes.push(format!("{}:/opt/python:ro", links.display()));
    if prefix != "/usr" {
        volumes.push(format!("{prefix}:{prefix}:ro"));
    }
    engine.container(ContainerOptions {
        volumes,
        ..ContainerOptions::default()
    })
}

/// The part of the suite in which sandboxes differ: files in and out, and output of programs. The whole suite takes
/// minutes.
const CONTAINER_TESTS: &str =
    "TestStandardSuite and (upload or download_error or download_file or stdout)";

#[test]
fn the_deepagents_backend_passes_the_suite_of_langchain_in_a_container() {
    let engine = DockerEngine::shared();
    let fixture = ClientFixture::new();
    let container = python_container(&engine, &fixture);
    let endpoint = format!(
        "sandbox-transfer.docker.endpoint=unix://{}",
        engine.socket().display()
    );
    let (server, mut scenario) = fixture.start_secured_with(&[endpoint]);
    scenario["python"] = "/opt/python".into();
    scenario["root"] = "/tmp".into();
    scenario["sandbox"] = format!("docker:{}", container.name()).into();
    let printed = support::stdout(
        pytest()
            .args(["-k", CONTAINER_TESTS])
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    assert!(printed.contains("\n14 passed, 78 deselected"), "{printed}");
    server.end();
}

#[test]
fn the_deepagents_backend_passes_the_suite_of_langchain() {
    let fixture = ClientFixture::new();
    let (server, scenario) = start_for_suite(&fixture);
    let printed = support::stdout(pytest().env("DRAYAGE_SCENARIO", scenario));
    assert!(printed.contains("\n91 passed, 1 skipped"), "{printed}");
    server.end();
}

#[test]
fn the_deepagents_backend_works_with_the_newest_deepagents() {
    let fixture = ClientFixture::new();
    let (server, scenario) = start_for_suite(&fixture);
    // The suite tests versions before 0.7. Since 0.7 a write replaces the file, and a search returns absolute paths.
    let path = std::env::join_paths([newest_deepagents(), client_directory().join("src")]).unwrap();
    let printed = support::stdout(
        pytest()
            .args(["-k", "not TestStandardSuite or edit_single or read_basic"])
            .env("PYTHONPATH", path)
            .env("DRAYAGE_SCENARIO", scenario),
    );
    assert!(printed.contains("\n8 passed, 84 deselected"), "{printed}");
    server.end();
}

#[test]
fn tools_and_sandboxes_of_python_frameworks_work_with_scripted_models() {
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    support::stdout(
        client_python_with(PYTHON_MODULES)
            .args(["-m", "unittest", "tests/adapters.py"])
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    server.end();
}

#[test]
fn tools_for_the_ai_sdk_work_with_a_mock_model() {
    node::client_project();
    let package = support::root().join("target/node-client/package");
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    let mut tests = Command::new("node");
    tests
        .current_dir(&package)
        .args(["--test", "dist/test/ai_sdk.test.js"])
        .env("DRAYAGE_SCENARIO", scenario.to_string());
    node::run(&mut tests);
    server.end();
}

#[test]
fn every_example_for_agent_frameworks_runs_with_a_scripted_model() {
    let fixture = ClientFixture::new();
    let server = fixture.start(&[]);
    let mut printed = String::new();
    let blocks = examples(&page(), "python");
    assert_eq!(blocks.len(), 4);
    for example in blocks {
        printed += &run_python_example(&fixture.adapt(&example, &server));
    }
    let blocks = examples(&page(), "ts");
    assert_eq!(blocks.len(), 1);
    for example in blocks {
        let text = format!("{AI_SDK_MODEL}{}", fixture.adapt(&example, &server));
        printed += &run_typescript_example(fixture.directory.path(), &text);
    }
    for part in [
        "done by deepagents",
        "standard output:\nfrom the tools",
        "from the sandbox agent",
        "drayage-box/uploads\"}",
        "tool-result",
    ] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    server.end();
}

fn run_python_example(example: &str) -> String {
    let mut run = client_python_with(PYTHON_MODULES)
        .arg("tests/scripted_models.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = run.stdin.take().unwrap();
    input.write_all(example.as_bytes()).unwrap();
    drop(input);
    let output = run.wait_with_output().unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}\n{failed}");
    String::from_utf8(output.stdout).unwrap()
}

fn run_typescript_example(directory: &Path, example: &str) -> String {
    node::client_project();
    let package = support::root().join("target/node-client/package");
    let directory = directory.join("ai-sdk");
    std::fs::create_dir_all(directory.join("node_modules/@drayage")).unwrap();
    // The AI SDK of the test package: Node resolves what it imports from the real location behind the link.
    symlink(&package, directory.join("node_modules/@drayage/client")).unwrap();
    symlink(
        package.join("node_modules/ai"),
        directory.join("node_modules/ai"),
    )
    .unwrap();
    std::fs::write(directory.join("example.mts"), example).unwrap();
    // The type declarations of the AI SDK import a package without declarations.
    compile(&directory, &["--skipLibCheck"]);
    node::run(
        Command::new("node")
            .current_dir(&directory)
            .arg("example.mjs"),
    )
}
