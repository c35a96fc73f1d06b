//! `clients/python`: its unit tests, its types, its wheel, the examples of its README, and a story over TLS with a token.

use std::path::{Path, PathBuf};
use std::process::Command;

use dray_testkit::python;
use dray_testkit::tls::Authority;
use dray_types::Sha256Digest;
use serde_json::json;

use crate::support::{self, up::UpServer};

fn client_folder() -> PathBuf {
    support::root().join("clients/python")
}

/// A Python that finds the package in the tree and writes nothing beside it.
fn client_python() -> Command {
    let mut command = Command::new(python::interpreter("grpc, nats, hatchling, mypy"));
    command
        .env("PYTHONPATH", client_folder().join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(client_folder());
    command
}

/// A system on this machine, with a directory that is a sandbox and one that is a chat.
struct ClientFixture {
    folder: tempfile::TempDir,
}

impl ClientFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["drayage-box", "drayage-inbox"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.place(name).display().to_string()
    }

    /// Starts the system; the result has the address of its gRPC endpoint.
    fn start(&self, extra: &[String]) -> UpServer {
        let mut settings = vec![
            format!("sandbox-transfer.local.roots={}", self.text("drayage-box")),
            "platform-delivery.cli=true".to_owned(),
            "limits.free_disk_percent=0".to_owned(),
        ];
        settings.extend_from_slice(extra);
        let options: Vec<&str> = settings
            .iter()
            .flat_map(|setting| ["--set", setting.as_str()])
            .collect();
        UpServer::start(self.folder.path(), &options, "gRPC: ")
    }

    /// Gives the endpoint TLS and four callers; returns the settings.
    fn secure(&self, authority: &Authority) -> Vec<String> {
        let server = authority.issue(&["localhost"], false).unwrap();
        let identity = |name: &str, tenant: &str, scopes: &str| {
            let digest = Sha256Digest::of(format!("token-of-{name}").as_bytes()).to_hex();
            format!(
                "[[identity]]\nname = \"{name}\"\ntenant = \"{tenant}\"\ntoken_sha256 = [\"{digest}\"]\nscopes = [{scopes}]\n"
            )
        };
        let identities = [
            identity("all", "default", "\"*\""),
            identity("narrow", "default", "\"dray.v1.Files\""),
            identity("other", "other", "\"*\""),
        ];
        for (name, content) in [
            ("tls.crt", server.certificate.as_str()),
            ("tls.key", &server.private_key),
            ("ca.crt", &authority.pem()),
            ("identities.toml", &identities.concat()),
        ] {
            std::fs::write(self.place(name), content).unwrap();
        }
        vec![
            format!("grpc.certificate={}", self.text("tls.crt")),
            format!("grpc.private_key={}", self.text("tls.key")),
            format!("grpc.identities={}", self.text("identities.toml")),
            // So that the guard judges the addresses.
            "egress-fetcher.enabled=true".to_owned(),
        ]
    }
}

#[test]
fn unit_tests_of_the_python_client_pass() {
    support::stdout(client_python().args(["-W", "error", "-m", "unittest", "tests/test_unit.py"]));
}

#[test]
fn the_python_client_is_typed_strictly() {
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

#[test]
fn the_wheel_holds_the_contracts_and_no_native_code() {
    let folder = tempfile::tempdir().unwrap();
    // A copy, because the builder may write beside the sources.
    let sources = folder.path().join("sources");
    support::stdout(
        Command::new("cp")
            .arg("-r")
            .arg(client_folder())
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
            .arg(folder.path())
            .arg(&sources)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    );
    let wheel = folder.path().join("drayage-0.1.0-py3-none-any.whl");
    let listed = support::stdout(client_python().args(["-m", "zipfile", "-l"]).arg(&wheel));
    for file in [
        "drayage/py.typed",
        "drayage/v1/contracts.binpb",
        "drayage/v1/__init__.pyi",
    ] {
        assert!(listed.contains(file), "{file} in {listed}");
    }
    assert!(!listed.contains(".so"), "{listed}");
    // What was built works without the tree.
    let version = "import drayage.methods; print(drayage.v1.Fault(message='ok').message)";
    let printed = support::stdout(
        client_python()
            .args(["-c", version])
            .env("PYTHONPATH", &wheel)
            .current_dir(folder.path()),
    );
    assert_eq!(printed.trim(), "ok");
}

#[test]
fn a_program_does_everything_over_tls_with_a_token() {
    let fixture = ClientFixture::new();
    let authority = Authority::new().unwrap();
    let server = fixture.start(&fixture.secure(&authority));
    let story = json!({
        "target": server.url,
        "ca": fixture.text("ca.crt"),
        "token": "token-of-all",
        "narrow_token": "token-of-narrow",
        "other_token": "token-of-other",
        "box": fixture.text("drayage-box"),
        "inbox": fixture.text("drayage-inbox"),
    });
    support::stdout(
        client_python()
            .args(["-m", "unittest", "tests/end_to_end.py"])
            .env("DRAYAGE_STORY", story.to_string()),
    );
    server.end();
}

/// The blocks of a page that are marked to run.
fn examples(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    text.split("```python\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn every_example_of_the_readme_runs() {
    let fixture = ClientFixture::new();
    let server = fixture.start(&[]);
    let examples = examples(&client_folder().join("README.md"));
    assert!(examples.len() >= 5, "{examples:?}");
    let mut printed = String::new();
    for example in examples {
        let example = example
            .replace("127.0.0.1:50051", &server.url)
            .replace("/tmp", &fixture.folder.path().display().to_string());
        printed += &support::stdout(
            client_python()
                .args(["-c", &example])
                .current_dir(fixture.folder.path()),
        );
    }
    for line in [
        "file 18 ",
        "{'text': 'plain', 'count': 3}",
        "Parameter page is invalid",
        "apple",
        "True [('report.txt', 'copied')]",
        "denied ",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    server.end();
}
