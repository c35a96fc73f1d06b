//! Tests of names, of edits, and of skeletons with invented names in a copy of the work tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::edit::{insert_after, insert_before, insert_line, insert_variant, insert_word};
use super::name::ExtensionName;
use super::write::{Changes, replace_files};
use super::{ExtensionKind, plan, write_skeleton};
use crate::tidy;

const ALL_KINDS: [ExtensionKind; 4] = [
    ExtensionKind::Backend,
    ExtensionKind::Platform,
    ExtensionKind::Format,
    ExtensionKind::Tool,
];

/// A name that no platform, backend, tool or format has.
const THROW_AWAY_NAME: &str = "throwaway";

/// Directories that no skeleton touches, and that are large.
const SKIPPED_DIRECTORIES: [&str; 5] = ["target", ".git", "corpus", "hostile", "node_modules"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_symlink() || SKIPPED_DIRECTORIES.iter().any(|skipped| name == *skipped) {
            continue;
        }
        if path.is_dir() {
            copy_directory(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Every file below a directory, with its content.
fn files_below(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            files.extend(files_below(&entry.path()));
        } else {
            files.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    files
}

#[test]
fn names_that_cannot_be_used_are_refused_with_the_reason() {
    for (kind, name, reason) in [
        (ExtensionKind::Tool, "WebSearch", "not kebab-case"),
        (ExtensionKind::Tool, "web_search", "not kebab-case"),
        (ExtensionKind::Tool, "web--search", "not kebab-case"),
        (ExtensionKind::Tool, "2web", "not kebab-case"),
        (ExtensionKind::Tool, "", "not kebab-case"),
        (ExtensionKind::Tool, "../../etc", "not kebab-case"),
        (ExtensionKind::Platform, "my-chat", "one word"),
        (ExtensionKind::Backend, "my-box", "one word"),
        (ExtensionKind::Format, "a", "2 to 24 characters"),
        (
            ExtensionKind::Tool,
            "a-name-that-goes-on-and-on",
            "2 to 24 characters",
        ),
        (ExtensionKind::Platform, "delivery", "reserved"),
        (ExtensionKind::Tool, "type", "reserved"),
    ] {
        let refused = ExtensionName::parse(kind, name).unwrap_err().to_string();
        assert!(refused.contains(reason), "{name}: {refused}");
    }
}

#[test]
fn a_name_fills_a_template_in_three_spellings() {
    let name = ExtensionName::parse(ExtensionKind::Tool, "web-search2").unwrap();
    assert_eq!(
        name.fill("@name@ @Name@ @snake@"),
        "web-search2 WebSearch2 web_search2"
    );
}

#[test]
fn an_insertion_needs_its_marker_exactly_once() {
    assert_eq!(insert_before("a c", "c", "b ").unwrap(), "a b c");
    assert_eq!(insert_after("a c", "a", " b").unwrap(), "a b c");
    assert!(insert_after("a", "c", "b").is_err());
    assert!(insert_before("a", "c", "b").is_err());
    assert!(insert_before("c c", "c", "b").is_err());
    assert_eq!(
        insert_line("x-a;\nx-c;\ny\n", "x-", ";", "x-b;").unwrap(),
        "x-a;\nx-b;\nx-c;\ny\n"
    );
    assert_eq!(
        insert_line("x-a;\ny\n", "x-", ";", "x-b;").unwrap(),
        "x-a;\nx-b;\ny\n"
    );
    assert!(insert_line("x-a;\n", "x-", ";", "x-a;").is_err());
    assert!(insert_line("y\n", "x-", ";", "x-a;").is_err());
}

#[test]
fn lists_stay_in_order_and_accept_a_name_once() {
    let list = "const A: K = K { names: &[\"a\"] };\nconst B: K = K { names: &[\"b\", \"d\"] };\n";
    let longer = insert_word(list, "const B", "c").unwrap();
    assert_eq!(longer, list.replace("\"d\"", "\"c\", \"d\""));
    assert!(insert_word(&longer, "const B", "c").is_err());

    let kinds = "pub enum E {\n        /// A.\n        A = \"a\",\n        /// C.\n        C = \"c\",\n    }\n}\n";
    let entry = "        /// B.\n        B = \"b\",";
    let longer = insert_variant(kinds, "pub enum E {", "b", entry).unwrap();
    assert_eq!(
        longer,
        kinds.replace("        /// C.", &format!("{entry}\n        /// C."))
    );
    assert!(insert_variant(&longer, "pub enum E {", "b", entry).is_err());
}

#[test]
fn a_failure_leaves_every_file_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::write(root.join("old.rs"), "fn old() {}\n").unwrap();
    let before = files_below(root);
    let changes = |source: &str| -> Changes {
        let file = |path: &str, content: &str| (path.to_owned(), content.to_owned());
        [
            file("old.rs", "fn new() {}\n"),
            file("deep/down/new.rs", source),
        ]
        .into()
    };

    let refused = replace_files(root, &changes("fn {"), |_| Ok(())).unwrap_err();
    assert!(
        format!("{refused:#}").contains("deep/down/new.rs"),
        "{refused:#}"
    );
    let failed = replace_files(root, &changes("fn new() {}"), |root| {
        assert!(root.join("deep/down/new.rs").exists());
        fs::write(root.join("Cargo.lock"), "half").unwrap();
        anyhow::bail!("the check failed")
    });
    assert!(format!("{:#}", failed.unwrap_err()).contains("the check failed"));
    assert_eq!(files_below(root), before);
    assert!(!root.join("deep").exists());

    replace_files(root, &changes("fn   new( ) { }"), |_| Ok(())).unwrap();
    let formatted = fs::read_to_string(root.join("deep/down/new.rs")).unwrap();
    assert_eq!(formatted, "fn new() {}\n");
}

#[test]
fn skeletons_of_every_kind_are_tidy_and_are_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    copy_directory(&workspace(), root);
    let known = tidy::find_violations(root).unwrap();
    for kind in ALL_KINDS {
        let written = write_skeleton(root, kind, THROW_AWAY_NAME).unwrap();
        assert!(
            written.iter().any(|path| path.starts_with("docs/")),
            "{written:?}"
        );
    }
    // The rules of edges are compiled in, so they do not contain the invented name.
    let is_unknown_crate = |violation: &String| {
        violation.ends_with("has no line in xtask/src/tidy/edges.rs: say what it may depend on")
            || violation.contains(" must not depend on ") && violation.ends_with(THROW_AWAY_NAME)
    };
    let mut violations = tidy::find_violations(root).unwrap();
    violations.retain(|violation| !is_unknown_crate(violation) && !known.contains(violation));
    assert_eq!(violations, [""; 0]);
    let edges = fs::read_to_string(root.join("xtask/src/tidy/edges.rs")).unwrap();
    assert_eq!(edges.matches(&format!("\"{THROW_AWAY_NAME}\"")).count(), 3);

    let before = files_below(root);
    for kind in ALL_KINDS {
        let refused = write_skeleton(root, kind, THROW_AWAY_NAME).unwrap_err();
        assert!(
            format!("{refused:#}").contains("the name is taken"),
            "{refused:#}"
        );
    }
    assert!(files_below(root) == before, "a refused name changed files");
}

/// The variants of an enum in the text of its file.
fn variants<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = text.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let names = body.lines().filter_map(|line| {
        let name = line.trim_start();
        let end = name.find(|character: char| !character.is_alphanumeric())?;
        name.starts_with(char::is_uppercase)
            .then_some(name.get(..end)?)
    });
    names.collect()
}

#[test]
fn a_skeleton_is_in_every_match_on_its_kind_and_calls_existing_methods() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    copy_directory(&workspace(), root);
    let before = files_below(&root.join("crates"));
    for kind in ALL_KINDS {
        write_skeleton(root, kind, THROW_AWAY_NAME).unwrap();
    }
    for (file, name) in [
        ("dray-agent/src/manifest/toolset.rs", "ToolSet"),
        ("dray-types/src/kind.rs", "BackendKind"),
        ("dray-types/src/kind.rs", "PlatformKind"),
        ("dray-orchestrator/src/config/permissions.rs", "ToolKind"),
    ] {
        let file = str::from_utf8(&before[&root.join("crates").join(file)]).unwrap();
        let known: Vec<_> = variants(file, name)
            .iter()
            .map(|variant| format!("{name}::{variant}"))
            .collect();
        assert!(known.len() > 3, "{known:?}");
        let names_all = |text: &str| known.iter().all(|variant| text.contains(variant.as_str()));
        for (path, content) in &before {
            if str::from_utf8(content).is_ok_and(names_all) {
                let written = fs::read_to_string(path).unwrap();
                let is_named = written.contains(&format!("{name}::Throwaway"));
                assert!(is_named, "{} does not name the new {name}", path.display());
            }
        }
    }
    for (path, content) in &before {
        let written = fs::read(path).unwrap();
        if written == *content {
            continue;
        }
        let (old, new) = (
            str::from_utf8(content).unwrap(),
            str::from_utf8(&written).unwrap(),
        );
        for line in new.lines().filter(|line| !old.contains(line)) {
            let Some((_, call)) = line.split_once("self.") else {
                continue;
            };
            let Some((method, _)) = call.split_once('(') else {
                continue;
            };
            assert!(
                method.contains('.') || new.contains(&format!("fn {method}(")),
                "{}: {line}",
                path.display()
            );
        }
    }
}

#[test]
fn the_architecture_has_the_steps_that_the_command_prints() {
    let page = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    for kind in ALL_KINDS {
        let heading = format!("### `cargo xtask new {} NAME`", kind.as_str());
        let (_, recipe) = page
            .split_once(&heading)
            .unwrap_or_else(|| panic!("no recipe {heading}"));
        let recipe = recipe.split("\n#").next().unwrap_or_default();
        let recipe = recipe.split_whitespace().collect::<Vec<_>>().join(" ");
        let steps: Vec<_> = (1..)
            .zip(plan::remaining_steps(kind, "NAME"))
            .map(|(number, step)| format!("{number}. {step}"))
            .collect();
        assert!(recipe.ends_with(&steps.join(" ")), "{heading}: {recipe}");
    }
}
