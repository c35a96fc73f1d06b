//! Tests `clients/python`: unit tests, types, the wheel, the examples of the README, and a program that uses every
//! service over TLS with a token.

use std::path::PathBuf;
use std::process::Command;

use dray_testkit::python;
use serde_json::{Value, json};

use super::fixture::{ClientFixture, examples};
use crate::support;

pub(crate) fn client_directory() -> PathBuf {
    support::root().join("clients/python")
}

/// A Python that imports the package from the source tree and writes no bytecode into it.
fn client_python() -> Command {
    client_python_with("grpc, nats, hatchling, mypy")
}

/// Like [`client_python`], with other modules.
pub(crate) fn client_python_with(modules: &str) -> Command {
    let mut command = Command::new(python::interpreter(modules));
    command
        .env("PYTHONPATH", client_directory().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(client_directory());
    command
}

#[test]
fn unit_tests_of_the_python_client_pass() {
    let modules = [
        "tests/test_unit.py",
        "tests/test_hostile.py",
        "tests/test_outage.py",
        "tests/test_contents.py",
        "tests/test_publisher.py",
        "tests/test_values.py",
        "tests/test_toolkit.py",
        "tests/test_transfers.py",
    ];
    support::stdout(
        client_python()
            .args(["-W", "error", "-m", "unittest"])
            .args(modules),
    );
}

#[test]
fn the_python_client_passes_strict_type_checks() {
    let cache = tempfile::tempdir().unwrap();
    support::stdout(
        client_python()
            .args([
                "-m",
                "mypy",
                "--config-file",
                "pyproject.toml",
                "--cache-dir",
            ])
            .arg(cache.path()),
    );
}

/// The package and the examples of its README, as an editor with Pyright shows them.
#[test]
fn the_python_client_and_its_examples_pass_pyright() {
    let pyright = support::node::packages("node-pyright", &["pyright@1.1.414"]);
    let directory = tempfile::tempdir().unwrap();
    let readme_examples = examples(&client_directory().join("README.md"), "python");
    assert!(readme_examples.len() >= 5, "{readme_examples:?}");
    for (number, example) in readme_examples.iter().enumerate() {
        let name = format!("example_{number}.py");
        std::fs::write(directory.path().join(name), example).unwrap();
    }
    // A copy, because Pyright does not check the files behind a link.
    support::stdout(
        Command::new("cp")
            .arg("-r")
            .arg(client_directory().join("src/drayage"))
            .arg(directory.path()),
    );
    let settings = json!({"typeCheckingMode": "standard", "pythonVersion": "3.10"});
    let configuration = directory.path().join("pyrightconfig.json");
    std::fs::write(&configuration, settings.to_string()).unwrap();
    let report = support::stdout(
        Command::new("node")
            .arg(pyright.join("node_modules/pyright/index.js"))
            .args(["--outputjson", "--project"])
            .arg(&configuration)
            .arg("--pythonpath")
            .arg(python::interpreter("grpc, nats, hatchling, mypy")),
    );
    let report: Value = serde_json::from_str(&report).unwrap();
    // Without the examples and the modules of the package, Pyright would check nothing.
    let files = report["summary"]["filesAnalyzed"].as_u64().unwrap();
    assert!(files > 20, "{report}");
}

#[test]
fn the_wheel_contains_the_contracts_and_the_licence_and_no_native_code() {
    let directory = tempfile::tempdir().unwrap();
    // The builder may write into the source directory, so it gets a copy.
    let sources = directory.path().join("sources");
    support::stdout(
        Command::new("cp")
            .arg("-r")
            .arg(client_directory())
            .arg(&sources),
    );
    support::stdout(
        client_python()
            .args([
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
            ])
            .arg("--wheel-dir")
            .arg(directory.path())
            .arg(&sources)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    );
    let wheel = directory.path().join("drayage-0.1.0-py3-none-any.whl");
    let listed = support::stdout(client_python().args(["-m", "zipfile", "-l"]).arg(&wheel));
    for file in [
        "drayage/py.typed",
        "drayage/v1/contracts.binpb",
        "drayage/v1/__init__.pyi",
        "drayage/adapters/tools.json",
        "drayage-0.1.0.dist-info/licenses/LICENSE",
    ] {
        assert!(listed.contains(file), "{file} in {listed}");
    }
    assert!(!listed.contains(".so"), "{listed}");
    // A package contains only files of its own directory, so the text of the licence is a copy.
    let licence = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    assert_eq!(
        licence(client_directory().join("LICENSE")),
        licence(support::root().join("LICENSE"))
    );
    // The wheel must work without the source tree.
    let version = "import drayage.methods; print(drayage.v1.Fault(message='ok').message)";
    let printed = support::stdout(
        client_python()
            .args(["-c", version])
            .env("PYTHONPATH", &wheel)
            .current_dir(directory.path()),
    );
    assert_eq!(printed.trim(), "ok");
}

#[test]
fn a_program_uses_every_service_over_tls_with_a_token() {
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    support::stdout(
        client_python()
            .args(["-m", "unittest", "tests/end_to_end.py"])
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    server.end();
}

#[test]
fn every_example_of_the_readme_runs() {
    let fixture = ClientFixture::new();
    let server = fixture.start(&[]);
    let examples = examples(&client_directory().join("README.md"), "python");
    assert!(examples.len() >= 5, "{examples:?}");
    let mut printed = String::new();
    for example in examples {
        let example = fixture.adapt(&example, &server);
        printed += &support::stdout(
            client_python()
                .args(["-c", &example])
                .current_dir(fixture.directory.path()),
        );
    }
    for line in [
        "file 18 ",
        "{'text': 'plain', 'count': 3}",
        "Parameter page is invalid",
        "apple",
        "True [('report.txt', 'copied')]",
        "[('upload', 'complete')]\nrevoked",
        "denied ",
        "ready\n",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    server.end();
}
