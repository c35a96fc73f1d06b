//! Tests of images with a small base of one package. The engines that run an image are in `tests/deploy/image.rs`.

use super::super::digest::FileDigest;
use super::package::BasePackage;
use super::*;

/// Writes a package of these files, and returns its digest.
pub(super) fn write_package(directory: &Path, name: &str, files: &[(&str, &str)]) -> String {
    let tree = tempfile::tempdir().unwrap();
    let control = format!(
        "Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: test\n"
    );
    for (file, text) in [("DEBIAN/control", control.as_str())].iter().chain(files) {
        let path = tree.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let file = directory.join(format!("{name}_1.0_all.deb"));
    step::program_step("dpkg-deb")
        .args(["--root-owner-group", "--build"])
        .args([tree.path(), &file])
        .output()
        .unwrap();
    FileDigest::of(&file).unwrap().sha256
}

/// A base of one package, whose files were written in this order.
pub(super) fn small_base(directory: &Path, files: &[(&str, &str)]) -> ImageBase {
    let sha256 = write_package(directory, "tiny", files);
    let package = BasePackage {
        name: "tiny".to_owned(),
        version: "1.0".to_owned(),
        architecture: "all".to_owned(),
        sha256,
        keep: vec!["lib/".to_owned(), AUTHORITIES_DIRECTORY.to_owned()],
        is_only_for_dynamic: false,
    };
    let list = BaseList {
        distribution: "bookworm".to_owned(),
        architecture: "amd64".to_owned(),
        packages: vec![package],
    };
    ImageBase::open(list, directory).unwrap()
}

const BASE_FILES: [(&str, &str); 3] = [
    ("usr/share/ca-certificates/mozilla/b.crt", "B"),
    ("usr/share/ca-certificates/mozilla/a.crt", "A\n"),
    ("lib/x.so", "library"),
];

pub(super) fn commit(seconds: i64) -> SourceCommit {
    SourceCommit {
        hash: "c".repeat(40),
        seconds,
        is_changed: false,
    }
}

/// The bytes of an image of `program`, made from files that were written now.
fn image_bytes(program: &str, seconds: i64) -> (ReleaseImage, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let base = small_base(directory.path(), &BASE_FILES);
    let path = directory.path().join("program");
    fs::write(&path, program).unwrap();
    let file = directory.path().join("image.tar");
    let image = base.write_image(&file, &path, &commit(seconds), GzipLevel::Best);
    let image = image.unwrap();
    (image, fs::read(file).unwrap())
}

#[test]
fn two_images_of_a_program_and_a_commit_are_equal() {
    let first = image_bytes("program", 1_700_000_000);
    assert!(first == image_bytes("program", 1_700_000_000));
    let other = image_bytes("another program", 1_700_000_000);
    assert_ne!(first.0.sha256, other.0.sha256);
    assert_ne!(
        first.0.sha256,
        image_bytes("program", 1_700_000_001).0.sha256
    );
}

#[test]
fn authorities_become_one_file_in_the_order_of_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let base = small_base(directory.path(), &BASE_FILES);
    let bundle = &base.tree.nodes[AUTHORITIES_FILE];
    assert_eq!(bundle.content, NodeContent::File(b"A\nB\n".to_vec()));
    let is_left = |name: &String| name.starts_with("usr/share/ca-certificates");
    assert!(!base.tree.nodes.keys().any(is_left));
    let error = collect_authorities(&mut FileTree::default()).unwrap_err();
    assert!(error.to_string().contains("no authorities"), "{error}");
}

#[test]
fn a_program_that_needs_a_later_c_library_than_the_base_is_refused() {
    let text = "  Name: GLIBC_2.2.5  Flags: none\n  Name: GLIBC_2.34  Version: 3\n Name: GCC_4.2\n \
                Name: GLIBC_PRIVATE\n";
    assert_eq!(needed_libc(text), Some(34));
    assert_eq!(needed_libc("No version information found"), None);
    assert_eq!(minor_version("2.36-9+deb12u14"), Some(36));
    let directory = tempfile::tempdir().unwrap();
    let mut base = small_base(directory.path(), &BASE_FILES);
    let program = std::env::current_exe().unwrap();
    base.list.packages[0].name = "libc6".to_owned();
    base.list.packages[0].version = "2.99-1".to_owned();
    base.check_program(&program).unwrap();
    base.list.packages[0].version = "2.3-1".to_owned();
    let error = base.check_program(&program).unwrap_err().to_string();
    assert!(error.contains("the base has 2.3-1"), "{error}");
}

#[test]
fn images_are_made_for_targets_whose_packages_are_listed() {
    assert_eq!(
        debian_architecture("x86_64-unknown-linux-gnu"),
        Some("amd64")
    );
    assert_eq!(
        debian_architecture("aarch64-unknown-linux-musl"),
        Some("arm64")
    );
    assert_eq!(debian_architecture("x86_64-pc-windows-msvc"), None);
    let options = ImageOptions::default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = ReleaseTarget::choose(Some("aarch64-unknown-linux-gnu")).unwrap();
    let base = options.open_base(&root, &target);
    assert!(base.unwrap().is_none());
}

/// The names in the base of a program of this target. Of two packages, one has the C library.
fn base_names(target: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let mut list = small_base(directory.path(), &BASE_FILES).list;
    let libc = BasePackage {
        name: "libc6".to_owned(),
        sha256: write_package(directory.path(), "libc6", &[("lib/libc.so.6", "library")]),
        is_only_for_dynamic: true,
        ..list.packages[0].clone()
    };
    list.packages.push(libc);
    let target = ReleaseTarget::choose(Some(target)).unwrap();
    let base = ImageBase::open(list.for_target(&target), directory.path()).unwrap();
    base.tree.nodes.into_keys().collect()
}

#[test]
fn the_image_of_a_static_program_has_no_c_library() {
    let libc_files = [
        "etc/nsswitch.conf",
        "lib/libc.so.6",
        "var/lib/dpkg/status.d/libc6",
    ];
    let dynamic = base_names("x86_64-unknown-linux-gnu");
    for name in libc_files {
        assert!(dynamic.iter().any(|it| it == name), "{dynamic:?}");
    }
    let expected: Vec<_> = dynamic
        .into_iter()
        .filter(|name| !libc_files.contains(&name.as_str()))
        .collect();
    assert_eq!(base_names("x86_64-unknown-linux-musl"), expected);
}
