//! The TypeScript client of this repository in the form in which users install it: compiled, packed, and installed into
//! an empty project below `target/node-client`.
#![expect(
    clippy::expect_used,
    reason = "only tests call it, and it fails the test"
)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use dray_types::Sha256Digest;

/// An additional package for tests of the installed client: the client's optional package for NATS, in the version of
/// the client's lock file.
const PROJECT_PACKAGES: [&str; 1] = ["@nats-io/transport-node@3.3.1"];

/// Directory of a project that has `@drayage/client` installed, and the compiled tests of the client in `test`.
///
/// The project is built once for a state of the sources, even if several processes request it. Needs `npm` and its
/// registry.
///
/// # Panics
///
/// When a step fails; with the output of the program.
pub fn client_project() -> PathBuf {
    let root = crate::python::workspace_root();
    let build = ClientBuild {
        sources: root.join("clients/typescript"),
        directory: root.join("target/node-client"),
    };
    build.run().expect("the TypeScript client can be built")
}

/// Runs a program of Node.js in a directory, and returns its standard output.
///
/// # Panics
///
/// When it fails; with everything that it wrote.
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

struct ClientBuild {
    sources: PathBuf,
    directory: PathBuf,
}

impl ClientBuild {
    fn run(&self) -> io::Result<PathBuf> {
        fs::create_dir_all(&self.directory)?;
        // Tests are separate processes; the first builds and the others wait. The lock is released when the file is
        // closed.
        let lock = File::create(self.directory.join("lock"))?;
        lock.lock()?;
        let project = self.directory.join("project");
        let digest = tree_digest(&self.sources)?;
        let stamp = self.directory.join("built");
        if fs::read_to_string(&stamp).is_ok_and(|built| built == digest) {
            return Ok(project);
        }
        let package = self.compile()?;
        install_package(&package, &project)?;
        // The stamp is written last, so that an interrupted build has no stamp.
        fs::write(&stamp, digest)?;
        Ok(project)
    }

    /// Compiles a copy of the sources, because compilers write into their directory.
    fn compile(&self) -> io::Result<PathBuf> {
        let package = self.directory.join("package");
        fs::create_dir_all(&package)?;
        for name in ["src", "test", "dist"] {
            remove_directory(&package.join(name))?;
        }
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(self.sources.join(".")).arg(&package);
        run(&mut copy);
        let lock_file = fs::read_to_string(package.join("package-lock.json"))?;
        let stamp = package.join("node_modules/.installed");
        if !fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock_file) {
            // Exactly the packages of the lock file, by version and digest.
            npm(&package, &["ci"]);
            fs::write(&stamp, lock_file)?;
        }
        npm(&package, &["run", "build"]);
        Ok(package)
    }
}

/// Packs the package and installs it into an empty project, with the compiled tests beside it.
fn install_package(package: &Path, project: &Path) -> io::Result<()> {
    // No scripts run, because the package was compiled already.
    npm(
        package,
        &["pack", "--ignore-scripts", "--pack-destination", ".."],
    );
    remove_directory(project)?;
    fs::create_dir_all(project)?;
    fs::write(
        project.join("package.json"),
        r#"{"private": true, "type": "module"}"#,
    )?;
    let packed = ["../drayage-client-0.1.0.tgz"];
    let options = ["install", "--no-package-lock", "--prefer-offline"];
    npm(
        project,
        &[&options[..], &packed, &PROJECT_PACKAGES].concat(),
    );
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(package.join("dist/test")).arg(project);
    run(&mut copy);
    Ok(())
}

fn npm(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("npm");
    command
        .args(arguments)
        .args(["--silent", "--no-audit", "--no-fund"])
        .current_dir(directory);
    run(&mut command);
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// One digest for the paths and contents of a directory, without files that tools create there.
fn tree_digest(directory: &Path) -> io::Result<String> {
    let mut entries: Vec<_> = fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    // The order of a directory is not the same on every machine.
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut text = String::new();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ["node_modules", "dist"].contains(&name.as_str()) {
            continue;
        }
        let digest = if entry.file_type()?.is_dir() {
            tree_digest(&entry.path())?
        } else {
            Sha256Digest::of(&fs::read(entry.path())?).to_hex()
        };
        text.extend([name.as_str(), " ", &digest, "\n"]);
    }
    Ok(Sha256Digest::of(text.as_bytes()).to_hex())
}
