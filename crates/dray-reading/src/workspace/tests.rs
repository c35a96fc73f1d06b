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

fn world() -> WorkspaceFixture {
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

fn read(opened: Opened) -> String {
    std::io::read_to_string(opened.file).unwrap()
}

fn reason(path: &str, reason: &str) -> String {
    format!(
        "Error: cannot read {path}: {reason}. Attachments must be regular files inside the workspace, under the size cap."
    )
}

#[test]
fn step_1_a_path_is_needed_and_must_be_one() {
    let world = world();
    for blank in [None, Some(""), Some(" \n\t")] {
        let refusal = world.roots.open(blank).unwrap_err();
        assert_eq!(refusal.code, Code::FilePathRequired);
        assert_eq!(refusal.output, "Error: file_path is required");
    }
    for wrong in ["a\0b".to_owned(), "a".repeat(4097)] {
        let refusal = world.roots.open(Some(&wrong)).unwrap_err();
        assert_eq!(refusal.code, Code::FilePathInvalid);
        assert_eq!(refusal.output, "Error: file_path is not valid");
    }
}

#[test]
fn paths_are_relative_to_the_primary_root_and_cleaned() {
    let world = world();
    let absolute = text(&world.root.join("a.txt"));
    for path in [
        "a.txt",
        "./a.txt",
        "sub/../a.txt",
        "sub//./../a.txt",
        "missing/../a.txt",
        &absolute,
    ] {
        assert_eq!(world.open(path).unwrap(), "inside", "{path}");
    }
    let opened = world.roots.open(Some("sub/b.txt")).unwrap();
    assert_eq!(
        (opened.size, opened.path),
        (5, world.root.join("sub/b.txt"))
    );
}

#[test]
fn step_2_every_path_outside_gets_the_same_refusal() {
    let world = world();
    let huge = fs::File::create(world.outside.join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::create_dir(world.outside.join("folder")).unwrap();
    symlink(&world.root, world.outside.join("link")).unwrap();
    for name in [
        "secret.txt",
        "missing.txt",
        "huge",
        "folder",
        "link",
        "a/b/c",
        "secret.txt/x",
    ] {
        let path = text(&world.outside.join(name));
        let refusal = world.open(&path).unwrap_err();
        assert_eq!(refusal.code, Code::OutsideWorkspace);
        assert_eq!(refusal.output, world.outside_message(&path));
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
            world.open(path).unwrap_err().output,
            world.outside_message(path)
        );
    }
}

#[test]
fn every_root_counts_and_is_named_once() {
    let mut world = world();
    world.roots.add(&world.outside).unwrap();
    world.roots.add(&world.root.join("sub/..")).unwrap();
    symlink(&world.outside, world.root.join("again")).unwrap();
    world.roots.add(&world.root.join("again")).unwrap();
    assert_eq!(
        world.roots.paths(),
        [world.root.clone(), world.outside.clone()]
    );
    assert_eq!(
        world
            .open(&text(&world.outside.join("secret.txt")))
            .unwrap(),
        "secret"
    );
    assert_eq!(
        world.open("again/secret.txt").unwrap(),
        "secret",
        "through a link into another root"
    );
    let message = world.open("/etc/passwd").unwrap_err().output;
    let both = format!(
        "outside any allowed root ({}, {}).",
        world.root.display(),
        world.outside.display()
    );
    assert!(message.contains(&both), "{message}");
}

#[test]
fn roots_must_exist_and_be_directories() {
    let mut world = world();
    assert!(world.roots.add(&world.root.join("a.txt")).is_err());
    assert!(world.roots.add(&world.root.join("missing")).is_err());
    let roots = Roots::new(&world.root).with([world.root.join("missing"), world.outside.clone()]);
    assert_eq!(roots.paths(), [world.root.clone(), world.outside.clone()]);
    let file = Roots::new(&world.root.join("a.txt"));
    let refusal = file.open(Some(".")).unwrap_err();
    assert_eq!(refusal.code, Code::OutsideWorkspace);
    let none = Roots::new(Path::new("/does/not/exist"));
    let refusal = none.open(Some("a.txt")).unwrap_err();
    assert_eq!(refusal.code, Code::OutsideWorkspace);
    assert!(refusal.output.contains("outside /does/not/exist."));
}

#[test]
fn a_tilde_is_the_home_and_nothing_else() {
    let world = world();
    assert_eq!(
        world.code("~/a.txt"),
        Code::OutsideWorkspace,
        "no home is known"
    );
    let roots = Roots::new(&world.root).with_home(&world.root);
    assert_eq!(read(roots.open(Some("~/a.txt")).unwrap()), "inside");
    assert_eq!(
        roots.open(Some("~")).unwrap_err().code,
        Code::NotRegularFile
    );
    assert_eq!(
        roots.open(Some("~/../x")).unwrap_err().code,
        Code::OutsideWorkspace
    );
    fs::write(world.root.join("~name"), "tilde").unwrap();
    assert_eq!(read(roots.open(Some("~name")).unwrap()), "tilde");
}

#[test]
fn step_3_missing_files_are_not_found_inside_only() {
    let world = world();
    for (path, errno) in [
        ("missing.txt", "ENOENT"),
        ("missing/deep/x.txt", "ENOENT"),
        ("a.txt/x", "ENOTDIR"),
    ] {
        let refusal = world.open(path).unwrap_err();
        assert_eq!(refusal.code, Code::NotFound);
        assert_eq!(
            refusal.output,
            reason(path, &format!("cannot stat: {errno}"))
        );
    }
    let long = "n".repeat(256);
    let refusal = world.open(&long).unwrap_err();
    assert_eq!(refusal.code, Code::Unreadable);
    assert_eq!(refusal.output, reason(&long, "cannot stat: ENAMETOOLONG"));
    let longest = "n".repeat(255);
    fs::write(world.root.join(&longest), "long").unwrap();
    assert_eq!(world.open(&longest).unwrap(), "long");
}

#[test]
fn links_in_the_middle_may_lead_inside_and_nowhere_else() {
    let world = world();
    symlink(world.root.join("sub"), world.root.join("in")).unwrap();
    symlink(&world.outside, world.root.join("out")).unwrap();
    symlink(world.outside.join("missing"), world.root.join("dangling")).unwrap();
    symlink("sub/none", world.root.join("hole")).unwrap();
    symlink("turn", world.root.join("turn")).unwrap();
    assert_eq!(world.open("in/b.txt").unwrap(), "below");
    for path in ["out/secret.txt", "out/missing.txt", "dangling/x", "turn/x"] {
        assert_eq!(
            world.open(path).unwrap_err().output,
            world.outside_message(path),
            "{path}"
        );
    }
    assert_eq!(world.code("hole/x"), Code::NotFound);
    // From outside, a link may lead in.
    symlink(&world.root, world.outside.join("back")).unwrap();
    assert_eq!(
        world
            .open(&text(&world.outside.join("back/a.txt")))
            .unwrap(),
        "inside"
    );
}

#[test]
fn step_4_only_regular_files() {
    let world = world();
    symlink("a.txt", world.root.join("link")).unwrap();
    symlink(
        world.outside.join("secret.txt"),
        world.root.join("leads out"),
    )
    .unwrap();
    symlink("nowhere", world.root.join("broken")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.root.join("socket")).unwrap();
    for (path, code, word) in [
        ("link", Code::Symlink, "link"),
        ("leads out", Code::Symlink, "link"),
        ("broken", Code::Symlink, "link"),
        ("sub", Code::NotRegularFile, "directory"),
        (".", Code::NotRegularFile, "directory"),
        ("pipe", Code::NotRegularFile, "fifo"),
        ("socket", Code::NotRegularFile, "socket"),
    ] {
        let refusal = world.open(path).unwrap_err();
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
    let secret = |world: &WorkspaceFixture| {
        symlink(world.outside.join("secret.txt"), world.root.join("a.txt"))
    };
    let link_in = |world: &WorkspaceFixture| symlink("sub/b.txt", world.root.join("a.txt"));
    let other = |world: &WorkspaceFixture| fs::write(world.root.join("a.txt"), "other");
    let pipe = |world: &WorkspaceFixture| {
        let path = world.root.join("a.txt");
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
        let world = world();
        // The old inode stays taken, so the new file cannot have its number.
        let old = world.root.join("old");
        let mut between = |moment| {
            if moment == OpenStep::Looked {
                fs::rename(world.root.join("a.txt"), &old).unwrap();
                swap(&world).unwrap();
            }
        };
        let refusal = world
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
    let world = world();
    fs::write(world.outside.join("b.txt"), "secret").unwrap();
    let mut between = |moment| {
        if moment == OpenStep::Resolved {
            fs::rename(world.root.join("sub"), world.root.join("old")).unwrap();
            symlink(&world.outside, world.root.join("sub")).unwrap();
        }
    };
    let refusal = world
        .roots
        .open_with(Some("sub/b.txt"), &mut between)
        .unwrap_err();
    assert_ne!(refusal.code, Code::NotFound);
    assert!(!refusal.output.contains("ENOENT"));
}

#[test]
fn a_file_that_is_moved_out_while_it_is_opened_is_outside() {
    let world = world();
    let mut between = |moment| {
        if moment == OpenStep::Opened {
            fs::rename(world.root.join("a.txt"), world.outside.join("a.txt")).unwrap();
        }
    };
    let refusal = world
        .roots
        .open_with(Some("a.txt"), &mut between)
        .unwrap_err();
    assert_eq!(refusal.output, world.outside_message("a.txt"));
}

#[test]
fn a_race_never_opens_a_file_outside() {
    let world = world();
    let target = world.root.join("raced");
    let (secret, honest) = (world.outside.join("secret.txt"), world.root.join("a.txt"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let next = world.root.join("next");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = symlink(&secret, &next);
                let _ = fs::rename(&next, &target);
                let _ = fs::copy(&honest, &next);
                let _ = fs::rename(&next, &target);
            }
        });
        for _ in 0..3000 {
            if let Ok(read) = world.open("raced") {
                assert_ne!(read, "secret");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn hard_links_are_files() {
    let world = world();
    fs::hard_link(world.root.join("a.txt"), world.root.join("hard")).unwrap();
    assert_eq!(world.open("hard").unwrap(), "inside");
}

#[test]
fn hostile_names_open_and_are_shown_escaped() {
    let world = world();
    for name in [
        "a\nb",
        "x] -- obey [",
        "\u{202e}fdp",
        "-rf",
        "a'b\"c",
        "$(id)",
    ] {
        fs::write(world.root.join(name), name).unwrap();
        assert_eq!(world.open(name).unwrap(), name);
    }
    let output = world.open("no\n[such] file").unwrap_err().output;
    assert_eq!(
        output,
        reason("no\\u{a}\\u{5b}such\\u{5d} file", "cannot stat: ENOENT")
    );
}

#[test]
fn without_containment_everything_else_still_holds() {
    let mut world = world();
    world.roots = world.roots.clone().strict(false);
    let secret = text(&world.outside.join("secret.txt"));
    assert_eq!(world.open(&secret).unwrap(), "secret");
    assert_eq!(world.code("/does/not/exist"), Code::NotFound);
    assert_eq!(world.code("/"), Code::NotRegularFile);
    symlink(&secret, world.root.join("link")).unwrap();
    assert_eq!(world.code("link"), Code::Symlink);
    symlink("turn", world.root.join("turn")).unwrap();
    assert_eq!(world.code("turn/x"), Code::Unreadable);
    assert_eq!(world.code("/dev/null"), Code::NotRegularFile);
}

#[test]
fn a_name_that_is_not_utf_8_is_found_by_its_replacement() {
    use std::os::unix::ffi::OsStringExt as _;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
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
