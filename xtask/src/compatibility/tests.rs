//! Each kind of breaking change, and compatible changes.

use super::*;

const RELEASED_CONTRACT: &str = "
    message Order {
      string id = 1;
      uint64 size = 2;
      repeated string tags = 3;
      optional string note = 4;
      oneof place { string room = 5; string shelf = 6; }
      reserved 7 to 8;
      State state = 9;
      message Line { string text = 1; }
      Line line = 10;
    }
    enum State { STATE_UNSPECIFIED = 0; STATE_OPEN = 1; reserved 2; }
    message Reply {}
    service Orders { rpc Place(Order) returns (Reply); rpc Watch(Order) returns (stream Reply); }
";

fn compile_source(source: &str) -> FileDescriptorSet {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.proto");
    fs::write(
        &path,
        format!("syntax = \"proto3\";\npackage dray.v1;\n{source}"),
    )
    .unwrap();
    protox::compile([&path], [directory.path()]).unwrap()
}

/// The changes from replacing one text by another.
fn changes(from: &str, to: &str) -> Vec<String> {
    assert!(RELEASED_CONTRACT.contains(from), "{from}");
    compare::breaking_changes(
        &compile_source(RELEASED_CONTRACT),
        &compile_source(&RELEASED_CONTRACT.replace(from, to)),
    )
}

#[track_caller]
fn check(from: &str, to: &str, expected: &str) {
    assert_eq!(changes(from, to), [expected], "{from} -> {to}");
}

#[test]
fn removed_renamed_and_renumbered_fields_are_refused() {
    check(
        "string id = 1;",
        "reserved 1;",
        "field dray.v1.Order.id = 1 was removed",
    );
    check(
        "string id = 1;",
        "string key = 1;",
        "field dray.v1.Order.id = 1 was renamed to key",
    );
    check(
        "string id = 1;",
        "string id = 11;",
        "field dray.v1.Order.id was renumbered from 1 to 11",
    );
    check(
        "string text = 1;",
        "",
        "field dray.v1.Order.Line.text = 1 was removed",
    );
}

#[test]
fn changed_types_are_refused() {
    for (from, to, expected) in [
        (
            "uint64 size = 2;",
            "int64 size = 2;",
            "size = 2 changed from UINT64 to INT64",
        ),
        (
            "string id = 1;",
            "repeated string id = 1;",
            "id = 1 changed from STRING to repeated STRING",
        ),
        (
            "repeated string tags",
            "string tags",
            "tags = 3 changed from repeated STRING to STRING",
        ),
        (
            "optional string note",
            "string note",
            "note = 4 changed from optional STRING to STRING",
        ),
        (
            "State state = 9;",
            "Reply state = 9;",
            "state = 9 changed from dray.v1.State to dray.v1.Reply",
        ),
        (
            "string shelf = 6; }",
            "} string shelf = 6;",
            "shelf = 6 changed from STRING in oneof place to STRING",
        ),
    ] {
        check(from, to, &format!("field dray.v1.Order.{expected}"));
    }
}

#[test]
fn removed_messages_enums_values_and_methods_are_refused() {
    assert_eq!(
        changes(
            "message Line { string text = 1; }\n      Line line = 10;",
            "Reply line = 10;"
        ),
        [
            "field dray.v1.Order.line = 10 changed from dray.v1.Order.Line to dray.v1.Reply",
            "message dray.v1.Order.Line was removed",
        ]
    );
    assert_eq!(
        changes("STATE_OPEN = 1;", ""),
        ["enum value dray.v1.State.STATE_OPEN was removed"]
    );
    check(
        "STATE_OPEN = 1;",
        "STATE_OPEN = 3;",
        "enum value dray.v1.State.STATE_OPEN was renumbered from 1 to 3",
    );
    check(
        "rpc Place(Order) returns (Reply);",
        "",
        "rpc dray.v1.Orders/Place was removed",
    );
    check(
        "service Orders",
        "service Goods",
        "service dray.v1.Orders was removed",
    );
}

#[test]
fn changed_methods_are_refused() {
    check(
        "rpc Place(Order) returns (Reply);",
        "rpc Place(Reply) returns (Reply);",
        "rpc dray.v1.Orders/Place changed from (dray.v1.Order) returns (dray.v1.Reply) to (dray.v1.Reply) returns \
         (dray.v1.Reply)",
    );
    check(
        "returns (stream Reply)",
        "returns (Reply)",
        "rpc dray.v1.Orders/Watch changed from (dray.v1.Order) returns (stream dray.v1.Reply) to (dray.v1.Order) \
         returns (dray.v1.Reply)",
    );
}

#[test]
fn a_reserved_number_that_is_used_again_is_refused() {
    check(
        "reserved 7 to 8;",
        "string again = 8;",
        "field number 8 of dray.v1.Order was reserved and is used again",
    );
    check(
        "reserved 2;",
        "STATE_AGAIN = 2;",
        "number 2 of enum dray.v1.State was reserved and is used again",
    );
}

#[test]
fn additions_break_no_client() {
    for (from, to) in [
        ("string id = 1;", "string id = 1; string more = 11;"),
        ("STATE_OPEN = 1;", "STATE_OPEN = 1; STATE_DONE = 3;"),
        ("string shelf = 6;", "string shelf = 6; string box = 12;"),
        (
            "message Reply {}",
            "message Reply { string more = 1; } message Further {}",
        ),
        (
            "service Orders {",
            "service Further {} service Orders { rpc Drop(Order) returns (Reply);",
        ),
    ] {
        assert_eq!(changes(from, to), [""; 0], "{from} -> {to}");
    }
}

#[test]
fn the_contracts_of_the_tree_break_no_client_of_the_last_release() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    run_check(root, false).unwrap();
}

#[test]
fn a_release_stores_the_contracts_and_a_breaking_change_is_refused_before_it() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("proto/dray/v1");
    fs::create_dir_all(&directory).unwrap();
    let write = |field: &str| {
        let text = format!("syntax = \"proto3\";\npackage dray.v1;\nmessage A {{ {field} }}\n");
        fs::write(directory.join("a.proto"), text).unwrap();
    };
    let released = root.path().join(RELEASED_DESCRIPTORS);
    fs::write(&released, FileDescriptorSet::default().encode_to_vec()).unwrap();
    write("/* A comment. */ string id = 1;");
    run_check(root.path(), true).unwrap();
    let stored = fs::read(&released).unwrap();
    assert!(!String::from_utf8_lossy(&stored).contains("A comment."));
    write("bytes id = 1;");
    let error = run_check(root.path(), true).unwrap_err().to_string();
    assert!(
        error.contains("changed from STRING to BYTES") && error.contains("dray.v2"),
        "{error}"
    );
    assert_eq!(fs::read(&released).unwrap(), stored);
}
