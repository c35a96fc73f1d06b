//! The image that `cargo xtask dist` makes, in the engines of Docker and of Podman.
//!
//! The program is the binary under test without its symbols; one test, because its files take many seconds. The
//! packages of the base are made here, from the C library of this machine, so that the test needs no package archive;
//! versions and digests of the shipped list are not tested.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dray_testkit::docker::DockerEngine;
use dray_testkit::eventually;
use serde_json::{Value, json};

use crate::support;

/// Libraries of the base, in the directory where Debian's packages have them.
const BASE_LIBRARIES: [(&str, &str); 4] = [
    ("libc6", "libc.so.6"),
    ("libc6", "libm.so.6"),
    ("libc6", "ld-linux-x86-64.so.2"),
    ("libgcc-s1", "libgcc_s.so.1"),
];
const LIBRARY_DIRECTORY: &str = "lib/x86_64-linux-gnu";

/// The files of a release.
struct ReleaseFixture {
    directory: tempfile::TempDir,
}

impl ReleaseFixture {
    /// Runs `cargo xtask dist` with the binary under test.
    fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let program = path("dray");
        support::stdout(
            Command::new("strip")
                .arg("-o")
                .arg(&program)
                .arg(support::dray()),
        );
        let packages = path("packages");
        fs::create_dir(&packages).unwrap();
        let list = path("base-packages.toml");
        fs::write(&list, write_packages(&packages)).unwrap();
        support::stdout(
            Command::new(support::dray().with_file_name("xtask"))
                .args(["dist", "--allow-dirty"])
                // The binary under test is dynamic, unlike that of a release.
                .args(["--target", "x86_64-unknown-linux-gnu", "--program"])
                .arg(&program)
                .arg("--out")
                .arg(path("files"))
                .arg("--base-list")
                .arg(&list)
                .arg("--base-packages")
                .arg(&packages),
        );
        Self { directory }
    }

    fn files(&self) -> PathBuf {
        self.directory.path().join("files")
    }

    /// The file whose name ends with `end`.
    fn file(&self, end: &str) -> PathBuf {
        let mut files = fs::read_dir(self.files()).unwrap();
        let file = files.find_map(|file| {
            let path = file.unwrap().path();
            path.to_str().unwrap().ends_with(end).then_some(path)
        });
        file.unwrap_or_else(|| panic!("no file ends in {end}"))
    }

    fn json_file(&self, end: &str) -> Value {
        serde_json::from_slice(&fs::read(self.file(end)).unwrap()).unwrap()
    }

    /// A file in the image's archive.
    fn archived(&self, name: &str) -> Value {
        let file = self.file(".image.tar");
        let text = support::stdout(
            Command::new("tar")
                .args(["--extract", "--to-stdout", "--file"])
                .arg(file)
                .arg(name),
        );
        serde_json::from_str(&text).unwrap()
    }

    /// The identifier of the image in an engine: the digest of its configuration.
    fn identifier(&self) -> String {
        let saved = self.archived("manifest.json");
        let path = saved[0]["Config"].as_str().unwrap();
        path.rsplit_once('/').unwrap().1.to_owned()
    }
}

/// Writes the packages of a small base, and returns their list.
fn write_packages(directory: &Path) -> String {
    let mut list = "distribution = \"test\"\narchitecture = \"amd64\"\n".to_owned();
    for name in ["base-files", "ca-certificates", "libc6", "libgcc-s1"] {
        let tree = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        fs::write(
            path("DEBIAN/control"),
            format!(
                "Package: {name}\nVersion: 2.99-1\nArchitecture: amd64\nMaintainer: A <a@example.org>\nDescription: test\n"
            ),
        )
        .unwrap();
        for (_, library) in BASE_LIBRARIES
            .iter()
            .filter(|(package, _)| *package == name)
        {
            let installed = Path::new("/").join(LIBRARY_DIRECTORY).join(library);
            fs::copy(installed, path(&format!("{LIBRARY_DIRECTORY}/{library}"))).unwrap();
        }
        match name {
            "base-files" => {
                fs::write(path("usr/lib/os-release"), "ID=debian\n").unwrap();
                // The list keeps no file of `bin`, so the image has no shell even if a package has one.
                fs::copy("/bin/busybox", path("bin/sh")).unwrap();
            }
            "ca-certificates" => {
                let certificate = path("usr/share/ca-certificates/test/a.crt");
                fs::write(certificate, "an authority\n").unwrap();
            }
            "libc6" => {
                let interpreter = format!("/{LIBRARY_DIRECTORY}/ld-linux-x86-64.so.2");
                symlink(interpreter, path("lib64/ld-linux-x86-64.so.2")).unwrap();
            }
            _ => {}
        }
        let file = directory.join(format!("{name}_2.99-1_amd64.deb"));
        support::stdout(
            Command::new("dpkg-deb")
                .args(["--root-owner-group", "--build"])
                .args([tree.path(), &file]),
        );
        let digest = support::stdout(Command::new("sha256sum").arg(&file));
        let (digest, _) = digest.split_once(' ').unwrap();
        write!(
            list,
            "[[package]]\nname = \"{name}\"\nversion = \"2.99-1\"\narchitecture = \"amd64\"\nsha256 = \"{digest}\"\n\
             keep = [\"lib/\", \"lib64/\", \"usr/lib/os-release\", \"usr/share/ca-certificates/\"]\n"
        )
        .unwrap();
    }
    list
}

/// A command of `docker` for an engine.
fn docker(engine: &DockerEngine, arguments: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command
        .arg("--host")
        .arg(format!("unix://{}", engine.socket().display()))
        .args(arguments);
    command
}

/// What a container may do: the restrictions of the Kubernetes base. The volume gets its owner from the image.
const CONTAINER_RESTRICTIONS: [&str; 9] = [
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--mount",
    "type=volume,destination=/var/lib/dray",
    "--mount",
    "type=tmpfs,destination=/tmp,tmpfs-mode=01777",
    "--pull=never",
];

/// Runs the image with these arguments to the end.
fn run_to_end(engine: &DockerEngine, image: &str, arguments: &[&str]) -> Output {
    docker(engine, &["run", "--rm"])
        .args(CONTAINER_RESTRICTIONS)
        .arg(image)
        .args(arguments)
        .output()
        .unwrap()
}

/// Removes a container when it is dropped.
struct ContainerGuard<'a> {
    engine: &'a DockerEngine,
    id: String,
}

impl Drop for ContainerGuard<'_> {
    fn drop(&mut self) {
        drop(docker(self.engine, &["rm", "--force", "--volumes", &self.id]).output());
    }
}

/// Loads the image, and runs the program and the service in it.
async fn engine_runs_the_image(engine: &DockerEngine, release: &ReleaseFixture) {
    let image = release.identifier();
    let file = release.file(".image.tar");
    let file = file.to_str().unwrap();
    let loaded = support::stdout(&mut docker(engine, &["load", "--input", file]));
    let name = format!("dray:{}", env!("CARGO_PKG_VERSION"));
    assert!(loaded.contains(&name), "{loaded}");
    let output = run_to_end(engine, &image, &["--version"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("dray "), "{output:?}");
    let started = support::stdout(
        docker(engine, &["run", "--detach"])
            .args(CONTAINER_RESTRICTIONS)
            .arg(&image),
    );
    let container = ContainerGuard {
        engine,
        id: started.trim().to_owned(),
    };
    let id = container.id.as_str();
    let check = ["healthcheck", "--http", "127.0.0.1:9464"];
    eventually("a service that is ready", async || {
        let mut command = docker(engine, &["exec", id, "/usr/local/bin/dray"]);
        let output = command.args(check).output().unwrap();
        output.status.success().then_some(())
    })
    .await;
    service_has_no_rights(engine, id);
    support::stdout(&mut docker(engine, &["stop", "-t", "30", id]));
    let state = inspect(engine, id, "State");
    assert_eq!(state["ExitCode"], 0, "{state}");
}

fn inspect(engine: &DockerEngine, id: &str, part: &str) -> Value {
    let details = support::stdout(&mut docker(engine, &["container", "inspect", id]));
    let details: Value = serde_json::from_str(&details).unwrap();
    details[0][part].clone()
}

/// Checks the first process of a container as the kernel shows it.
fn service_has_no_rights(engine: &DockerEngine, id: &str) {
    let pid = &inspect(engine, id, "State")["Pid"];
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(field("Uid:"), ["65532"; 4]);
    assert_eq!(field("Gid:"), ["65532"; 4]);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    let mounts = fs::read_to_string(format!("/proc/{pid}/mounts")).unwrap();
    let root = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let root = root.into_iter().find(|fields| fields[1] == "/").unwrap();
    assert!(root[3].split(',').any(|option| option == "ro"), "{root:?}");
}

/// Checks that `dray` is the only program in the layers: there is no shell.
fn image_has_one_program(release: &ReleaseFixture) {
    let saved = release.archived("manifest.json");
    let layers = saved[0]["Layers"].as_array().unwrap();
    let mut programs = Vec::new();
    for layer in layers {
        let script = "tar --extract --to-stdout --file \"$1\" \"$2\" | tar --list --verbose --gzip";
        let list = support::stdout(
            Command::new("sh")
                .args(["-ec", script, "sh"])
                .arg(release.file(".image.tar"))
                .arg(layer.as_str().unwrap()),
        );
        let files = list.lines().filter(|line| {
            let (mode, _) = line.split_once(' ').unwrap();
            mode.starts_with('-') && mode.contains(['x', 's', 't'])
        });
        let names = files.map(|line| line.rsplit(' ').next().unwrap().to_owned());
        programs.extend(names.filter(|name| !name.starts_with(LIBRARY_DIRECTORY)));
    }
    assert_eq!(layers.len(), 2);
    assert_eq!(programs, ["usr/local/bin/dray"]);
}

/// Checks the image in digests, bill and provenance of its release.
fn files_name_the_image(release: &ReleaseFixture) {
    support::stdout(
        Command::new("sha256sum")
            .args(["--check", "--strict", "SHA256SUMS"])
            .current_dir(release.files()),
    );
    let sums = fs::read_to_string(release.file("SHA256SUMS")).unwrap();
    assert!(sums.contains(".image.tar\n") && sums.contains(".image.cdx.json\n"));
    let index = release.archived("index.json");
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    let (_, sha256) = digest.split_once(':').unwrap();
    let provenance = release.json_file(".provenance.json");
    let subject = json!({
        "name": format!("dray:{}", env!("CARGO_PKG_VERSION")),
        "digest": {"sha256": sha256},
    });
    let subjects = provenance["subject"].as_array().unwrap();
    assert!(subjects.contains(&subject), "{subjects:?}");
    let bill = release.json_file(".image.cdx.json");
    let container = &bill["metadata"]["component"];
    assert_eq!(container["hashes"][0]["content"], sha256);
    let components = bill["components"].as_array().unwrap();
    // The fixture names its program, so its files are no release.
    let build_type = provenance.pointer("/predicate/buildDefinition/buildType");
    assert_eq!(
        build_type.unwrap(),
        "urn:drayage:build:cargo-xtask-dist:trial:v1"
    );
    let materials = provenance.pointer("/predicate/buildDefinition/resolvedDependencies");
    let materials = materials.unwrap().as_array().unwrap();
    for package in ["base-files", "ca-certificates", "libc6", "libgcc-s1"] {
        let component = components.iter().find(|part| part["name"] == package);
        let component = component.unwrap_or_else(|| panic!("no {package}"));
        let material = json!({
            "uri": component["purl"],
            "digest": {"sha256": component["hashes"][0]["content"]},
        });
        assert!(materials.contains(&material), "{material}");
    }
    // The packages of the program are in the bill of the image, too.
    assert!(components.iter().any(|part| part["name"] == "async-nats"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_a_release_runs_in_docker_and_podman_with_a_read_only_root_and_no_rights() {
    let release = ReleaseFixture::create();
    files_name_the_image(&release);
    image_has_one_program(&release);
    engine_runs_the_image(&DockerEngine::shared(), &release).await;
    engine_runs_the_image(&DockerEngine::shared_podman(), &release).await;
}
