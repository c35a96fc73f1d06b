//! Tests of the permitted paths for files, and of the reports about them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::catalog::tests::{document, entry};
use crate::catalog::{FileCatalog, FileTurn};
use crate::generation::ContractGeneration;
use crate::model::FileType;
use crate::read::{FailureCode, ReadFailure};

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
    FetchPlan::new(&arguments, &catalog(), "/workspace", Some(100))
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
        let message = FetchPlan::new(&wrong, &catalog(), "/w", None).unwrap_err();
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
fn r_13_a_write_is_limited_confirmed_and_confined_after_links_are_resolved() {
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
    assert!(confirm_below("/real/workspace", "/real/workspace/up/p.png"));
    for outside in [
        "/etc/passwd",
        "/real/workspace",
        "/real/workspace2/a",
        "/real/workspace/../a",
        "/real/workspace/",
    ] {
        assert!(!confirm_below("/real/workspace", outside), "{outside}");
    }
}

#[test]
fn the_tool_keeps_the_name_of_its_argument() {
    let schema = fetch_schema(ContractGeneration::G1);
    let index = &schema["function"]["parameters"]["properties"]["file_index"];
    assert_eq!(index["description"], "File id from # Input Files");
    let old = fetch_schema(ContractGeneration::G0).to_string();
    assert!(old.contains("File index from available_files (e.g. \\\"1\\\")"));
    let lines = prompt_lines("/workspace/");
    assert_eq!(
        lines[2],
        "If the conversation includes # Input Files, use sandbox_fetch_user_file to copy files into the workspace by file id."
    );
    assert_eq!(lines[4], "Files are placed at: /workspace/<target_path>");
}

#[test]
fn r_4_files_of_a_turn_overwrite_neither_each_other_nor_older_ones() {
    let file = |id: &str, name: &str| entry(id, name, FileType::File, FileTurn::Current).file;
    let files = [
        file("a", "x.pdf"),
        file("b", "x.pdf"),
        file("c", "../../etc/passwd"),
    ];
    let plan = InjectionPlan::new(&files, "/workspace", ["x.pdf"], None);
    let paths: Vec<_> = plan.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/workspace/user_files/x-1.pdf",
            "/workspace/user_files/x-2.pdf",
            "/workspace/user_files/passwd"
        ]
    );
    assert_eq!(plan.files[0].sandbox_path, "user_files/x-1.pdf");
    assert_eq!(plan.directories, ["/workspace/user_files"]);
}

#[test]
fn r_13_one_bad_file_does_not_fail_the_turn() {
    let files: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| document(id).file)
        .collect();
    let plan = InjectionPlan::new(&files, "/w", [], Some(10));
    let outcomes = [
        InjectionResult::Written(10),
        InjectionResult::Failed(ReadFailure::of(FailureCode::Timeout)),
        InjectionResult::Written(11),
    ];
    let report = plan.report(&outcomes);
    assert_eq!(report.written.into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(report.missing.len(), 3);
    assert!(
        report.missing[0]
            .starts_with("b.pdf is not in the sandbox: Reading this file took too long")
    );
    assert!(report.missing[1].ends_with("(10 bytes)"));
}

#[test]
fn the_injection_plan_survives_json() {
    let plan = InjectionPlan::new(&[document("a").file], "/w", [], None);
    let value: Value = serde_json::to_value(&plan).unwrap();
    assert_eq!(
        serde_json::from_value::<InjectionPlan>(value).unwrap(),
        plan
    );
}

proptest! {
    #[test]
    fn r_13_every_file_of_a_turn_gets_a_path_below_the_directory(names in prop::collection::vec(".{0,40}|(\\.\\./){1,3}.{0,4}", 0..6)) {
        let files: Vec<_> = names.iter().enumerate().map(|(at, name)| {
            entry(&at.to_string(), name, FileType::File, FileTurn::Current).file
        }).collect();
        let plan = InjectionPlan::new(&files, "/w", [], None);
        prop_assert_eq!(plan.files.len(), files.len());
        for one in &plan.files {
            prop_assert_eq!(resolve_below("/w", &one.sandbox_path), Some(one.path.clone()));
            prop_assert!(confirm_below("/w/user_files", &one.path));
        }
    }

    #[test]
    fn r_13_no_target_leaves_the_directory(target in "[a./\\\\ ]{0,12}") {
        if let Some(path) = resolve_below("/w", &target) {
            prop_assert!(confirm_below("/w", &path), "{} {}", target, path);
        }
    }
}
