//! Tests that no path leads out of the directory of a preview, with a real container engine and a real SSH server.

use dray_testkit::docker::{ContainerOptions, DockerEngine};
use dray_testkit::sshd::{Sshd, SshdOptions};

use super::backends::BackendSandbox;
use super::{PreviewProcess, ssh_settings};

/// Creates the files and links in an empty working directory, with programs of `BusyBox`.
const TRAP_SCRIPT: &str = "\
mkdir -p www/sub www/a other; \
printf ESCAPED > secret.txt; printf ESCAPED > other/f.txt; printf ESCAPED > www/.env; \
printf inside > www/index.html; printf inside > www/a/f.txt; \
ln -s ../secret.txt www/link.txt; ln -s .. www/up; ln -s / www/root; ln -s loop www/loop; \
ln -s index.html www/good.html; ln -s ../other www/other; \
head -c 2000000 /dev/zero | tr '\\0' z > www/large.bin; ln www/large.bin www/hard.bin";

/// Paths that lead, or seem to lead, to `secret.txt` beside the directory or to files that the policy refuses.
const ESCAPE_PATHS: &[&str] = &[
    "../secret.txt",
    "%2e%2e/secret.txt",
    ".%2E/secret.txt",
    "%2e%2e%2fsecret.txt",
    "..%5csecret.txt",
    "..\\secret.txt",
    "%252e%252e/secret.txt",
    "%252e%252e%252fsecret.txt",
    "sub/../../secret.txt",
    "sub/%2e%2e/%2e%2e/secret.txt",
    "/../secret.txt",
    "//etc/passwd",
    "..%00/secret.txt",
    "index.html%00../secret.txt",
    "%c0%ae%c0%ae/secret.txt",
    "..;/secret.txt",
    "link.txt",
    "up/secret.txt",
    "up/other/f.txt",
    "other/f.txt",
    "root/etc/passwd",
    "root/proc/self/environ",
    "loop",
    ".env",
];

/// Requests every path at a preview of `www`. `sh` runs a script in the directory above it.
fn check_escapes(preview: &PreviewProcess, backend: &str, mut sh: impl FnMut(&str)) {
    for path in ESCAPE_PATHS {
        for area in ["p", "v", "d", "z"] {
            let response = preview.get(area, path);
            let is_leaked = response.body.contains("ESCAPED") || response.body.contains("root:");
            assert!(!is_leaked, "{backend} {area} {path}: {response:?}");
            // With --path-as-is `curl` sends paths unchanged; the one path below names the directory.
            assert!(
                (400..500).contains(&response.status),
                "{backend} {area} {path}: {response:?}"
            );
        }
    }
    assert_eq!(preview.get("p", "good.html").body, "inside", "{backend}");
    assert_eq!(preview.get("p", "").body, "inside", "{backend}");
    let part = preview.get_with("p", "large.bin", &["--range", "1999000-"]);
    assert_eq!((part.status, part.body.len()), (206, 1000), "{backend}");
    let listing = preview.get("v", "").body;
    assert!(
        listing.contains("large.bin") && !listing.contains(".env"),
        "{backend}: {listing}"
    );
    // The directory is replaced by a link to its neighbour and back; a response shows the directory itself, or fails.
    for _ in 0..8 {
        sh("mv www/a www/kept; ln -s ../other www/a");
        let swapped = preview.get("p", "a/f.txt");
        assert!(!swapped.body.contains("ESCAPED"), "{backend}: {swapped:?}");
        assert_eq!(swapped.status, 403, "{backend}: {swapped:?}");
        sh("rm www/a; mv www/kept www/a");
        assert_eq!(preview.get("p", "a/f.txt").body, "inside", "{backend}");
    }
    // A link replaces the whole directory: the preview still shows only the directory for which it was created.
    sh("mv www gone; ln -s . www");
    let moved = preview.get("p", "secret.txt");
    assert!(!moved.body.contains("ESCAPED"), "{backend}: {moved:?}");
}

/// Checks that no path leads out of a container of an engine, and that its preview ends with the container.
fn check_container(engine: &DockerEngine, backend: &str) {
    let container = engine.container(ContainerOptions::default());
    container.sh(&format!("cd /workspace; {TRAP_SCRIPT}"));
    let endpoint = format!(
        "sandbox-transfer.docker.endpoint=unix://{}",
        engine.socket().display()
    );
    let directory = format!("docker:{}:/workspace/www", container.name());
    let preview = PreviewProcess::start(&directory, &[&endpoint]);
    check_escapes(&preview, backend, |script| {
        container.sh(&format!("cd /workspace; {script}"));
    });
    // The sandbox ends: the link reports it, and another container with its name is not shown.
    container.remove();
    let after_removal = preview.get("p", "index.html");
    assert!(
        [410, 503].contains(&after_removal.status),
        "{after_removal:?}"
    );
}

#[test]
fn files_outside_the_directory_are_not_shown_over_docker() {
    check_container(&DockerEngine::shared(), "docker");
}

#[test]
fn files_outside_the_directory_are_not_shown_over_podman() {
    check_container(&DockerEngine::shared_podman(), "podman");
}

#[test]
fn files_outside_the_directory_are_not_shown_over_ssh() {
    let server = Sshd::start(&SshdOptions::default());
    let control = tempfile::tempdir_in("/tmp").unwrap();
    let work = tempfile::tempdir().unwrap();
    let root = work.path().canonicalize().unwrap();
    let run = |script: &str| {
        let status = std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(&root)
            .status();
        assert!(status.unwrap().success(), "{script}");
    };
    run(TRAP_SCRIPT);
    let settings = ssh_settings(&server, control.path());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let directory = format!(
        "ssh:{}@127.0.0.1:{}{}:./www",
        server.user(),
        server.port(),
        root.display()
    );
    let preview = PreviewProcess::start(&directory, &settings);
    check_escapes(&preview, "ssh", run);
}

/// Checks that no path leads out of a directory of this sandbox.
fn check_sandbox(sandbox: &BackendSandbox) {
    sandbox.sh(TRAP_SCRIPT);
    let config = sandbox.config.display().to_string();
    let directory = format!("{}:{}", sandbox.address, sandbox.root.join("www").display());
    let preview = PreviewProcess::start_with(&directory, &["--config", &config]);
    check_escapes(&preview, &sandbox.address, |script| sandbox.sh(script));
}

#[test]
fn files_outside_the_directory_are_not_shown_from_a_local_sandbox() {
    check_sandbox(&BackendSandbox::local());
}

#[test]
fn files_outside_the_directory_are_not_shown_behind_a_command() {
    check_sandbox(&BackendSandbox::exec());
}

#[test]
fn files_outside_the_directory_are_not_shown_from_an_apptainer_instance() {
    check_sandbox(&BackendSandbox::apptainer());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_directory_are_not_shown_from_a_kubernetes_pod() {
    check_sandbox(&BackendSandbox::kubernetes().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_directory_are_not_shown_from_a_modal_sandbox() {
    check_sandbox(&BackendSandbox::modal().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_directory_are_not_shown_from_an_e2b_sandbox() {
    check_sandbox(&BackendSandbox::e2b().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_directory_are_not_shown_from_a_daytona_sandbox() {
    check_sandbox(&BackendSandbox::daytona().await);
}
