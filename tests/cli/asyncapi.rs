//! The AsyncAPI document, checked with the parser of the initiative that owns the specification.

use std::fs::File;
use std::process::Command;

use crate::support::{self, node};

/// The parser and the schemas of the specification's versions.
const PARSER_PACKAGE: &str = "@asyncapi/parser@3.6.6";

/// The problems that the parser finds in a document.
fn problems_of(document: &str) -> String {
    let packages = node::packages("node-asyncapi", &[PARSER_PACKAGE]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("asyncapi.json");
    std::fs::write(&path, document).unwrap();
    // Imports are resolved from the directory of the script.
    let script = packages.join("asyncapi.mjs");
    std::fs::copy(support::root().join("tests/cli/asyncapi.mjs"), &script).unwrap();
    let mut check = Command::new("node");
    check
        .arg(script)
        .current_dir(&packages)
        .stdin(File::open(path).unwrap());
    support::stdout(&mut check)
}

#[test]
fn the_parser_of_the_asyncapi_initiative_finds_no_problem_in_the_document() {
    let page = support::root().join("docs/asyncapi.json");
    let document = std::fs::read_to_string(page).unwrap();
    assert_eq!(problems_of(&document), "");
    // The check itself notices a reference to nothing.
    let broken = document.replacen("#/components/messages/", "#/components/absent/", 1);
    assert_ne!(broken, document);
    assert_ne!(problems_of(&broken), "");
}
