//! The images that `docker-compose.yml` and `deploy/Dockerfile` name, made from programs of this machine, because
//! tests pull no images. Each image has the programs, entry points and libraries of the real one that the deployment
//! uses.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::deploy::{compose, read};
use crate::support;

const BUSYBOX_PROGRAM: &str = "/bin/busybox";

/// `cargo` in the image that builds: checks that every file from which the binary was built is in the build context,
/// and copies the binary that was built before.
const CARGO_SCRIPT: &str = r#"#!/bin/sh
set -eu
target="$(uname -m)-unknown-linux-musl"
[ "$*" = "build --locked --profile dist --package dray --target $target" ] \
    || { echo "not expected: cargo $*" >&2; exit 1; }
env | grep -qx "CC_$(uname -m)_unknown_linux_musl=musl-gcc" || { echo "no C compiler of musl" >&2; exit 1; }
[ -e /ready/musl-tools ] && [ -e "/ready/$target" ] || { echo "the target is not installed" >&2; exit 1; }
while read -r source; do
    [ -e "$source" ] || { echo "the build context lacks $source" >&2; exit 1; }
done < /ready/sources
mkdir -p "target/$target/dist"
cp /ready/dray "target/$target/dist/dray"
"#;

/// `apt-get` and `rustup` in the image that builds: each leaves a file for what it would install.
const APT_GET_SCRIPT: &str = r#"#!/bin/sh
set -eu
[ "$*" = update ] && exit
[ "$*" = "install -y --no-install-recommends musl-tools" ] || { echo "not expected: apt-get $*" >&2; exit 1; }
touch /ready/musl-tools
"#;
const RUSTUP_SCRIPT: &str = r#"#!/bin/sh
set -eu
[ "$1 $2" = "target add" ] || { echo "not expected: rustup $*" >&2; exit 1; }
touch "/ready/$3"
"#;

/// Like the entry point of the image of NATS: arguments that begin with an option are those of the server.
const NATS_ENTRY_POINT: &str = r#"#!/bin/sh
case "${1:-}" in -*) set -- nats-server "$@" ;; esac
exec "$@"
"#;

/// Imports all images with this Docker client.
pub(super) fn import_all(docker: &dyn Fn() -> Command) {
    let services = compose::effective()["services"].take();
    let image = |service: &str| services[service]["image"].as_str().unwrap().to_owned();

    let nats = ImageRoot::with_shell();
    nats.add_program(&find_program("nats-server"), "usr/local/bin/nats-server");
    nats.add_script("usr/local/bin/docker-entrypoint.sh", NATS_ENTRY_POINT);
    let entry_point = r#"ENTRYPOINT ["/usr/local/bin/docker-entrypoint.sh"]"#;
    nats.import(docker, &image("nats"), &[entry_point]);

    let fake = Path::new(env!("CARGO_BIN_EXE_fake-minio"));
    let minio = ImageRoot::with_shell();
    minio.add_program(fake, "usr/bin/minio");
    symlink("minio", minio.path("usr/bin/mc")).unwrap();
    minio.import(
        docker,
        &image("minio"),
        &[r#"ENTRYPOINT ["/usr/bin/minio"]"#],
    );
    minio.import(
        docker,
        &image("store-setup"),
        &[r#"ENTRYPOINT ["/usr/bin/mc"]"#],
    );

    let [builder, runtime] = base_images().try_into().unwrap();
    let binary = support::dray();
    let build = ImageRoot::with_shell();
    build.add_program(&find_program("install"), "usr/bin/install");
    build.add_script("usr/local/cargo/bin/cargo", CARGO_SCRIPT);
    build.add_script("usr/bin/apt-get", APT_GET_SCRIPT);
    build.add_script("usr/local/cargo/bin/rustup", RUSTUP_SCRIPT);
    build.add_program(&binary, "ready/dray");
    fs::write(build.path("ready/sources"), sources(&binary)).unwrap();
    let path = "ENV PATH=/usr/local/cargo/bin:/usr/bin:/bin";
    build.import(docker, &builder, &[path]);

    let distroless = ImageRoot::new();
    // The real image has no library. The binary under test is dynamic, unlike that of a release.
    for library in libraries(&binary) {
        distroless.add_file(&library);
    }
    distroless.import(docker, &runtime, &["USER 65532:65532"]);
}

/// The images that the stages of `deploy/Dockerfile` begin with.
fn base_images() -> Vec<String> {
    let text = read("deploy/Dockerfile");
    let stages = text.lines().filter_map(|line| line.strip_prefix("FROM "));
    stages
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Files from which a binary was built, relative to the workspace, one per line: Cargo writes the list beside the
/// binary.
fn sources(binary: &Path) -> String {
    let file = binary.with_extension("d");
    let text = fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!(
            "cannot read the list of sources {}: {error}",
            file.display()
        )
    });
    let root = format!("{}/", support::root().display());
    let (_, sources) = text.split_once(": ").expect("TARGET: SOURCES");
    let names: Vec<_> = sources
        .split_whitespace()
        .filter_map(|source| source.strip_prefix(&root))
        .collect();
    assert!(names.len() > 100, "{names:?}");
    names.join("\n") + "\n"
}

/// The path of a program of this machine.
fn find_program(program: &str) -> PathBuf {
    let directories = ["/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let paths = directories.map(|directory| Path::new(directory).join(program));
    let program_path = paths.into_iter().find(|path| path.exists());
    program_path.unwrap_or_else(|| panic!("{program} is not installed"))
}

/// Shared libraries of a program, with the loader; none for a static one.
fn libraries(program: &Path) -> BTreeSet<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}

/// The root directory of an image.
struct ImageRoot(TempDir);

impl ImageRoot {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        fs::set_permissions(root.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(root.path("tmp")).unwrap();
        fs::set_permissions(root.path("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        root
    }

    /// A root directory with a shell and the usual small programs.
    fn with_shell() -> Self {
        let root = Self::new();
        root.add_program(Path::new(BUSYBOX_PROGRAM), "bin/busybox");
        let applets = support::stdout(Command::new(BUSYBOX_PROGRAM).arg("--list"));
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            symlink("busybox", root.path(&format!("bin/{applet}"))).unwrap();
        }
        root
    }

    /// A path in the root directory; creates the directories above it.
    fn path(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Adds a program without its symbols, and the libraries that it needs.
    fn add_program(&self, program: &Path, path: &str) {
        let target = self.path(path);
        fs::copy(program, &target).unwrap();
        // Debug builds are large. Without `strip`, the copy only takes longer.
        let _ = Command::new("strip").arg(&target).output();
        for library in libraries(program) {
            self.add_file(&library);
        }
    }

    /// Adds a file of this machine at the same path.
    fn add_file(&self, file: &Path) {
        let path = file.to_str().unwrap().trim_start_matches('/');
        fs::copy(file, self.path(path)).unwrap();
    }

    fn add_script(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn import(&self, docker: &dyn Fn() -> Command, image: &str, changes: &[&str]) {
        let mut archive = Command::new("tar");
        archive
            .arg("--create")
            .arg("--directory")
            .arg(self.0.path());
        let archive = archive.args(["--owner=0", "--group=0", "."]);
        let mut archive = archive.stdout(Stdio::piped()).spawn().unwrap();
        let mut import = docker();
        import.arg("import");
        for change in changes {
            import.args(["--change", change]);
        }
        import
            .args(["-", image])
            .stdin(archive.stdout.take().unwrap());
        support::stdout(&mut import);
        assert!(archive.wait().unwrap().success());
    }
}
