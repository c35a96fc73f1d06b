//! `dray sandbox put`, `get` and `cp` of directories and several files, and transfers that a later command continues.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_testkit::docker::{ContainerOptions, DockerEngine};
use serde_json::Value;

use super::{CliHome, line};
use crate::support;

/// Bytes after which an interrupted copy is killed; the files have three times as many.
const KILLED_AFTER_BYTES: usize = 4 << 20;

/// A home with two sandboxes beside the current directory.
struct CopyFixture {
    home: CliHome,
    current_directory: PathBuf,
}

impl CopyFixture {
    fn new() -> Self {
        let home = CliHome::new();
        let path = |name: &str| home.0.path().join(name);
        for name in ["here", "a", "b"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        Self {
            current_directory: path("here"),
            home,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.home.dray(&["sandbox"]);
        command
            .args(arguments)
            .arg("--json")
            .current_dir(&self.current_directory);
        command.output().unwrap()
    }

    /// Runs a copy, which must succeed.
    #[track_caller]
    fn copy(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        line(&output)
    }

    /// Runs a copy that the kernel kills when it has written [`KILLED_AFTER_BYTES`] bytes to one file.
    fn kill(&self, arguments: &[&str]) {
        let mut command = Command::new("bash");
        command
            .env_clear()
            .env("HOME", self.home.0.path())
            .args([
                "-c",
                "ulimit -c 0; ulimit -f $1; shift; exec \"$@\"",
                "limited",
            ])
            .arg((KILLED_AFTER_BYTES / 1024).to_string())
            .arg(support::dray())
            .arg("sandbox")
            .args(arguments)
            .current_dir(&self.current_directory);
        let killed = command.output().unwrap();
        assert_eq!(killed.status.code(), None, "{killed:?}");
    }

    /// The sorted names in a directory, hidden ones included.
    fn names(&self, directory: &str) -> Vec<String> {
        names(&self.path(directory))
    }
}

/// The sorted names in a directory, hidden ones included.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A tree with names, modes and entries that a copy could lose.
fn create_tree(fixture: &CopyFixture, root: &str) {
    fixture.write(&format!("{root}/-dash.txt"), "dash");
    fixture.write(&format!("{root}/a b: c.txt"), "colon");
    fixture.write(&format!("{root}/deep/er/run.sh"), "#!/bin/sh\n");
    fixture.write(&format!("{root}/empty.txt"), "");
    std::fs::create_dir_all(fixture.path(root).join("nothing/in here")).unwrap();
    let script = fixture.path(root).join("deep/er/run.sh");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("empty.txt", fixture.path(root).join("link")).unwrap();
}

#[track_caller]
fn check_tree(root: &Path) {
    assert_eq!(
        names(root),
        ["-dash.txt", "a b: c.txt", "deep", "empty.txt", "nothing"]
    );
    assert_eq!(
        std::fs::read_to_string(root.join("a b: c.txt")).unwrap(),
        "colon"
    );
    assert_eq!(names(&root.join("nothing")), ["in here"]);
    assert!(mode(&root.join("deep/er/run.sh")) & 0o100 != 0);
    assert!(mode(&root.join("a b: c.txt")) & 0o100 == 0);
}

#[test]
fn a_directory_and_several_files_are_put_and_skipped_when_unchanged() {
    let fixture = CopyFixture::new();
    create_tree(&fixture, "here/tree");
    fixture.write("here/-x.txt", "x");
    let put = ["put", "--", "tree", "-x.txt", "local:../a", "in/to"];
    let put_all = |existed: bool| {
        let output = fixture
            .home
            .dray(&["sandbox", "--json"])
            .args(put)
            .current_dir(&fixture.current_directory)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let report = line(&output);
        assert_eq!(report["files"].as_array().unwrap().len(), 5, "{report}");
        for file in report["files"].as_array().unwrap() {
            assert_eq!(file["existed"], existed, "{file}");
            assert_eq!(file["sha256"].as_str().unwrap().len(), 64);
        }
        assert_eq!(report["skipped"].as_array().unwrap().len(), 1, "{report}");
        assert!(report["skipped"][0].as_str().unwrap().starts_with("link: "));
    };
    put_all(false);
    put_all(true);
    check_tree(&fixture.path("a/in/to/tree"));
    assert_eq!(fixture.read("a/in/to/-x.txt"), "x");
}

#[test]
fn files_that_cannot_be_copied_are_named_and_the_rest_arrives() {
    let fixture = CopyFixture::new();
    fixture.write("here/one.txt", "one");
    fixture.write("here/two.txt", "two");
    fixture.write("a/two.txt", "another");
    let put = fixture.run(&[
        "put",
        "one.txt",
        "none.txt",
        "two.txt",
        "local:../a",
        "--collision",
        "fail",
    ]);
    assert_eq!(put.status.code(), Some(1), "{put:?}");
    let report = line(&put);
    assert_eq!(report["files"].as_array().unwrap().len(), 1);
    let failed = report["failed"].as_array().unwrap();
    let mut reasons: Vec<_> = failed
        .iter()
        .map(|failed| (failed["from"].clone(), failed["fault"]["detail"].clone()))
        .collect();
    reasons.sort_by_key(|(from, _)| from.to_string());
    let expected = [("none.txt", "not_found"), ("two.txt", "exists")];
    assert_eq!(
        reasons,
        expected.map(|(from, reason)| (from.into(), reason.into()))
    );
    assert_eq!(fixture.names("a"), ["one.txt", "two.txt"]);
    assert_eq!(fixture.read("a/two.txt"), "another");
}

#[test]
fn cp_names_its_targets_as_the_unix_cp_does() {
    let fixture = CopyFixture::new();
    create_tree(&fixture, "a/tree");
    let (a, b) = (fixture.path("a"), fixture.path("b"));
    let location = |sandbox: &Path, path: &str| {
        let root = sandbox.display();
        format!("local:{root}:{root}/{path}")
    };
    let copied = fixture.copy(&["cp", &location(&a, "tree"), &location(&b, "new")]);
    assert_eq!(copied["files"].as_array().unwrap().len(), 4, "{copied}");
    for file in copied["files"].as_array().unwrap() {
        assert!(
            file["receipt"]["sha256"] == file["read_receipt"]["sha256"],
            "{file}"
        );
    }
    check_tree(&b.join("new"));
    fixture.copy(&["cp", &location(&a, "tree"), &location(&b, "new")]);
    check_tree(&b.join("new/tree"));
    fixture.copy(&["cp", &location(&a, "tree/."), &location(&b, "flat/")]);
    check_tree(&b.join("flat"));
    fixture.copy(&["cp", &location(&a, "tree/."), "out"]);
    check_tree(&fixture.path("here/out"));
    fixture.copy(&["cp", "out/a b: c.txt", &location(&b, "renamed:.txt")]);
    assert_eq!(fixture.read("b/renamed:.txt"), "colon");
    fixture.write("here/renamed:.txt", "mine");
    fixture.copy(&[
        "cp",
        &location(&b, "renamed:.txt"),
        ".",
        "--collision",
        "rename",
    ]);
    assert_eq!(fixture.read("here/renamed: (2).txt"), "colon");
    let refused = fixture.run(&[
        "cp",
        &location(&b, "renamed:.txt"),
        ".",
        "--collision",
        "fail",
    ]);
    assert_eq!(line(&refused)["failed"][0]["fault"]["detail"], "exists");
    assert_eq!(fixture.read("here/renamed:.txt"), "mine");
    fixture.copy(&["cp", &location(&b, "renamed:.txt"), "."]);
    assert_eq!(fixture.read("here/renamed:.txt"), "colon");
}

#[test]
fn an_invalid_copy_is_a_usage_error() {
    let fixture = CopyFixture::new();
    fixture.write("here/x", "x");
    for arguments in [
        &["cp", "x", "y"][..],
        &["cp", "-", "local:../a:/x"],
        &["cp", "x", "x", "local:../a:./no/directory"],
        &["put", "x", "x", "local:../a", "--name", "y"],
        &["put", "-", "local:../a", "--name", "y", "--resume"],
        &["get", "local:../a", "x", "y", "-o", "no-directory"],
        &["cp", "local:../a:./x", "local:../b:./x", "--resume"],
    ] {
        let refused = fixture.run(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn several_paths_are_fetched_into_one_directory() {
    let fixture = CopyFixture::new();
    fixture.write("a/x/same.txt", "1");
    fixture.write("a/y/same.txt", "2");
    std::fs::create_dir(fixture.path("here/out")).unwrap();
    let fetched = fixture.run(&[
        "get",
        "local:../a",
        "x/same.txt",
        "none",
        "y/same.txt",
        "-o",
        "out",
    ]);
    assert_eq!(fetched.status.code(), Some(1), "{fetched:?}");
    let report = line(&fetched);
    assert_eq!(report["failed"][0]["fault"]["detail"], "not_found");
    assert_eq!(fixture.names("here/out"), ["same (2).txt", "same.txt"]);
    assert_eq!(fixture.read("here/out/same (2).txt"), "2");
}

/// Content of which an interrupted copy writes a third.
fn large_content() -> Vec<u8> {
    (0..251_u8).cycle().take(3 * KILLED_AFTER_BYTES).collect()
}

#[test]
fn a_killed_get_is_resumed_and_restarts_when_the_file_changed() {
    let fixture = CopyFixture::new();
    fixture.write("a/big", large_content());
    let get = ["get", "local:../a", "big", "--resume"];
    fixture.kill(&get);
    assert_eq!(fixture.names("here").len(), 1, "the partial file stays");
    let resumed = fixture.copy(&get);
    assert_eq!(resumed["receipt"]["resumed"], true, "{resumed}");
    assert!(
        resumed["receipt"]["integrity"]
            .as_str()
            .unwrap()
            .starts_with("sha256")
    );
    assert!(std::fs::read(fixture.path("here/big")).unwrap() == large_content());
    assert_eq!(fixture.names("here"), ["big"]);
    std::fs::remove_file(fixture.path("here/big")).unwrap();
    fixture.kill(&get);
    fixture.write("a/big", [large_content(), b"more".to_vec()].concat());
    let output = fixture.run(&get);
    assert_eq!(line(&output)["receipt"]["resumed"], false, "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("copied from its beginning"), "{stderr}");
    assert_eq!(fixture.names("here"), ["big"]);
}

#[test]
fn a_killed_put_is_resumed_and_leaves_no_temporary_file() {
    let fixture = CopyFixture::new();
    fixture.write("here/big", large_content());
    let put = ["put", "big", "local:../a", "--resume"];
    fixture.kill(&put);
    assert_eq!(fixture.names("a").len(), 1, "the partial file stays");
    let placed = fixture.copy(&put);
    assert_eq!(placed["receipt"]["resumed"], true, "{placed}");
    assert!(std::fs::read(fixture.path("a/big")).unwrap() == large_content());
    assert_eq!(fixture.names("a"), ["big"]);
}

#[test]
fn cp_between_two_containers_streams_and_the_engine_is_named_by_docker_host() {
    let engine = DockerEngine::shared();
    let (one, two) = (
        engine.container(ContainerOptions::default()),
        engine.container(ContainerOptions::default()),
    );
    one.sh("mkdir -p '/tmp/t/e mpty' && head -c 3000000 /dev/urandom > '/tmp/t/b:ig' && printf x > /tmp/t/-x");
    let fixture = CopyFixture::new();
    let host = format!("unix://{}", engine.socket().display());
    let (from, to) = (
        format!("docker:{}:/tmp/t", one.name()),
        format!("docker:{}:/tmp/copy", two.name()),
    );
    let copied = fixture
        .home
        .dray(&["sandbox", "cp", "--json", &from, &to])
        .env("DOCKER_HOST", host)
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let report = line(&copied);
    assert_eq!(report["files"].as_array().unwrap().len(), 2, "{report}");
    let digest = |container: &dray_testkit::docker::Container, directory: &str| {
        container.sh(&format!("cd {directory} && sha256sum ./b:ig ./-x && ls -A"))
    };
    assert_eq!(digest(&one, "/tmp/t"), digest(&two, "/tmp/copy"));
}

#[test]
fn many_directories_are_made_where_some_exist_and_none_through_a_link_that_leads_out() {
    let fixture = CopyFixture::new();
    for number in 0..40 {
        std::fs::create_dir_all(fixture.path(&format!("here/tree/d{number}/-a b/c"))).unwrap();
    }
    fixture.write("here/tree/d7/-a b/c/file.txt", "seven");
    let sandbox = format!("local:{}", fixture.path("a").display());
    std::fs::create_dir_all(fixture.path("a/tree/d3")).unwrap();
    std::fs::create_dir(fixture.path("a/inside")).unwrap();
    symlink("../inside", fixture.path("a/tree/d4")).unwrap();
    fixture.copy(&["put", "tree", &sandbox, "."]);
    for number in 0..40 {
        let made = fixture.path(&format!("a/tree/d{number}/-a b/c"));
        assert!(made.is_dir(), "{number}");
        assert_eq!(mode(&made), 0o755);
    }
    assert_eq!(fixture.read("a/tree/d7/-a b/c/file.txt"), "seven");
    // A link inside the sandbox is followed, as for a single directory.
    assert!(fixture.path("a/inside/-a b/c").is_dir());
    let sandbox = format!("local:{}", fixture.path("b").display());
    std::fs::create_dir(fixture.path("outside")).unwrap();
    std::fs::create_dir(fixture.path("b/tree")).unwrap();
    symlink("../../outside", fixture.path("b/tree/d4")).unwrap();
    let refused = fixture.run(&["put", "tree", &sandbox, "."]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(fixture.names("outside").is_empty());
}

#[test]
fn a_tree_of_many_levels_is_copied_whole() {
    let fixture = CopyFixture::new();
    let file = format!("{}file.txt", "d/".repeat(70));
    fixture.write(&format!("here/tree/{file}"), "deep");
    let sandbox = format!("local:{}", fixture.path("a").display());
    fixture.copy(&["put", "tree", &sandbox, "."]);
    assert_eq!(fixture.read(&format!("a/tree/{file}")), "deep");
    fixture.copy(&["cp", "local:../a:./tree", "back"]);
    assert_eq!(fixture.read(&format!("here/back/{file}")), "deep");
}

#[test]
fn a_directory_that_cannot_be_read_is_named_and_the_rest_arrives() {
    let fixture = CopyFixture::new();
    fixture.write("a/tree/locked/lost.txt", "lost");
    fixture.write("a/tree/file.txt", "kept");
    let allow = |name: &str, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(fixture.path(name), permissions).unwrap();
    };
    allow("", 0o755);
    allow("a/tree/locked", 0);
    // Root can read every directory, so the commands of the sandbox run as another user.
    let command = match std::fs::metadata("/proc/self").unwrap().uid() {
        0 => r#"["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]"#,
        _ => r#"["env"]"#,
    };
    let (tree, config) = (fixture.path("a/tree"), fixture.path("box.toml"));
    let (tree, config) = (tree.to_str().unwrap(), config.to_str().unwrap());
    let settings =
        format!("[sandbox-transfer]\nexec.box.command = {command}\npolicy.roots = [{tree:?}]\n");
    fixture.write("box.toml", settings);
    let from = format!("exec:box:{tree}");
    let copied = fixture.run(&["cp", &from, "copy", "--config", config]);
    let fetched = fixture.copy(&["get", "exec:box", tree, "-o", "t.zip", "--config", config]);
    allow("a/tree/locked", 0o700);
    assert_eq!(copied.status.code(), Some(1), "{copied:?}");
    assert_eq!(
        line(&copied)["failed"][0]["fault"]["detail"],
        "permission_denied"
    );
    assert_eq!(fixture.read("here/copy/file.txt"), "kept");
    let skipped = serde_json::json!(["could not be read: locked"]);
    assert_eq!(fetched["skipped"], skipped);
}

#[test]
fn a_listing_says_how_many_entries_policy_leaves_out() {
    let fixture = CopyFixture::new();
    fixture.write("a/report.txt", "text");
    fixture.write("a/.env", "KEY=1");
    fixture.write("a/.netrc", "login");
    let sandbox = format!("local:{}", fixture.path("a").display());
    let listing = fixture.copy(&["ls", &sandbox]);
    assert_eq!(listing["entries"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&listing["denied"], &listing["truncated"]),
        (&2.into(), &false.into())
    );
    let output = fixture.home.run(&["sandbox", "ls", &sandbox]);
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(notes.contains("refuses them: 2."), "{notes}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1);
}

#[test]
fn the_document_of_a_fetched_directory_names_what_is_not_in_it() {
    let fixture = CopyFixture::new();
    create_tree(&fixture, "tree");
    let sandbox = format!("local:{}", fixture.path("").display());
    for format in [&[][..], &["--tar"]] {
        let arguments = [&["get", &sandbox, "tree", "--output", "packed"], format].concat();
        let document = fixture.copy(&arguments);
        assert_eq!(document["skipped"], serde_json::json!(["a link: link"]));
    }
    let whole = fixture.copy(&["get", &sandbox, "tree/empty.txt", "--output", "empty"]);
    assert_eq!(whole["skipped"], serde_json::json!([]));
}

#[test]
fn names_with_the_same_text_are_distinguished_in_the_document() {
    use std::os::unix::ffi::OsStrExt as _;

    let fixture = CopyFixture::new();
    fixture.write("a/report?.txt", "question mark");
    for name in [&b"report\n.txt"[..], b"report\xff.txt"] {
        let path = fixture.path("a").join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, "other").unwrap();
    }
    let sandbox = format!("local:{}", fixture.path("a").display());
    let listing = fixture.copy(&["ls", &sandbox]);
    let entries = listing["entries"].as_array().unwrap();
    let mut exact: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry["path_base64"].as_str())
        .map(|text| STANDARD.decode(text).unwrap())
        .map(|path| path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec())
        .collect();
    exact.sort();
    assert_eq!(exact, [&b"report\n.txt"[..], b"report\xff.txt"]);
    assert_eq!(entries.len(), 3);
}
