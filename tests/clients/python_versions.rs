//! Tests `clients/python` on every version of Python that it supports and that this machine has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use dray_testkit::python;
use serde_json::Value;

use super::fixture::ClientFixture;
use super::python::client_directory;
use crate::support;
use crate::support::python_environment::{environment, required_packages};

/// Prints the newest interpreter of each version from 3.10 on, as an object from version to path: of `PATH`, and of
/// pyenv. The upper bound is the last version for which `grpcio` of the list has wheels.
const FIND_INTERPRETERS: &str = r#"
import glob, json, os, shutil, subprocess
found = glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))
found += filter(None, (shutil.which(name) for name in ["python3", *(f"python3.{minor}" for minor in range(10, 15))]))
versions = {}
for path in sorted(found):
    # The shims of pyenv fail for versions that are not selected, and Debian has versions without `ensurepip`.
    ask = "import ensurepip, sys, venv; print(*sys.version_info[:2], sys.executable)"
    asked = subprocess.run([path, "-c", ask], capture_output=True, text=True)
    if asked.returncode == 0:
        major, minor, executable = asked.stdout.split(maxsplit=2)
        if (3, 10) <= (int(major), int(minor)) <= (3, 14):
            versions[f"{major}.{minor}"] = executable.strip()
print(json.dumps(versions))
"#;

/// A call of the real service, and the version that made it.
const ONE_CALL: &str = r#"
import json, os, sys
from drayage import CallOptions, Dray, Tls
scenario = json.loads(os.environ["DRAYAGE_SCENARIO"])
tls = Tls(ca_certificate=scenario["ca"], server_name="localhost")
with Dray(scenario["target"], token=scenario["token"], tls=tls, options=CallOptions(timeout=120)) as dray:
    box = dray.sandbox("local:" + scenario["box"])
    version = "%d.%d" % sys.version_info[:2]
    placed = box.put(f"from {version}".encode(), name=f"{version}.txt")
    print(dray.read_bytes(box.get(placed.path)).decode())
"#;

/// Paths of interpreters by their versions.
fn interpreters() -> BTreeMap<String, PathBuf> {
    let found = support::stdout(Command::new("python3").args(["-c", FIND_INTERPRETERS]));
    serde_json::from_str(&found).unwrap()
}

/// The version of the interpreter with the packages of all tests.
fn main_version() -> String {
    let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
    support::stdout(Command::new(python::interpreter("grpc, nats")).args(["-c", ask]))
        .trim()
        .to_owned()
}

/// Runs the tests of the client without a system, and one call of the system in `scenario`.
fn check_version(version: &str, interpreter: &PathBuf, scenario: &Value) {
    let python = || {
        let mut command = Command::new(interpreter);
        command
            .env("PYTHONPATH", client_directory().join("src"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(client_directory());
        command
    };
    support::stdout(python().args(["-W", "error", "-m", "unittest"]).args([
        "tests/test_unit.py",
        "tests/test_hostile.py",
        "tests/test_contents.py",
        "tests/test_publisher.py",
        "tests/test_values.py",
        "tests/test_toolkit.py",
        "tests/test_transfers.py",
    ]));
    let printed = support::stdout(
        python()
            .args(["-W", "error", "-c", ONE_CALL])
            .env("DRAYAGE_SCENARIO", scenario.to_string()),
    );
    assert_eq!(printed.trim(), format!("from {version}"));
}

#[test]
fn the_python_client_works_on_every_supported_python_of_this_machine() {
    let fixture = ClientFixture::new();
    let (server, scenario) = fixture.start_secured();
    let packages = required_packages(&["grpcio", "protobuf", "nats-py"]);
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let main_version = main_version();
    let interpreters = interpreters();
    assert!(!interpreters.is_empty());
    let check = |version: &str, path: &PathBuf| {
        let interpreter = if version == main_version {
            python::interpreter("grpc, nats")
        } else {
            environment(&format!("python-{version}"), path, &packages)
        };
        check_version(version, &interpreter, &scenario);
    };
    let check = &check;
    thread::scope(|scope| {
        for (version, path) in &interpreters {
            scope.spawn(move || check(version, path));
        }
    });
    let versions: Vec<&str> = interpreters.keys().map(String::as_str).collect();
    println!("the Python client passed on {}", versions.join(", "));
    server.end();
}
