//! Paths of an agent, and the files that they must not reach.

use std::os::unix::fs::symlink;

use super::*;

/// A root with a file, beside files that must stay out of reach.
struct RootFixture {
    directory: tempfile::TempDir,
    root: LocalRoot,
}

impl RootFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("data");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::create_dir_all(directory.path().join("data-old")).unwrap();
        std::fs::write(inside.join("a.txt"), "inside").unwrap();
        std::fs::write(inside.join("sub/b.txt"), "below").unwrap();
        std::fs::write(directory.path().join("secret.txt"), "secret").unwrap();
        std::fs::write(directory.path().join("data-old/secret.txt"), "secret").unwrap();
        let root = LocalRoot::open(&inside).unwrap();
        Self { directory, root }
    }

    fn absolute(&self, path: &str) -> String {
        self.directory
            .path()
            .join(path)
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn read(&self, path: &str) -> Result<String, Fault> {
        let (file, size) = self.root.open_file(path)?;
        let text = std::io::read_to_string(file).unwrap();
        assert_eq!(text.len() as u64, size);
        Ok(text)
    }
}

#[test]
fn files_beneath_the_root_are_read_by_relative_and_absolute_paths() {
    let fixture = RootFixture::new();
    for path in [
        "a.txt",
        "./a.txt",
        "sub/../a.txt",
        &fixture.absolute("data/a.txt"),
    ] {
        assert_eq!(fixture.read(path).unwrap(), "inside", "{path}");
    }
    symlink("sub/b.txt", fixture.directory.path().join("data/link")).unwrap();
    assert_eq!(fixture.read("link").unwrap(), "below");
}

#[test]
fn no_path_leaves_the_root() {
    let fixture = RootFixture::new();
    let data = fixture.directory.path().join("data");
    let secret = fixture.absolute("secret.txt");
    symlink(&secret, data.join("absolute-link")).unwrap();
    symlink("../secret.txt", data.join("relative-link")).unwrap();
    symlink("..", data.join("parent")).unwrap();
    symlink("relative-link", data.join("link-to-link")).unwrap();
    symlink("loop", data.join("loop")).unwrap();
    symlink("/proc/self/root", data.join("magic")).unwrap();
    for path in [
        "../secret.txt",
        "sub/../../secret.txt",
        "./../secret.txt",
        "..",
        &secret,
        "/etc/passwd",
        "/",
        // A sibling whose name begins like the root (GHSA-hc55-p739-j48w).
        &fixture.absolute("data-old/secret.txt"),
        &fixture.absolute("data/../secret.txt"),
        // Links out of the root, even as a directory of a longer path (GHSA-q66q-fx2p-7w4m).
        "absolute-link",
        "relative-link",
        "link-to-link",
        "parent/secret.txt",
        "loop",
        "magic/etc/passwd",
        "a.txt\0/../../secret.txt",
    ] {
        let fault = fixture.read(path).unwrap_err();
        assert_eq!(fault.detail, "outside_root", "{path}: {fault:?}");
        // The result does not depend on files outside, and contains no more of their paths than the caller wrote.
        let written = path.contains(fixture.directory.path().to_str().unwrap());
        assert!(written || !fault.message.contains("/tmp"), "{fault:?}");
        let listed = fixture.root.list(path, 0, 10).unwrap_err();
        assert_ne!(listed.detail, "", "{path}");
        assert!(fixture.root.create_file(&format!("{path}/new")).is_err());
    }
}

#[test]
fn encoded_and_differently_cased_names_are_other_names() {
    let fixture = RootFixture::new();
    for path in [
        "%2e%2e/secret.txt",
        "..%2fsecret.txt",
        "A.TXT",
        "..\\secret.txt",
        "~/a.txt",
    ] {
        assert_eq!(
            fixture.read(path).unwrap_err().detail,
            "not_found",
            "{path}"
        );
    }
}

/// `markitdown-mcp` reads any file whose `file:` URI it gets. `dray mcp` takes such a URI for a path below the root,
/// where no file has this name; `location.rs` refuses URIs with `//` earlier.
#[test]
fn file_uris_are_names_below_the_root() {
    let fixture = RootFixture::new();
    for path in [
        "file:/etc/passwd",
        "FILE:/etc/passwd",
        "file:../secret.txt",
        "file:data/a.txt",
        "data:text/plain;base64,YQ==",
        &format!("file:{}", fixture.absolute("secret.txt")),
    ] {
        let fault = fixture.read(path).unwrap_err();
        assert!(
            matches!(&*fault.detail, "not_found" | "outside_root"),
            "{path}: {fault:?}"
        );
    }
}

/// Servers that check a path and then open it can be led outside by a link that replaces the path in between (the race
/// that `server-filesystem` and `DesktopCommander` fixed).
#[test]
fn a_link_that_changes_between_two_checks_never_leads_outside() {
    let fixture = RootFixture::new();
    let data = fixture.directory.path().join("data");
    std::fs::create_dir(fixture.directory.path().join("outside")).unwrap();
    std::fs::write(fixture.directory.path().join("outside/b.txt"), "secret").unwrap();
    let point_to = |target: &str| {
        let next = data.join("next");
        symlink(target, &next).unwrap();
        std::fs::rename(next, data.join("swap")).unwrap();
    };
    point_to("sub");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                point_to("../outside");
                point_to("sub");
            }
        });
        let contents: Vec<_> = (0..2_000).map(|_| fixture.read("swap/b.txt")).collect();
        // The flag is set before the assertions: a panic ends the scope only when the other thread has ended.
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for text in contents.into_iter().flatten() {
            assert_eq!(text, "below");
        }
    });
}

#[test]
fn directories_pipes_and_devices_are_not_read() {
    let fixture = RootFixture::new();
    let pipe = fixture.directory.path().join("data/pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    for path in ["sub", ".", "pipe"] {
        assert_eq!(
            fixture.read(path).unwrap_err().detail,
            "not_regular_file",
            "{path}"
        );
    }
}

#[test]
fn a_listing_of_a_file_says_that_it_is_not_a_directory() {
    let fixture = RootFixture::new();
    for path in ["a.txt", "a.txt/b"] {
        let fault = fixture.root.list(path, 0, 10).unwrap_err();
        assert_eq!(fault.message, format!("`{path}` is not a directory."));
        assert!(fault.advice.starts_with("`read` shows a file"), "{fault:?}");
    }
    let fault = fixture.root.create_file("a.txt/b").unwrap_err();
    assert_eq!(fault.message, "The directory of `a.txt/b` does not exist.");
}

#[test]
fn a_renamed_root_stays_the_directory_that_was_opened() {
    let fixture = RootFixture::new();
    let data = fixture.directory.path().join("data");
    std::fs::rename(&data, fixture.directory.path().join("moved")).unwrap();
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("a.txt"), "another").unwrap();
    assert_eq!(fixture.read("a.txt").unwrap(), "inside");
}

#[test]
fn a_listing_names_links_without_following_them() {
    let fixture = RootFixture::new();
    symlink("/etc", fixture.directory.path().join("data/etc")).unwrap();
    let page = fixture.root.list(".", 0, 10).unwrap();
    let names_and_kinds: Vec<_> = page
        .entries
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    assert_eq!(
        names_and_kinds,
        [("a.txt", "file"), ("etc", "symlink"), ("sub", "dir")]
    );
    assert_eq!(
        fixture.root.list("etc", 0, 10).unwrap_err().detail,
        "outside_root"
    );
}

#[test]
fn a_page_of_a_large_directory_has_its_entries_and_says_where_the_listing_ends() {
    let fixture = RootFixture::new();
    let large = fixture.directory.path().join("data/large");
    std::fs::create_dir(&large).unwrap();
    let entries = MAX_ENTRIES + 1;
    for number in 0..entries {
        // Links need no file of their own.
        symlink("x", large.join(format!("{number:06}"))).unwrap();
    }
    let page = fixture.root.list("large", 10, 2).unwrap();
    assert_eq!(
        (page.entries.len(), page.has_more, page.is_cut),
        (2, true, true)
    );
    let last = fixture.root.list("large", MAX_ENTRIES - 1, 2).unwrap();
    assert_eq!(
        (last.entries.len(), last.has_more, last.is_cut),
        (1, false, true)
    );
    std::fs::remove_file(large.join("000000")).unwrap();
    let complete = fixture.root.list("large", 0, 1).unwrap();
    assert_eq!(complete.entries[0].name, "000001");
    assert!(!complete.is_cut);
}

#[test]
fn a_new_file_appears_complete_and_replaces_nothing() {
    let fixture = RootFixture::new();
    let data = fixture.directory.path().join("data");
    let mut unfinished = fixture.root.create_file("sub/new.txt").unwrap();
    unfinished.write(b"half").unwrap();
    drop(unfinished);
    assert_eq!(std::fs::read_dir(data.join("sub")).unwrap().count(), 1);

    let mut file = fixture.root.create_file("sub/new.txt").unwrap();
    file.write(b"whole").unwrap();
    file.finish().unwrap();
    assert_eq!(std::fs::read(data.join("sub/new.txt")).unwrap(), b"whole");

    let mut repeated = fixture.root.create_file("sub/new.txt").unwrap();
    repeated.write(b"other").unwrap();
    assert_eq!(repeated.finish().unwrap_err().detail, "exists");
    assert_eq!(std::fs::read(data.join("sub/new.txt")).unwrap(), b"whole");
    assert_eq!(std::fs::read_dir(data.join("sub")).unwrap().count(), 2);

    let missing = fixture.root.create_file("missing/new.txt").unwrap_err();
    assert!(missing.message.contains("directory"), "{missing:?}");
}

#[test]
fn a_link_is_not_written_through() {
    let fixture = RootFixture::new();
    let outside = fixture.directory.path().join("outside.txt");
    symlink(&outside, fixture.directory.path().join("data/link")).unwrap();
    let mut file = fixture.root.create_file("link").unwrap();
    file.write(b"x").unwrap();
    assert_eq!(file.finish().unwrap_err().detail, "exists");
    assert!(!outside.exists());
}

#[test]
fn a_file_is_named_by_a_link_only_where_the_name_is_free() {
    let fixture = RootFixture::new();
    let directory = &fixture.root.inner.directory;
    let link = |new: &str| link_new(directory, "a.txt", OsStr::new(new));
    link("new.txt").unwrap();
    assert_eq!(fixture.read("new.txt").unwrap(), "inside");
    assert_eq!(link("new.txt"), Err(Errno::EXIST));
    assert_eq!(link("sub"), Err(Errno::EXIST));
}
