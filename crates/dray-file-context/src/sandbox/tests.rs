//! Tests of the permitted paths for files, and of the reports about them.

use proptest::prelude::*;
use serde_json::json;

use super::path::resolve_below;
use super::*;
use crate::catalog::tests::{document, entry};
use crate::catalog::{FileCatalog, FileTurn};
use crate::model::FileType;

fn catalog() -> FileCatalog {
    let mut socket = document("w-0");
    socket.file.url = "WSS://h.example/a".into();
    let mut expired = document("e-0");
    expired.unavailable = true;
    FileCatalog::new(vec![
        socket,
        expired,
        entry("c-0", "p.png", FileType::Image, FileTurn::Current),
    ])
}

fn plan(index: &str, target: &str) -> Result<FetchPlan, String> {
    let arguments = json!({"file_index": index, "target_path": target});
    FetchPlan::new(&arguments, &catalog(), "/workspace", 100)
}

#[test]
fn targets_stay_below_the_working_directory() {
    let ok = [
        ("uploads/a.pdf", "/workspace/uploads/a.pdf"),
        ("/uploads/a.pdf", "/workspace/uploads/a.pdf"),
        ("a/../b.pdf", "/workspace/b.pdf"),
        ("./a//b", "/workspace/a/b"),
    ];
    for (target, expected) in ok {
        assert_eq!(plan("c-0", target).unwrap().path, expected);
    }
    for target in [
        "../x",
        "//etc/x",
        "a/../../x",
        "",
        ".",
        "/",
        "a/..",
        "a/",
        "a\0b",
        "a\nb",
    ] {
        assert_eq!(
            plan("c-0", target).unwrap_err(),
            format!("Failed: target_path \"{target}\" is invalid or attempts to escape workspace.")
        );
    }
}

#[test]
fn a_call_fails_at_its_first_fault() {
    for wrong in [
        json!({}),
        json!({"file_index": 1, "target_path": "a"}),
        json!("x"),
    ] {
        let message = FetchPlan::new(&wrong, &catalog(), "/w", 100).unwrap_err();
        assert_eq!(message, "file_index: expected a string");
    }
    assert_eq!(
        plan("none", "../x").unwrap_err(),
        "Failed: file index \"none\" not found in available_files"
    );
    assert!(plan("w-0", "../x").unwrap_err().contains("target_path"));
    assert_eq!(
        plan("w-0", "x").unwrap_err(),
        "Failed: ws/wss protocol is not allowed for file URL"
    );
    assert!(
        plan("e-0", "x")
            .unwrap_err()
            .starts_with("Failed to fetch user file: The link to this file has expired")
    );
    assert_eq!(plan("1", "x").unwrap().file.id, "c-0");
}

#[test]
fn outcomes_are_reported_in_the_words_of_the_contract() {
    let plan = plan("c-0", "up/p.png").unwrap();
    assert_eq!(
        plan.report(&WriteOutcome::Written(12)),
        "File written to sandbox: /workspace/up/p.png (name: p.png, size: 12 bytes)"
    );
    assert_eq!(
        plan.report(&WriteOutcome::Failed("no space".into())),
        "Failed to fetch user file: no space"
    );
    assert_eq!(
        plan.report(&WriteOutcome::Failed(String::new())),
        "Failed to fetch user file: Load file error"
    );
}

#[test]
fn r_13_a_write_is_limited_and_confined() {
    let plan = plan("c-0", "up/p.png").unwrap();
    assert_eq!(plan.max_bytes, 100);
    assert_eq!(
        plan.report(&WriteOutcome::Written(101)),
        "Failed to fetch user file: File exceeds maximum allowed size (100 bytes)"
    );
    assert_eq!(
        plan.report(&WriteOutcome::Escaped),
        "Failed: target_path \"up/p.png\" is invalid or attempts to escape workspace."
    );
}

proptest! {
    #[test]
    fn r_13_no_target_leaves_the_directory(target in "[a./\\\\ ]{0,12}") {
        if let Some(path) = resolve_below("/w", &target) {
            let below = path.strip_prefix("/w/").unwrap();
            prop_assert!(below.split('/').all(|segment| !matches!(segment, "" | "." | "..")), "{} {}", target, path);
        }
    }
}
