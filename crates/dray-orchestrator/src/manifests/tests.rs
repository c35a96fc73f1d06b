//! Tests of manifests and of layers in directories.

use std::error::Error as _;

use dray_agent::layer::{EntryKind, LayerSet};
use dray_agent::manifest::ManifestSettings;

use super::*;

const VALID_MANIFEST: &str =
    r#"{"orchestrator": {"deployment": {"deployment_id": "m"}}, "contexts": [], "tool_sets": []}"#;

fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn open(directory: &tempfile::TempDir) -> ManifestDirectory {
    let reader = Arc::new(ManifestReader::new(ManifestSettings::default()));
    ManifestDirectory::open(Some(directory.path().to_owned()), reader).unwrap()
}

fn names(manifests: &ManifestDirectory) -> Vec<String> {
    manifests
        .list()
        .into_iter()
        .map(|listed| listed.name)
        .collect()
}

#[test]
fn bad_manifests_are_reported_and_the_others_stay() {
    let directory = directory(&[
        ("good.json", VALID_MANIFEST),
        ("broken.json", "{"),
        ("wrong.json", r#"{"contexts": []}"#),
        ("notes.txt", "x"),
        ("deep/inner.json", VALID_MANIFEST),
    ]);
    let manifests = open(&directory);
    assert_eq!(names(&manifests), ["good"]);
    assert!(manifests.get("good").unwrap().is_some());
    let broken = manifests.get("broken").unwrap_err();
    assert_eq!(
        (broken.status, broken.message.as_str()),
        (
            400,
            "The manifest 'broken' is refused: it is not JSON: EOF while parsing an object at line 1 column 1"
        )
    );
    let wrong = manifests.get("wrong").unwrap_err();
    assert!(wrong.message.contains("orchestrator"), "{}", wrong.message);
    assert!(wrong.message.contains("tool_sets"), "{}", wrong.message);
    assert!(manifests.get("none").unwrap().is_none());
}

#[test]
fn a_byte_order_mark_is_skipped_and_a_fault_of_json_is_named() {
    let marked = format!("\u{feff}{VALID_MANIFEST}");
    let directory = directory(&[
        ("marked.json", &marked),
        ("comma.json", "{\"contexts\": [],\n}"),
    ]);
    let manifests = open(&directory);
    assert!(manifests.get("marked").unwrap().is_some());
    let comma = manifests.get("comma").unwrap_err();
    assert_eq!(
        comma.message,
        "The manifest 'comma' is refused: it is not JSON: trailing comma at line 2 column 1"
    );
}

#[test]
fn a_changed_file_is_used_from_the_next_request_on() {
    let directory = directory(&[("a.json", VALID_MANIFEST)]);
    let manifests = open(&directory);
    let first = manifests.get("a").unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &manifests.get("a").unwrap().unwrap()));
    let changed = VALID_MANIFEST.replace("\"m\"", "\"longer\"");
    fs::write(directory.path().join("a.json"), changed).unwrap();
    let second = manifests.get("a").unwrap().unwrap();
    assert_eq!(second.orchestrator.deployment.deployment_id, "longer");
    fs::write(directory.path().join("b.json"), VALID_MANIFEST).unwrap();
    fs::remove_file(directory.path().join("a.json")).unwrap();
    assert_eq!(names(&manifests), ["b"]);
    assert!(manifests.get("a").unwrap().is_none());
}

#[test]
fn names_cannot_leave_the_directory() {
    let directory = directory(&[
        ("inner/a.json", VALID_MANIFEST),
        ("x.json", VALID_MANIFEST),
        (".hidden.json", VALID_MANIFEST),
    ]);
    let reader = Arc::new(ManifestReader::new(ManifestSettings::default()));
    let manifests = ManifestDirectory::open(Some(directory.path().join("inner")), reader).unwrap();
    let long = "a".repeat(300);
    for name in [
        "../x",
        "..",
        "",
        ".hidden",
        "a\0",
        "/etc/hosts",
        long.as_str(),
    ] {
        assert!(!manifests.has(name), "{name:?}");
    }
    assert!(manifests.has("a"));
}

#[test]
fn a_huge_manifest_is_refused_and_not_read() {
    let directory = directory(&[("a.json", "")]);
    let file = fs::File::create(directory.path().join("a.json")).unwrap();
    file.set_len(MAX_MANIFEST_BYTES + 10).unwrap();
    let refused = open(&directory).get("a").unwrap_err();
    assert_eq!(
        refused.message,
        "The manifest 'a' is refused: it is too large"
    );
}

#[test]
fn a_missing_directory_prevents_the_start() {
    let reader = Arc::new(ManifestReader::new(ManifestSettings::default()));
    let directory = directory(&[]);
    let missing = directory.path().join("none");
    assert!(ManifestDirectory::open(Some(missing.clone()), Arc::clone(&reader)).is_err());
    assert!(read_layers(LayerSet::default(), &[missing]).is_err());
    assert!(names(&ManifestDirectory::open(None, reader).unwrap()).is_empty());
}

#[test]
fn later_layers_override_earlier_ones_and_other_files_are_ignored() {
    let first = directory(&[
        ("prompt/p.md", "first"),
        ("tool/t.json", "{}"),
        ("skills/s/SKILL.md", "skill"),
        ("skills/s/notes.md", "no"),
        ("skills/old.md", "old"),
        ("README.md", "x"),
        ("tool/image.png", "x"),
    ]);
    let second = directory(&[("prompt/p.md", "second"), ("toolset/w.json", "{\"a\": 1}")]);
    let directories = [first.path().to_owned(), second.path().to_owned()];
    let layers = read_layers(LayerSet::default(), &directories).unwrap();
    assert_eq!(layers.text(EntryKind::Prompt, "p"), Some("second"));
    assert_eq!(layers.text(EntryKind::Skill, "s"), Some("skill"));
    assert_eq!(
        layers.names(EntryKind::Skill).collect::<Vec<_>>(),
        ["old", "s"]
    );
    assert_eq!(layers.body(EntryKind::ToolSet, "w").unwrap()["a"], 1);
    assert!(layers.body(EntryKind::Tool, "t").is_some());
}

#[test]
fn an_entry_that_is_not_json_stops_the_start_with_its_name() {
    let directory = directory(&[("tool/t.json", "{")]);
    let error = read_layers(LayerSet::default(), &[directory.path().to_owned()]).unwrap_err();
    assert_eq!(
        error.source().unwrap().to_string(),
        "tool/t.json is not JSON"
    );
}
