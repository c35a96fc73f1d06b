//! Tests of directories as ZIPs over a real container engine, which sends a directory as a tar.

use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::PreviewProcess;

/// Files of the directory: more than a directory that is copied may have.
const FILE_COUNT: usize = 2500;

/// The number of entries that the end of a ZIP names (APPNOTE 6.3.10, section 4.3.16).
fn entry_count(zip: &[u8]) -> usize {
    let end = &zip[zip.len() - 22..];
    assert!(end.starts_with(b"PK\x05\x06"), "the archive is cut off");
    usize::from(u16::from_le_bytes([end[10], end[11]]))
}

#[test]
fn a_large_directory_is_sent_whole_and_one_above_the_limit_is_refused_before_its_first_byte() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions::default());
    container.sh(&format!(
        "mkdir -p /workspace/www; cd /workspace/www; i=0; \
         while [ $i -lt {FILE_COUNT} ]; do echo $i > file-$i; i=$((i+1)); done"
    ));
    let endpoint = format!(
        "sandbox-transfer.docker.endpoint=unix://{}",
        engine.socket().display()
    );
    let directory = format!("docker:{}:/workspace/www", container.name());
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("www.zip");
    let output = ["--output", file.to_str().unwrap()];
    let preview = PreviewProcess::start(&directory, &[&endpoint]);
    assert_eq!(preview.get_with("z", "", &output).status, 200);
    assert_eq!(entry_count(&std::fs::read(&file).unwrap()), FILE_COUNT);
    drop(preview);
    let limits = [
        endpoint.as_str(),
        "sandbox-transfer.preview.max_archive_entries=2499",
        "sandbox-transfer.max_tree_entries=100",
    ];
    let preview = PreviewProcess::start(&directory, &limits);
    let refused = preview.get("z", "");
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(refused.body.contains("more files or bytes"), "{refused:?}");
    drop(preview);
    let limits = [endpoint.as_str(), "sandbox-transfer.max_tree=4KiB"];
    let preview = PreviewProcess::start(&directory, &limits);
    let refused = preview.get("z", "");
    assert_eq!(refused.status, 413, "{refused:?}");
}
