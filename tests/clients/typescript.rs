//! `clients/typescript`: its unit tests, its types, its package in an empty project, the examples of its README, and a
//! scenario over TLS with a token.

use std::path::Path;
use std::process::Command;

use dray_testkit::node;

use super::fixture::{ClientFixture, examples};
use crate::support;

/// Node.js in the project that has the client installed.
fn client_node(project: &Path) -> Command {
    let mut command = Command::new("node");
    command.current_dir(project);
    command
}

#[test]
fn unit_tests_of_the_typescript_client_pass() {
    node::client_project();
    // The tests of single modules are not in the package.
    let package = support::root().join("target/node-client/package");
    node::run(client_node(&package).args([
        "--test",
        "dist/test/calls.test.js",
        "dist/test/hostile.test.js",
        "dist/test/outcomes.test.js",
        "dist/test/requests.test.js",
        "dist/test/toolkit.test.js",
        "dist/test/transfers.test.js",
    ]));
}

#[test]
fn the_package_contains_the_text_of_the_license() {
    let project = node::client_project();
    let packed = std::fs::read(project.join("node_modules/@drayage/client/LICENSE")).unwrap();
    let license = std::fs::read(support::root().join("LICENSE")).unwrap();
    assert_eq!(packed, license);
}

#[test]
fn a_typescript_program_does_everything_over_tls_with_a_token() {
    let project = node::client_project();
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    node::run(
        client_node(&project)
            .args(["--test", "test/scenario.test.js"])
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    server.end();
}

#[test]
fn every_example_of_the_typescript_readme_has_types_and_runs() {
    let project = node::client_project();
    let fixture = ClientFixture::new();
    let server = fixture.start(&[]);
    let page = support::root().join("clients/typescript/README.md");
    let directory = fixture.directory.path().join("examples");
    std::fs::create_dir(&directory).unwrap();
    // Imports of the examples are resolved from their own directory.
    std::os::unix::fs::symlink(project.join("node_modules"), directory.join("node_modules"))
        .unwrap();
    let runnable = examples(&page, "ts");
    let readme_examples = [&runnable[..], &examples(&page, "typescript")].concat();
    assert!(
        runnable.len() >= 5 && readme_examples.len() > runnable.len(),
        "{readme_examples:?}"
    );
    for (number, example) in readme_examples.iter().enumerate() {
        let text = fixture.adapt(example, &server);
        std::fs::write(directory.join(format!("example-{number}.mts")), text).unwrap();
    }
    compile(&directory, &[]);
    let mut printed = String::new();
    for number in 0..runnable.len() {
        printed += &node::run(client_node(&directory).arg(format!("example-{number}.mjs")));
    }
    for line in [
        "file 22 ",
        r#"{"text":"plain","count":3}"#,
        "Parameter page is invalid",
        "apple",
        "chunk of 20",
        "true [ 'report.txt copied' ]",
        "[ 'upload complete' ]\nrevoked",
        "denied ",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    server.end();
}

/// Compiles the examples with `--strict`, and checks the types of the installed package too.
pub(crate) fn compile(directory: &Path, options: &[&str]) {
    let package = support::root().join("target/node-client/package");
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "mts"));
    node::run(
        client_node(directory)
            .arg(package.join("node_modules/typescript/bin/tsc"))
            .arg("--strict")
            .args(options)
            .args(["--target", "es2022", "--module", "nodenext"])
            .args(["--types", "node", "--typeRoots"])
            .arg(package.join("node_modules/@types"))
            .args(files),
    );
}
