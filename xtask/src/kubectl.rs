//! The `kubectl` of the tests: that of the machine if it is new enough, otherwise that of Debian 13, unpacked below
//! `target/` without an installation. The package of Debian 12 is version 1.20, which has neither the components of
//! `deploy/kubernetes` nor streams over a web socket.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::step;

/// The least version whose `exec` and `cp` use a web socket without a setting (Kubernetes 1.31, KEP-4006).
const LEAST_VERSION: (u64, u64) = (1, 31);

/// Debian's release with that version, as a line of `sources.list`.
const APT_SOURCE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
                      http://deb.debian.org/debian trixie main\n";

/// Creates `target/kubectl/bin/kubectl`, which the tests start: a link to a program of at least [`LEAST_VERSION`].
///
/// # Errors
///
/// The machine has none, and Debian's package cannot be downloaded or unpacked.
pub(crate) fn ensure_kubectl(root: &Path) -> anyhow::Result<()> {
    let directory = root.join("target/kubectl");
    let link = directory.join("bin/kubectl");
    if is_new_enough(&link) {
        return Ok(());
    }
    let program = match program_of_the_machine() {
        Some(program) => program,
        None => unpack_package(&directory)
            .with_context(|| {
                format!(
                    "the tests need kubectl {}.{} or newer: install it, or let this command download Debian's package",
                    LEAST_VERSION.0, LEAST_VERSION.1
                )
            })?,
    };
    fs::create_dir_all(directory.join("bin"))?;
    // The link of an earlier run can name a program that is no longer there.
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&program, &link)
        .with_context(|| format!("cannot create the link {}", link.display()))
}

/// The path of the first `kubectl` in `PATH` that is new enough.
fn program_of_the_machine() -> Option<String> {
    let paths = step::program_step("sh")
        .args(["-c", "which -a kubectl"])
        .quiet_output()
        .ok()?;
    paths
        .lines()
        .find(|path| is_new_enough(Path::new(path)))
        .map(str::to_owned)
}

/// Whether the program starts and names at least [`LEAST_VERSION`].
fn is_new_enough(program: &Path) -> bool {
    step::program_step(program)
        .args(["version", "--client", "--output", "json"])
        .quiet_output()
        .is_ok_and(|text| client_version(&text).is_some_and(|version| version >= LEAST_VERSION))
}

/// Major and minor version in the output of `kubectl version --client --output json`.
fn client_version(text: &str) -> Option<(u64, u64)> {
    let document: Value = serde_json::from_str(text).ok()?;
    let number = |name: &str| {
        let text = document.get("clientVersion")?.get(name)?.as_str()?;
        // Builds of vendors have a plus sign after the number: `"32+"`.
        text.trim_end_matches('+').parse().ok()
    };
    Some((number("major")?, number("minor")?))
}

/// Downloads the package with `apt-get`, which verifies Debian's signature, and unpacks it below `directory`. The
/// sources, indexes and packages of the machine are neither read nor changed.
fn unpack_package(directory: &Path) -> anyhow::Result<String> {
    let state = directory.join("apt");
    if state.exists() {
        // A package of an earlier run can be another version.
        fs::remove_dir_all(&state)?;
    }
    for name in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(state.join(name))?;
    }
    let sources = state.join("sources.list");
    fs::write(&sources, APT_SOURCE)?;
    let option = |name: &str, path: &Path| format!("{name}={}", path.display());
    let apt = || {
        step::program_step("apt-get")
            .args(["-qq", "-o", "Dir::Etc::sourceparts=-", "-o"])
            .arg(option("Dir::Etc::sourcelist", &sources))
            .arg("-o")
            .arg(option("Dir::State::lists", &state.join("lists")))
            .arg("-o")
            .arg(option("Dir::Cache", &state.join("cache")))
            // Installed packages are no candidates.
            .args(["-o", "Dir::State::status=/dev/null"])
            // Debian's user for downloads cannot write below the directory of a developer.
            .args(["-o", "APT::Sandbox::User=root"])
            .inside(&state)
    };
    apt().arg("update").run()?;
    apt().args(["download", "kubectl"]).run()?;
    let package = package_in(&state)?;
    let unpacked = directory.join("package");
    step::program_step("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(&unpacked)
        .run()?;
    fs::remove_dir_all(&state)?;
    let program = unpacked.join("usr/bin/kubectl");
    if !is_new_enough(&program) {
        bail!("the program in {package} does not start or is too old");
    }
    Ok(program.display().to_string())
}

/// The path of the one package in a directory.
fn package_in(directory: &Path) -> anyhow::Result<String> {
    fs::read_dir(directory)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .map(|path| path.display().to_string())
        .context("`apt-get download` wrote no package")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_debian_and_of_vendors_are_read() {
        let version = |major: &str, minor: &str| {
            client_version(
                &serde_json::json!({ "clientVersion": { "major": major, "minor": minor } })
                    .to_string(),
            )
        };
        assert_eq!(version("1", "20"), Some((1, 20)));
        assert_eq!(version("1", "32+"), Some((1, 32)));
        assert_eq!(version("", ""), None);
        assert_eq!(client_version("Client Version: v1.32.3"), None);
        assert!(version("1", "20") < Some(LEAST_VERSION));
        assert!(version("2", "0") > Some(LEAST_VERSION));
    }

    #[test]
    fn a_program_that_is_no_kubectl_is_not_taken() {
        assert!(!is_new_enough(Path::new("true")));
        assert!(!is_new_enough(Path::new("no-such-program-here")));
    }
}
