//! Tests with packages that `dpkg-deb` builds here. Nothing is downloaded.

use super::super::tests::write_package;
use super::*;

fn package(sha256: &str, keep: &[&str]) -> BasePackage {
    BasePackage {
        name: "tiny".to_owned(),
        version: "1.0".to_owned(),
        architecture: "all".to_owned(),
        sha256: sha256.to_owned(),
        keep: keep.iter().map(ToString::to_string).collect(),
        is_only_for_dynamic: false,
    }
}

fn shipped_list() -> (PathBuf, BaseList) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image/base-packages.toml");
    let list = BaseList::read(&path).unwrap();
    (path, list)
}

#[test]
fn only_kept_files_of_a_package_go_into_the_tree() {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        ("lib/a.so", "library"),
        ("library/b", "another directory"),
        ("usr/bin/sh", "program"),
        ("usr/share/doc/tiny/copyright", "licence"),
        ("usr/share/doc/tiny/changelog", "changes"),
    ];
    let digest = write_package(directory.path(), "tiny", &files);
    let package = package(&digest, &["lib/", "usr/share/doc/tiny/copyright"]);
    let file = package.locate_file(directory.path()).unwrap();
    let mut tree = FileTree::default();
    package.add_to(&mut tree, &file).unwrap();
    let files: Vec<_> = tree
        .nodes
        .iter()
        .filter(|(_, node)| node.content != NodeContent::Directory)
        .map(|(name, _)| name.as_str())
        .collect();
    let status = "var/lib/dpkg/status.d/tiny";
    assert_eq!(files, ["lib/a.so", "usr/share/doc/tiny/copyright", status]);
    let content = |name: &str| tree.nodes[name].content.clone();
    assert_eq!(content("lib/a.so"), NodeContent::File(b"library".to_vec()));
    let NodeContent::File(control) = content(status) else {
        panic!("not a file");
    };
    assert!(control.starts_with(b"Package: tiny\nVersion: 1.0\n"));
}

#[test]
fn a_package_with_another_digest_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write_package(directory.path(), "tiny", &[("lib/a", "a")]);
    let error = package(&"0".repeat(64), &[]).locate_file(directory.path());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("tiny_1.0_all.deb has the SHA-256"),
        "{error}"
    );
}

#[test]
fn a_version_that_is_not_available_names_the_options() {
    let directory = tempfile::tempdir().unwrap();
    let mut package = package("", &[]);
    package.name = "dray-no-such-package".to_owned();
    let error = package
        .locate_file(directory.path())
        .unwrap_err()
        .to_string();
    for option in ["--update-base", "--base-packages DIR", "--no-image"] {
        assert!(error.contains(option), "{error}");
    }
}

#[test]
fn an_epoch_is_escaped_in_file_names_and_urls() {
    let mut package = package("", &[]);
    package.version = "1:2.0~rc1+deb12u1".to_owned();
    assert_eq!(package.file_name(), "tiny_1%3a2.0~rc1+deb12u1_all.deb");
    assert_eq!(
        package.package_url("bookworm"),
        "pkg:deb/debian/tiny@1%3A2.0~rc1%2Bdeb12u1?arch=all&distro=bookworm"
    );
}

#[test]
fn the_shipped_list_has_a_digest_for_each_package_and_keeps_no_directory_of_programs() {
    let (_, list) = shipped_list();
    let names: Vec<_> = list.packages.iter().map(|it| it.name.as_str()).collect();
    assert!(names.contains(&"libc6") && names.contains(&"libgcc-s1"));
    for package in &list.packages {
        let is_digest = package.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(package.sha256.len() == 64 && is_digest, "{package:?}");
        for name in ["bin/sh", "sbin/init", "usr/bin/env", "usr/sbin/x"] {
            assert!(!package.is_kept(name), "{package:?}");
        }
    }
}

#[test]
fn the_shipped_base_of_a_static_program_has_authorities_and_licences_alone() {
    let target = |triple| ReleaseTarget::choose(Some(triple)).unwrap();
    let (_, list) = shipped_list();
    let list = list.for_target(&target("x86_64-unknown-linux-musl"));
    let names: Vec<_> = list.packages.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["base-files", "ca-certificates"]);
    assert_eq!(list.c_library(), None);
    let (_, list) = shipped_list();
    let all = list.packages.len();
    let list = list.for_target(&target("x86_64-unknown-linux-gnu"));
    assert_eq!(list.packages.len(), all);
}

#[test]
fn a_new_version_replaces_the_lines_of_its_package_alone() {
    let (path, list) = shipped_list();
    let mut text = fs::read_to_string(path).unwrap();
    for package in &list.packages {
        text = replace_version(&text, package, "9", &"9".repeat(64)).unwrap();
    }
    let updated = BaseList::parse(&text).unwrap();
    for (package, earlier) in updated.packages.iter().zip(&list.packages) {
        let expected = BasePackage {
            version: "9".to_owned(),
            sha256: "9".repeat(64),
            ..earlier.clone()
        };
        assert_eq!(*package, expected);
    }
    let first = &list.packages[0];
    let error = replace_version(&text, first, "10", "").unwrap_err();
    assert!(error.to_string().contains(&first.sha256), "{error}");
}
