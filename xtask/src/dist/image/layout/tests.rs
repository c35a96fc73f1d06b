//! Tests of the documents of an image, without an engine.

use std::fs;
use std::path::Path;

use super::super::tests::commit;
use super::*;
use crate::step;

fn small_layers() -> [ImageLayer; 2] {
    ["one", "two"].map(|text| {
        let mut tree = FileTree::default();
        tree.add_file(text, 0o644, text);
        ImageLayer::compress("layer", &tree.to_tar(0), GzipLevel::Best).unwrap()
    })
}

/// Unpacks the file of an image, and returns a reader of its JSON files and the directory.
fn unpacked() -> (ReleaseImage, tempfile::TempDir) {
    let (image, bytes) = assemble_image(&small_layers(), "amd64", &commit(1_700_000_000)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    step::program_step("tar")
        .args(["--extract", "--directory"])
        .arg(directory.path())
        .output_for(bytes)
        .unwrap();
    (image, directory)
}

fn json_file(directory: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(directory.join(name)).unwrap()).unwrap()
}

/// The bytes of the blob of a descriptor, which must have its digest and size.
fn blob(directory: &Path, descriptor: &Value) -> Vec<u8> {
    let path = path_of(descriptor).unwrap();
    let bytes = fs::read(directory.join(&path)).unwrap();
    assert_eq!(path, blob_path(&digest::sha256(&bytes)));
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

#[test]
fn every_descriptor_names_its_blob_and_both_layouts_name_the_same_blobs() {
    let (image, directory) = unpacked();
    let directory = directory.path();
    let index = json_file(directory, "index.json");
    let descriptor = &index["manifests"][0];
    assert_eq!(descriptor["digest"], format!("sha256:{}", image.sha256));
    let manifest: Value = serde_json::from_slice(&blob(directory, descriptor)).unwrap();
    let config: Value = serde_json::from_slice(&blob(directory, &manifest["config"])).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    for (layer, identifier) in layers
        .iter()
        .zip(config["rootfs"]["diff_ids"].as_array().unwrap())
    {
        let tar = step::program_step("gzip").arg("--decompress");
        let tar = tar.output_for(blob(directory, layer)).unwrap();
        assert_eq!(*identifier, format!("sha256:{}", digest::sha256(&tar)));
    }
    assert_eq!(layers.len(), 2);
    assert_eq!(config["history"].as_array().unwrap().len(), 2);
    let saved = json_file(directory, "manifest.json");
    assert_eq!(saved[0]["Config"], path_of(&manifest["config"]).unwrap());
    let paths: Vec<_> = layers.iter().map(|layer| path_of(layer).unwrap()).collect();
    assert_eq!(saved[0]["Layers"], json!(paths));
    assert_eq!(saved[0]["RepoTags"], json!([image.name]));
    assert_eq!(
        json_file(directory, "oci-layout"),
        json!({"imageLayoutVersion": "1.0.0"})
    );
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.revision"], "c".repeat(40));
    assert_eq!(manifest["annotations"], *labels);
}

#[test]
fn the_configuration_is_that_of_the_dockerfile() {
    let text = include_str!("../../../../../deploy/Dockerfile").replace("\\\n", "");
    let (_, last_stage) = text.rsplit_once("\nFROM ").unwrap();
    let instruction = |name: &str| {
        let mut lines = last_stage.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    let list = |name: &str| serde_json::from_str::<Value>(&instruction(name)).unwrap();
    let labels = image_labels(&commit(0)).unwrap();
    let config = image_config(&small_layers(), "amd64", &labels).unwrap();
    let config = &config["config"];
    assert_eq!(config["User"], instruction("USER"));
    assert_eq!(config["WorkingDir"], instruction("WORKDIR"));
    assert_eq!(config["StopSignal"], instruction("STOPSIGNAL"));
    let variables = config["Env"].as_array().unwrap();
    assert_eq!(
        json!(variables[1..]),
        json!(instruction("ENV").split(' ').collect::<Vec<_>>())
    );
    assert_eq!(config["Entrypoint"], list("ENTRYPOINT"));
    assert_eq!(config["Cmd"], list("CMD"));
    let ports = config["ExposedPorts"].as_object().unwrap().keys();
    let exposed: Vec<_> = instruction("EXPOSE")
        .split(' ')
        .map(|port| format!("{port}/tcp"))
        .collect();
    assert!(ports.eq(&exposed), "{exposed:?}");
    let check = &config["Healthcheck"];
    let options = format!(
        "--interval={}s --timeout={}s --start-period={}s --retries={}",
        check["Interval"].as_u64().unwrap() / 1_000_000_000,
        check["Timeout"].as_u64().unwrap() / 1_000_000_000,
        check["StartPeriod"].as_u64().unwrap() / 1_000_000_000,
        check["Retries"]
    );
    let instruction = instruction("HEALTHCHECK");
    let (written, command) = instruction.split_once(" CMD ").unwrap();
    assert_eq!(written.trim(), options);
    let test = check["Test"].as_array().unwrap();
    let command: Value = serde_json::from_str(command).unwrap();
    assert_eq!(test[0], "CMD");
    assert_eq!(json!(test[1..]), command);
}
