//! Tools over the files of DIAL.

use std::sync::Arc;

use dray_agent::manifest::feature::{DialFiles, Features};
use dray_dial::fake::FakeDial;
use dray_dial::{DialClient, DialOptions};
use dray_testkit::dial::{DialCore, InjectedFault};
use dray_tool::ToolFailure;
use serde_json::{Value, json};

use super::fixture::{FilesFixture, lock, run};
use crate::dial_files::offered_tools;
use crate::{TurnFiles, TurnStart};

const HOME_FOLDER: &str = "files/b/appdata/app/";

async fn fixture(enabled: Option<Vec<&str>>) -> (FilesFixture, Arc<FakeDial>, Arc<TurnFiles>) {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    let features = Features {
        dial_files: Some(DialFiles {
            enabled_tools: enabled.map(|names| names.into_iter().map(str::to_owned).collect()),
            ..DialFiles::default()
        }),
        ..Features::default()
    };
    let files = fixture.opened(TurnStart {
        features,
        ..TurnStart::default()
    });
    (fixture, drive, files)
}

async fn call(files: &Arc<TurnFiles>, name: &str, arguments: Value) -> Result<String, ToolFailure> {
    let name = format!("internal_file_{name}");
    let offered = offered_tools(files);
    let tool = offered
        .iter()
        .find(|tool| tool.declaration().name == name)
        .unwrap();
    run(tool, files, arguments)
        .await
        .map(|output| output.content)
}

#[tokio::test]
async fn nine_tools_are_offered_or_those_that_the_manifest_names() {
    let (fixture, _, files) = fixture(None).await;
    assert_eq!(offered_tools(&files).len(), 9);
    assert!(
        offered_tools(&fixture.turn()).is_empty(),
        "not without the feature"
    );
    let (_, _, files) = self::fixture(Some(vec!["internal_file_list", "edit"])).await;
    let names: Vec<_> = offered_tools(&files)
        .iter()
        .map(|tool| tool.declaration().name.clone())
        .collect();
    assert_eq!(names, ["internal_file_list", "internal_file_edit"]);
}

#[tokio::test]
async fn a_file_is_written_listed_read_searched_and_found() {
    let (_world, drive, files) = fixture(None).await;
    assert_eq!(
        call(&files, "list", json!({})).await.unwrap(),
        "The folder is empty."
    );
    let arguments = json!({"path": "notes/a b.txt", "content": "one\ntwo\nThree\n"});
    assert_eq!(
        call(&files, "write", arguments).await.unwrap(),
        "notes/a b.txt is written (14 B)."
    );
    assert_eq!(
        lock(&drive.files)[&format!("{HOME_FOLDER}notes/a%20b.txt")],
        "one\ntwo\nThree\n"
    );
    assert_eq!(call(&files, "list", json!({})).await.unwrap(), "notes/");
    assert_eq!(
        call(&files, "list", json!({"path": "notes"}))
            .await
            .unwrap(),
        "notes/a b.txt (14 B)"
    );
    let lines = call(
        &files,
        "read_lines",
        json!({"path": "notes/a b.txt", "start": "2", "count": 1}),
    )
    .await;
    assert_eq!(
        lines.unwrap(),
        "2\ttwo\nThe file has 3 lines; continue with start 3.\n"
    );
    let hits = call(&files, "search", json!({"query": "THREE"}))
        .await
        .unwrap();
    assert_eq!(hits, "notes/a b.txt:3: Three");
    let found = call(&files, "find", json!({"pattern": "*.TXT"}))
        .await
        .unwrap();
    assert_eq!(found, "notes/a b.txt (14 B)");
    assert_eq!(
        call(&files, "find", json!({"pattern": "*.pdf"}))
            .await
            .unwrap(),
        "Nothing was found."
    );
}

#[tokio::test]
async fn nothing_is_overwritten_unless_it_is_asked_for() {
    let (_world, drive, files) = fixture(None).await;
    let write = |overwrite: bool| json!({"path": "a.txt", "content": "x", "overwrite": overwrite});
    call(&files, "write", write(false)).await.unwrap();
    let failure = call(&files, "write", write(false)).await.unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, .. } if name == "path"),
        "{failure}"
    );
    call(&files, "write", write(true)).await.unwrap();
    call(
        &files,
        "copy",
        json!({"source": "a.txt", "target": "b.txt"}),
    )
    .await
    .unwrap();
    let failure = call(
        &files,
        "move",
        json!({"source": "a.txt", "target": "b.txt"}),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, .. } if name == "target"),
        "{failure}"
    );
    assert_eq!(
        lock(&drive.files).len(),
        2,
        "a move that was refused deletes nothing"
    );
    let moved = call(
        &files,
        "move",
        json!({"source": "a.txt", "target": "d/c.txt"}),
    )
    .await
    .unwrap();
    assert_eq!(moved, "a.txt is moved to d/c.txt.");
    assert_eq!(
        call(&files, "delete", json!({"path": "b.txt"}))
            .await
            .unwrap(),
        "b.txt is deleted."
    );
    let leftover_files: Vec<_> = lock(&drive.files).keys().cloned().collect();
    assert_eq!(leftover_files, [format!("{HOME_FOLDER}d/c.txt")]);
}

#[tokio::test]
async fn a_file_that_changes_during_its_move_is_kept() {
    let (_world, drive, files) = fixture(None).await;
    let source = format!("{HOME_FOLDER}a.txt");
    lock(&drive.files).insert(source.clone(), "old".into());
    lock(&drive.changes_after_download).insert(source.clone(), "new".into());
    let arguments = json!({"source": "a.txt", "target": "b.txt"});
    let failure = call(&files, "move", arguments).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "a.txt was copied to b.txt, but it has changed since then and was kept."
    );
    let stored = lock(&drive.files);
    assert_eq!(stored[&source], "new");
    assert_eq!(stored[&format!("{HOME_FOLDER}b.txt")], "old");
}

#[tokio::test]
async fn an_edit_replaces_a_text_that_occurs_once_or_all_occurrences() {
    let (_world, drive, files) = fixture(None).await;
    lock(&drive.files).insert(format!("{HOME_FOLDER}a.txt"), "a b a".into());
    let edit = |old: &str, all: bool| json!({"path": "a.txt", "old_text": old, "new_text": "c", "replace_all": all});
    let failure = call(&files, "edit", edit("x", false)).await.unwrap_err();
    assert!(
        failure
            .to_string()
            .ends_with("It does not occur in the file."),
        "{failure}"
    );
    let failure = call(&files, "edit", edit("a", false)).await.unwrap_err();
    assert!(
        failure.to_string().contains("It occurs 2 times."),
        "{failure}"
    );
    call(&files, "edit", edit("b", false)).await.unwrap();
    assert_eq!(
        call(&files, "edit", edit("a", true)).await.unwrap(),
        "a.txt is edited: 2 replaced."
    );
    assert_eq!(lock(&drive.files)[&format!("{HOME_FOLDER}a.txt")], "c c c");
}

#[tokio::test]
async fn no_tool_leaves_the_folder_of_the_app() {
    let (_world, drive, files) = fixture(None).await;
    lock(&drive.files).insert("files/b/secret.txt".to_owned(), "s".into());
    for (name, arguments) in [
        ("read_lines", json!({"path": "../../secret.txt"})),
        ("list", json!({"path": "../.."})),
        ("delete", json!({"path": "/files/b/secret.txt"})),
        (
            "copy",
            json!({"source": "%2e%2e/secret.txt", "target": "a"}),
        ),
        ("write", json!({"path": "a/../../x", "content": ""})),
    ] {
        let failure = call(&files, name, arguments).await.unwrap_err();
        assert!(
            matches!(failure, ToolFailure::Parameter { .. }),
            "{name}: {failure}"
        );
    }
    assert_eq!(lock(&drive.files).len(), 1);
}

#[tokio::test]
async fn binary_files_are_not_read_as_lines() {
    let (_world, drive, files) = fixture(None).await;
    lock(&drive.files).insert(format!("{HOME_FOLDER}a.bin"), vec![0xff, 0].into());
    let failure = call(&files, "read_lines", json!({"path": "a.bin"}))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("It is not a text."),
        "{failure}"
    );
    let failure = call(&files, "read_lines", json!({"path": "none"}))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("The file does not exist"),
        "{failure}"
    );
}

#[tokio::test]
async fn a_file_that_is_longer_than_its_metadata_state_is_too_large() {
    let core = DialCore::start().await.unwrap();
    core.add_key("key", "b");
    core.put("b/a.txt", vec![b'a'; (4 << 20) + 1], "text/plain");
    let mut fixture = FilesFixture::new().await;
    let client = DialClient::new(DialOptions::new(core.url(), "v")).unwrap();
    fixture.services = fixture.services.clone().with_dial(Arc::new(client));
    let files = fixture.opened(TurnStart {
        features: Features {
            dial_files: Some(DialFiles::default()),
            ..Features::default()
        },
        ..TurnStart::default()
    });
    // The length comes before the content, or not at all.
    for fault in [
        InjectedFault::WrongMetadataLength(10),
        InjectedFault::NoLength,
    ] {
        core.inject_file_fault("b/a.txt", fault.clone());
        let failure = call(&files, "read_lines", json!({"path": "a.txt"}))
            .await
            .unwrap_err();
        let Some(text) = failure
            .to_string()
            .strip_prefix("Parameter path is invalid: ")
            .map(str::to_owned)
        else {
            panic!("{fault:?} {failure}");
        };
        assert_eq!(
            text, "File size 4194305 exceeds the limit of 4194304 bytes.",
            "{fault:?}"
        );
    }
}

#[tokio::test]
async fn a_line_that_is_cut_says_how_much_is_missing() {
    let (_world, drive, files) = fixture(None).await;
    let long = "x".repeat(60 * 1024);
    let content = format!("{long}\nlast\n");
    lock(&drive.files).insert(format!("{HOME_FOLDER}a.json"), content.into());
    let lines = call(&files, "read_lines", json!({"path": "a.json"})).await;
    let lines = lines.unwrap();
    let end = "\nLine 1 of 2 has 12288 more bytes; continue with start 1 and start_byte 49153.\n";
    assert!(lines.ends_with(end), "{:?}", lines.get(48 * 1024..));
    let arguments = json!({"path": "a.json", "start": 1, "start_byte": 49153});
    let rest = call(&files, "read_lines", arguments).await.unwrap();
    assert_eq!(rest, format!("1\t{}\n2\tlast\n", &long[49152..]));
    let arguments = json!({"path": "a.json", "start": 2, "start_byte": 9});
    let beyond = call(&files, "read_lines", arguments).await.unwrap();
    assert_eq!(beyond, "Line 2 has 4 bytes.\n");
}

#[tokio::test]
async fn a_search_counts_the_files_that_it_did_not_read() {
    let (_world, drive, files) = fixture(None).await;
    for (name, content) in [
        ("a.txt", vec![b'x'; (4 << 20) + 1]),
        ("b.txt", vec![0xE9, b'x']),
        ("c.txt", b"a needle".to_vec()),
    ] {
        lock(&drive.files).insert(format!("{HOME_FOLDER}{name}"), content.into());
    }
    let search = |query: &str| call(&files, "search", json!({ "query": query }));
    assert_eq!(
        search("needle").await.unwrap(),
        "c.txt:1: a needle\nFiles not searched: 1 too large, 1 no text in UTF-8."
    );
}

#[tokio::test]
async fn a_search_fails_when_the_file_storage_does() {
    let core = DialCore::start().await.unwrap();
    core.add_key("key", "b");
    let (mut fixture, _, _) = fixture(None).await;
    let client = DialClient::new(DialOptions::new(core.url(), "v")).unwrap();
    fixture.services = fixture.services.clone().with_dial(Arc::new(client));
    let files = fixture.opened(TurnStart {
        features: Features {
            dial_files: Some(DialFiles::default()),
            ..Features::default()
        },
        ..TurnStart::default()
    });
    core.put("b/a.txt", b"a needle".to_vec(), "text/plain");
    core.inject_file_fault("b/a.txt", InjectedFault::ContentStatus(500));
    let failure = call(&files, "search", json!({"query": "needle"})).await;
    assert!(failure.unwrap_err().to_string().contains("not reachable"));
}
