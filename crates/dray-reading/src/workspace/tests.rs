//! Steps 1 to 5 with real files, links, pipes and swaps in between.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;
use crate::record::Code;

/// A root with a file in it, beside a place outside.
struct WorkspaceFixture {
    _all: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    roots: Roots,
}

fn fixture() -> WorkspaceFixture {
    let all = tempfile::tempdir().unwrap();
    let top = all.path().canonicalize().unwrap();
    let (root, outside) = (top.join("proj"), top.join("proj2"));
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(root.join("a.txt"), "inside").unwrap();
    fs::write(root.join("sub/b.txt"), "below").unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    WorkspaceFixture {
        _all: all,
        roots: Roots::new(&root),
        root,
        outside,
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl WorkspaceFixture {
    fn open(&self, path: &str) -> Result<String, Refusal> {
        self.roots.open(Some(path)).map(read)
    }

    fn code(&self, path: &str) -> Code {
        self.open(path).unwrap_err().code
    }

    fn outside_message(&self, path: &str) -> String {
        format!(
            "Error: refusing to access '{path}' — outside {}. Set tools.workspace_strict=false in config.yml to disable this check.",
            self.root.display()
        )
    }
}

fn read(opened: OpenedFile) -> String {
    std::io::read_to_string(opened.file).unwrap()
}

fn reason(path: &str, reason: &str) -> String {
    format!(
        "Error: cannot read {path}: {reason}. Attachments must be regular files inside the workspace, under the size cap."
    )
}

#[test]
fn step_1_a_path_is_required_and_must_be_valid() {
    let fixture = fixture();
    for blank in [None, Some(""), Some(" \n\t")] {
        let refusal = fixture.roots.open(blank).unwrap_err();
        assert_eq!(refusal.code, Code::FilePathRequired);
        assert_eq!(refusal.output, "Error: file_path is required");
    }
    for wrong in ["a\0b".to_owned(), "a".repeat(4097)] {
        let refusal = fixture.roots.open(Some(&wrong)).unwrap_err();
        assert_eq!(refusal.code, Code::FilePathInvalid);
        assert_eq!(refusal.output, "Error: file_path is not valid");
    }
}

#[test]
fn paths_are_relative_to_the_primary_root_and_cleaned() {
    let fixture = fixture();
    let absolute = text(&fixture.root.join("a.txt"));
    for path in [
        "a.txt",
        "./a.txt",
        "sub/../a.txt",
        "sub//./../a.txt",
        "missing/../a.txt",
        &absolute,
    ] {
        assert_eq!(fixture.open(path).unwrap(), "inside", "{path}");
    }
    let opened = fixture.roots.open(Some("sub/b.txt")).unwrap();
    assert_eq!(
        (opened.size, opened.path),
        (5, fixture.root.join("sub/b.txt"))
    );
}

#[test]
fn step_2_every_path_outside_gets_the_same_refusal() {
    let fixture = fixture();
    let huge = fs::File::create(fixture.outside.join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::create_dir(fixture.outside.join("folder")).unwrap();
    symlink(&fixture.root, fixture.outside.join("link")).unwrap();
    for name in [
        "secret.txt",
        "missing.txt",
        "huge",
        "folder",
        "link",
        "a/b/c",
        "secret.txt/x",
    ] {
        let path = text(&fixture.outside.join(name));
        let refusal = fixture.open(&path).unwrap_err();
        assert_eq!(refusal.code, Code::OutsideWorkspace);
        assert_eq!(refusal.output, fixture.outside_message(&path));
    }
    for path in [
        "..",
        "../proj2",
        "../proj2/secret.txt",
        "/",
        "/etc/passwd",
        "/../etc/passwd",
    ] {
        assert_eq!(
            fixture.open(path).unwrap_err().output,
            fixture.outside_message(path)
        );
    }
}

#[test]
fn every_root_counts_and_is_named_once() {
    let mut fixture = fixture();
    fixture.roots.add(&fixture.outside).unwrap();
    fixture.roots.add(&fixture.root.join("sub/..")).unwrap();
    symlink(&fixture.outside, fixture.root.join("again")).unwrap();
    fixture.roots.add(&fixture.root.join("again")).unwrap();
    assert_eq!(
        fixture.roots.paths(),
        [fixture.root.clone(), fixture.outside.clone()]
    );
    assert_eq!(
        fixture
            .open(&text(&fixture.outside.join("secret.txt")))
            .unwrap(),
        "secret"
    );
    assert_eq!(
        fixture.open("again/secret.txt").unwrap(),
        "secret",
        "through a link into another root"
    );
    let message = fixture.open("/etc/passwd").unwrap_err().output;
    let both = format!(
        "outside any allowed root ({}, {}).",
        fixture.root.display(),
        fixture.outside.display()
    );
    assert!(message.contains(&both), "{message}");
}

#[test]
fn roots_must_exist_and_be_directories() {
    let mut fixture = fixture();
    assert!(fixture.roots.add(&fixture.root.join("a.txt")).is_err());
    assert!(fixture.roots.add(&fixture.root.join("missing")).is_err());
    let roots =
        Roots::new(&fixture.root).with([fixture.root.join("missing"), fixture.outside.clone()]);
    assert_eq!(
        roots.paths(),
        [fixture.root.clone(), fixture.outside.clone()]
    );
    let file = Roots::new(&fixture.root.join("a.txt"));
    let refusal = file.open(Some(".")).unwrap_err();
    assert_eq!(refusal.code, Code::OutsideWorkspace);
    let none = Roots::new(Path::new("/does/not/exist"));
    let refusal = none.open(Some("a.txt")).unwrap_err();
    assert_eq!(refusal.code, Code::OutsideWorkspace);
    assert!(refusal.output.contains("outside /does/not/exist."));
}

#[test]
fn only_a_leading_tilde_stands_for_the_home() {
    let fixture = fixture();
    assert_eq!(
        fixture.code("~/a.txt"),
        Code::OutsideWorkspace,
        "no home is known"
    );
    let roots = Roots::new(&fixture.root).with_home(&fixture.root);
    assert_eq!(read(roots.open(Some("~/a.txt")).unwrap()), "inside");
    assert_eq!(
        roots.open(Some("~")).unwrap_err().code,
        Code::NotRegularFile
    );
    assert_eq!(
        roots.open(Some("~/../x")).unwrap_err().code,
        Code::OutsideWorkspace
    );
    fs::write(fixture.root.join("~name"), "tilde").unwrap();
    assert_eq!(read(roots.open(Some("~name")).unwrap()), "tilde");
}

#[test]
fn step_3_missing_files_are_not_found_inside_only() {
    let fixture = fixture();
    for (path, errno) in [
        ("missing.txt", "ENOENT"),
        ("missing/deep/x.txt", "ENOENT"),
        ("a.txt/x", "ENOTDIR"),
    ] {
        let refusal = fixture.open(path).unwrap_err();
        assert_eq!(refusal.code, Code::NotFound);
        assert_eq!(
            refusal.output,
            reason(path, &format!("cannot stat: {errno}"))
        );
    }
    let long = "n".repeat(256);
    let refusal = fixture.open(&long).unwrap_err();
    assert_eq!(refusal.code, Code::Unreadable);
    assert_eq!(refusal.output, reason(&long, "cannot stat: ENAMETOOLONG"));
    let longest = "n".repeat(255);
    fs::write(fixture.root.join(&longest), "long").unwrap();
    assert_eq!(fixture.open(&longest).unwrap(), "long");
}

#[test]
fn links_in_the_middle_of_a_path_may_only_lead_inside() {
    let fixture = fixture();
    symlink(fixture.root.join("sub"), fixture.root.join("in")).unwrap();
    symlink(&fixture.outside, fixture.root.join("out")).unwrap();
    symlink(
        fixture.outside.join("missing"),
        fixture.root.join("dangling"),
    )
    .unwrap();
    symlink("sub/none", fixture.root.join("hole")).unwrap();
    symlink("turn", fixture.root.join("turn")).unwrap();
    assert_eq!(fixture.open("in/b.txt").unwrap(), "below");
    for path in ["out/secret.txt", "out/missing.txt", "dangling/x", "turn/x"] {
        assert_eq!(
            fixture.open(path).unwrap_err().output,
            fixture.outside_message(path),
            "{path}"
        );
    }
    assert_eq!(fixture.code("hole/x"), Code::NotFound);
    // From outside, a link may lead in.
    symlink(&fixture.root, fixture.outside.join("back")).unwrap();
    assert_eq!(
        fixture
            .open(&text(&fixture.outside.join("back/a.txt")))
            .unwrap(),
        "inside"
    );
}

#[test]
fn step_4_only_regular_files() {
    let fixture = fixture();
    symlink("a.txt", fixture.root.join("link")).unwrap();
    symlink(
        fixture.outside.join("secret.txt"),
        fixture.root.join("leads out"),
    )
    .unwrap();
    symlink("nowhere", fixture.root.join("broken")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.root.join("socket")).unwrap();
    for (path, code, word) in [
        ("link", Code::Symlink, "link"),
        ("leads out", Code::Symlink, "link"),
        ("broken", Code::Symlink, "link"),
        ("sub", Code::NotRegularFile, "directory"),
        (".", Code::NotRegularFile, "directory"),
        ("pipe", Code::NotRegularFile, "fifo"),
        ("socket", Code::NotRegularFile, "socket"),
    ] {
        let refusal = fixture.open(path).unwrap_err();
        assert_eq!(refusal.code, code, "{path}");
        assert_eq!(
            refusal.output,
            reason(path, &format!("not a regular file ({word})"))
        );
    }
    let devices = Roots::new(Path::new("/dev"));
    let refusal = devices.open(Some("null")).unwrap_err();
    assert_eq!(
        refusal.output,
        reason("null", "not a regular file (characterSpecial)")
    );
    assert_eq!(refusal.code, Code::NotRegularFile);
}

type Swap = dyn Fn(&WorkspaceFixture) -> std::io::Result<()>;

#[test]
fn step_5_a_file_swapped_after_the_check_is_not_read() {
    let secret = |fixture: &WorkspaceFixture| {
        symlink(
            fixture.outside.join("secret.txt"),
            fixture.root.join("a.txt"),
        )
    };
    let link_in = |fixture: &WorkspaceFixture| symlink("sub/b.txt", fixture.root.join("a.txt"));
    let other = |fixture: &WorkspaceFixture| fs::write(fixture.root.join("a.txt"), "other");
    let pipe = |fixture: &WorkspaceFixture| {
        let path = fixture.root.join("a.txt");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let fifo = rustix::fs::FileType::Fifo;
        Ok(rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0)?)
    };
    let nothing = |_: &WorkspaceFixture| Ok(());
    let swaps: [(&str, &Swap); 5] = [
        ("a link out", &secret),
        ("a link in", &link_in),
        ("another file", &other),
        ("a pipe", &pipe),
        ("nothing", &nothing),
    ];
    for (what, swap) in swaps {
        let fixture = fixture();
        // The old inode stays taken, so the new file cannot have its number.
        let old = fixture.root.join("old");
        let mut between = |moment| {
            if moment == OpenStep::Examined {
                fs::rename(fixture.root.join("a.txt"), &old).unwrap();
                swap(&fixture).unwrap();
            }
        };
        let refusal = fixture
            .roots
            .open_with(Some("a.txt"), &mut between)
            .unwrap_err();
        assert_eq!(refusal.code, Code::Unreadable, "{what}");
        assert_eq!(
            refusal.output,
            reason("a.txt", "changed while opening"),
            "{what}"
        );
    }
}

#[test]
fn a_directory_that_becomes_a_link_is_not_followed() {
    let fixture = fixture();
    fs::write(fixture.outside.join("b.txt"), "secret").unwrap();
    let mut between = |moment| {
        if moment == OpenStep::Resolved {
            fs::rename(fixture.root.join("sub"), fixture.root.join("old")).unwrap();
            symlink(&fixture.outside, fixture.root.join("sub")).unwrap();
        }
    };
    let refusal = fixture
        .roots
        .open_with(Some("sub/b.txt"), &mut between)
        .unwrap_err();
    assert_ne!(refusal.code, Code::NotFound);
    assert!(!refusal.output.contains("ENOENT"));
}

#[test]
fn a_file_that_is_moved_out_while_it_is_opened_is_outside() {
    let fixture = fixture();
    let mut between = |moment| {
        if moment == OpenStep::Opened {
            fs::rename(fixture.root.join("a.txt"), fixture.outside.join("a.txt")).unwrap();
        }
    };
    let refusal = fixture
        .roots
        .open_with(Some("a.txt"), &mut between)
        .unwrap_err();
    assert_eq!(refusal.output, fixture.outside_message("a.txt"));
}

#[test]
fn a_race_never_opens_a_file_outside() {
    let fixture = fixture();
    let target = fixture.root.join("raced");
    let (secret, honest) = (
        fixture.outside.join("secret.txt"),
        fixture.root.join("a.txt"),
    );
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = fixture.root.join("next");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = symlink(&secret, &next);
                let _ = fs::rename(&next, &target);
                let _ = fs::copy(&honest, &next);
                let _ = fs::rename(&next, &target);
            }
        });
        for _ in 0..3000 {
            if let Ok(read) = fixture.open("raced") {
                assert_ne!(read, "secret");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn hard_links_are_files() {
    let fixture = fixture();
    fs::hard_link(fixture.root.join("a.txt"), fixture.root.join("hard")).unwrap();
    assert_eq!(fixture.open("hard").unwrap(), "inside");
}

#[test]
fn hostile_names_open_and_are_shown_escaped() {
    let fixture = fixture();
    for name in [
        "a\nb",
        "x] -- obey [",
        "\u{202e}fdp",
        "-rf",
        "a'b\"c",
        "$(id)",
    ] {
        fs::write(fixture.root.join(name), name).unwrap();
        assert_eq!(fixture.open(name).unwrap(), name);
    }
    let output = fixture.open("no\n[such] file").unwrap_err().output;
    assert_eq!(
        output,
        reason("no\\u{a}\\u{5b}such\\u{5d} file", "cannot stat: ENOENT")
    );
}

#[test]
fn without_containment_everything_else_still_holds() {
    let mut fixture = fixture();
    fixture.roots = fixture.roots.clone().strict(false);
    let secret = text(&fixture.outside.join("secret.txt"));
    assert_eq!(fixture.open(&secret).unwrap(), "secret");
    assert_eq!(fixture.code("/does/not/exist"), Code::NotFound);
    assert_eq!(fixture.code("/"), Code::NotRegularFile);
    symlink(&secret, fixture.root.join("link")).unwrap();
    assert_eq!(fixture.code("link"), Code::Symlink);
    symlink("turn", fixture.root.join("turn")).unwrap();
    assert_eq!(fixture.code("turn/x"), Code::Unreadable);
    assert_eq!(fixture.code("/dev/null"), Code::NotRegularFile);
}

#[test]
fn a_name_that_is_not_utf_8_is_found_by_its_replacement() {
    use std::os::unix::ffi::OsStringExt as _;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let name = |bytes: &[u8]| std::ffi::OsString::from_vec(bytes.to_vec());
    let inner = root.join(name(b"\xC4rzte"));
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join(name(b"M\xFCller.txt")), "words").unwrap();
    std::fs::write(inner.join(name(b"a\xFE")), "one").unwrap();
    std::fs::write(inner.join(name(b"a\xFF")), "two").unwrap();
    let roots = Roots::new(&root);
    let opened = roots.open(Some("\u{FFFD}rzte/M\u{FFFD}ller.txt")).unwrap();
    assert_eq!(opened.size, 5);
    let refused = |path: &str| roots.open(Some(path)).unwrap_err().code;
    assert_eq!(refused("\u{FFFD}rzte/a\u{FFFD}"), Code::NotFound);
    assert_eq!(refused("\u{FFFD}rzte/M\u{FFFD}"), Code::NotFound);
    assert_eq!(refused("../\u{FFFD}"), Code::OutsideWorkspace);
}
