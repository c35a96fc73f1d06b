//! A system for the clients: a directory that is a sandbox, one that is a chat, and callers with tokens.

use std::path::{Path, PathBuf};

use dray_testkit::tls::Authority;
use dray_types::Sha256Digest;
use serde_json::{Value, json};

use crate::support::up::UpServer;

/// A system on this machine, with a directory that is a sandbox and one that is a chat.
pub(crate) struct ClientFixture {
    pub(crate) directory: tempfile::TempDir,
}

impl ClientFixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["drayage-box", "drayage-inbox"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.place(name).display().to_string()
    }

    /// Starts the system with further settings; the URL of the result is the address of its gRPC endpoint.
    pub(crate) fn start(&self, extra: &[String]) -> UpServer {
        let mut settings = vec![
            format!("sandbox-transfer.local.roots={}", self.text("drayage-box")),
            r#"sandbox-transfer.commands.allow=[{"tenants":["default"],"sandboxes":["local:*","docker:*"]}]"#
                .to_owned(),
            "platform-delivery.cli=true".to_owned(),
            "limits.free_disk_percent=0".to_owned(),
        ];
        settings.extend_from_slice(extra);
        let settings = settings
            .iter()
            .flat_map(|setting| ["--set", setting.as_str()]);
        let options: Vec<&str> = settings.chain(["--tickets", "127.0.0.1:0"]).collect();
        UpServer::start(self.directory.path(), &options, "gRPC: ")
    }

    /// Starts the system with TLS and callers. Also returns the JSON that programs of the clients get in
    /// `DRAYAGE_SCENARIO`: addresses, tokens and directories.
    pub(crate) fn start_secured(&self) -> (UpServer, Value) {
        self.start_secured_with(&[])
    }

    /// Like [`Self::start_secured`], with more settings.
    pub(crate) fn start_secured_with(&self, extra: &[String]) -> (UpServer, Value) {
        let server = self.start(&[&self.secure(&[]), extra].concat());
        let scenario = self.scenario(&server);
        (server, scenario)
    }

    /// Like [`Self::start_secured`], with further `[[identity]]` entries.
    pub(crate) fn start_secured_for(&self, identities: &[String]) -> (UpServer, Value) {
        let server = self.start(&self.secure(identities));
        let scenario = self.scenario(&server);
        (server, scenario)
    }

    fn scenario(&self, server: &UpServer) -> Value {
        json!({
            "target": server.url,
            "ca": self.text("ca.crt"),
            "token": "token-of-all",
            "narrow_token": "token-of-narrow",
            "other_token": "token-of-other",
            "box": self.text("drayage-box"),
            "inbox": self.text("drayage-inbox"),
        })
    }

    /// An example of a README, with the addresses of this system.
    pub(crate) fn adapt(&self, example: &str, server: &UpServer) -> String {
        example
            .replace("127.0.0.1:50051", &server.url)
            .replace("/tmp", &self.directory.path().display().to_string())
    }

    /// Gives the endpoint TLS, three callers and further identities; returns the settings.
    fn secure(&self, further: &[String]) -> Vec<String> {
        let authority = Authority::new().unwrap();
        let server = authority.issue(&["localhost"], false).unwrap();
        let identities = [
            identity("all", "default", "\"*\""),
            identity("narrow", "default", "\"dray.v1.Files\""),
            identity("other", "other", "\"*\""),
        ];
        for (name, content) in [
            ("tls.crt", server.certificate.as_str()),
            ("tls.key", &server.private_key),
            ("ca.crt", &authority.pem()),
            (
                "identities.toml",
                &(identities.concat() + &further.concat()),
            ),
        ] {
            std::fs::write(self.place(name), content).unwrap();
        }
        vec![
            format!("grpc.certificate={}", self.text("tls.crt")),
            format!("grpc.private_key={}", self.text("tls.key")),
            format!("grpc.identities={}", self.text("identities.toml")),
            // A disabled fetcher refuses requests before the guard checks their addresses.
            "egress-fetcher.enabled=true".to_owned(),
        ]
    }
}

/// The entry of a caller with the token `token-of-NAME` and these scopes, in quotes and separated by commas.
pub(crate) fn identity(name: &str, tenant: &str, scopes: &str) -> String {
    let digest = Sha256Digest::of(format!("token-of-{name}").as_bytes()).to_hex();
    format!(
        "[[identity]]\nname = \"{name}\"\ntenant = \"{tenant}\"\ntoken_sha256 = [\"{digest}\"]\nscopes = [{scopes}]\n"
    )
}

/// The fenced blocks of a page in this language.
pub(crate) fn examples(page: &Path, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    text.split(&format!("```{language}\n"))
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}
