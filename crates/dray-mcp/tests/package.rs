//! The bundle and `server.json`: content, digest, and equal bytes for equal input.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use dray_mcp::install::bundle::{BundleOptions, PackageError, build_bundle, describe_bundle};
use dray_mcp::install::registry::{PublishedBundle, RegistryOptions, SERVER_SCHEMA, server_json};
use dray_mcp::install::{OperatingSystem, SERVER_DESCRIPTION};
use serde_json::{Value, json};
use zip::ZipArchive;

fn bundle_options(directory: &Path) -> BundleOptions {
    let binary = directory.join("dray");
    fs::write(&binary, b"\x7fELF program").unwrap();
    BundleOptions {
        binary,
        system: OperatingSystem::Linux,
        version: "0.1.0".to_owned(),
        args: vec!["mcp".to_owned()],
        output: directory.join("drayage-linux.mcpb"),
    }
}

#[test]
fn a_bundle_contains_the_program_and_its_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = build_bundle(&bundle_options(directory.path())).unwrap();
    let mut archive = ZipArchive::new(File::open(&bundle.path).unwrap()).unwrap();
    let mut program = archive.by_name("server/dray").unwrap();
    assert_eq!(program.unix_mode().unwrap() & 0o777, 0o755);
    let mut content = Vec::new();
    program.read_to_end(&mut content).unwrap();
    assert_eq!(content, b"\x7fELF program");
    drop(program);
    let manifest: Value =
        serde_json::from_reader(archive.by_name("manifest.json").unwrap()).unwrap();
    assert_eq!(manifest["version"], "0.1.0");
    let config = &manifest["server"]["mcp_config"];
    assert_eq!(config["command"], "${__dirname}/server/dray");
    assert_eq!(config["args"], json!(["mcp"]));
    assert_eq!(manifest["compatibility"]["platforms"], json!(["linux"]));
}

#[test]
fn the_same_program_gives_the_same_digest() {
    let directory = tempfile::tempdir().unwrap();
    let options = bundle_options(directory.path());
    let first = build_bundle(&options).unwrap();
    let second = build_bundle(&options).unwrap();
    assert_eq!(first, second);
    assert_eq!(describe_bundle(&options.output).unwrap(), first);
    assert_eq!((first.sha256.len(), first.size > 0), (64, true));
}

#[test]
fn a_bundle_goes_through_a_link_and_replaces_no_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let options = bundle_options(directory.path());
    let link = directory.path().join("link.mcpb");
    std::os::unix::fs::symlink(&options.output, &link).unwrap();
    fs::write(&options.output, "old").unwrap();
    let through_link = BundleOptions {
        output: link.clone(),
        ..options.clone()
    };
    let written = build_bundle(&through_link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&options.output).unwrap().len(), written.size);
    let socket = directory.path().join("socket.mcpb");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let refused = build_bundle(&BundleOptions {
        output: socket.clone(),
        ..options
    });
    assert!(
        matches!(refused, Err(PackageError::Write { .. })),
        "{refused:?}"
    );
    let kind = fs::symlink_metadata(&socket).unwrap().file_type();
    assert!(std::os::unix::fs::FileTypeExt::is_socket(&kind));
}

#[test]
fn a_bundle_is_refused_without_a_version_a_program_or_its_ending() {
    let directory = tempfile::tempdir().unwrap();
    let options = bundle_options(directory.path());
    for version in ["", "latest", "^1.2.3", "1.2", "1.2.x", "1.2.3 4", "1.2.3.4"] {
        let version = version.to_owned();
        let refused = build_bundle(&BundleOptions {
            version,
            ..options.clone()
        });
        assert!(matches!(refused, Err(PackageError::InvalidOption(_))));
    }
    let binary = directory.path().join("missing");
    let refused = build_bundle(&BundleOptions {
        binary,
        ..options.clone()
    });
    assert!(matches!(refused, Err(PackageError::Read { .. })));
    let output = directory.path().join("drayage.zip");
    let refused = build_bundle(&BundleOptions { output, ..options });
    assert!(matches!(refused, Err(PackageError::InvalidOption(_))));
    assert!(!directory.path().join("drayage-linux.mcpb").exists());
}

#[test]
fn server_json_names_the_bundle_with_its_digest() {
    let directory = tempfile::tempdir().unwrap();
    let bundle = build_bundle(&bundle_options(directory.path())).unwrap();
    let url = "https://github.com/example/drayage/releases/download/v0.1.0/drayage-linux.mcpb";
    let options = RegistryOptions {
        name: "io.github.example/drayage".to_owned(),
        version: "0.1.0".to_owned(),
        repository: Some("https://github.com/example/drayage".to_owned()),
        bundles: vec![PublishedBundle {
            url: url.to_owned(),
            bundle: bundle.clone(),
        }],
    };
    let document = server_json(&options).unwrap();
    assert_eq!(document["$schema"], SERVER_SCHEMA);
    assert_eq!(document["repository"]["source"], "github");
    assert_eq!(
        document["packages"],
        json!([{
            "registryType": "mcpb",
            "identifier": url,
            "version": "0.1.0",
            "fileSha256": bundle.sha256,
            "transport": { "type": "stdio" },
        }])
    );
    for name in ["drayage", "a b/c", "io.github.example/", "a/b/c"] {
        let name = name.to_owned();
        let refused = server_json(&RegistryOptions {
            name,
            ..options.clone()
        });
        assert!(matches!(refused, Err(PackageError::InvalidOption(_))));
    }
    assert!(SERVER_DESCRIPTION.len() <= 100);
}
