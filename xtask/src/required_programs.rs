//! The list of programs that the commands need, and their installation.
//!
//! Programs are installed only as root on a machine with `apt-get`; otherwise the error lists what to install. Programs
//! are never removed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::step;

/// A needed program, the commands that detect it, and the Debian package that contains it.
pub(crate) struct NeededProgram {
    /// Name of the program in the advice.
    program: &'static str,
    /// Commands that detect the program: it is present when one of them succeeds.
    probes: &'static [&'static [&'static str]],
    /// Name of the Debian package that contains the program.
    package: &'static str,
    /// The purpose of the program, printed in the advice to install it.
    reason: &'static str,
}

/// Programs for `cargo xtask test`.
pub(crate) const TEST_PROGRAMS: &[NeededProgram] = &[
    NeededProgram {
        program: "nats-server",
        probes: &[&["nats-server", "--version"]],
        package: "nats-server",
        reason: "the bus is tested against the real server",
    },
    NeededProgram {
        program: "openssl",
        probes: &[&["openssl", "version"]],
        package: "openssl",
        reason: "makes the certificates of simulated networks",
    },
    NeededProgram {
        program: "curl",
        probes: &[&["curl", "--version"]],
        package: "curl",
        reason: "URL parsing is compared with curl's",
    },
    NeededProgram {
        program: "wget",
        probes: &[&["wget", "--version"]],
        package: "wget",
        reason: "goes through the forward proxy as programs in sandboxes do",
    },
    NeededProgram {
        program: "apt-get",
        probes: &[&["apt-get", "--version"]],
        package: "apt",
        reason: "gets a package through the forward proxy",
    },
    NeededProgram {
        program: "python3 with venv",
        probes: &[&["python3", "-c", "import venv, ensurepip"]],
        package: "python3-venv",
        reason: "the contracts are tested with clients in another language",
    },
    NeededProgram {
        program: "kill",
        probes: &[&["kill", "-l"]],
        package: "procps",
        reason: "services are stopped with signals, as an operator stops them",
    },
    NeededProgram {
        program: "dockerd",
        probes: &[
            &["dockerd", "--version"],
            &["/usr/sbin/dockerd", "--version"],
        ],
        package: "docker.io",
        reason: "files are moved in and out of containers of a real engine",
    },
    NeededProgram {
        program: "podman",
        probes: &[&["podman", "--version"]],
        package: "podman",
        reason: "its service has the API of the Docker Engine and is tested as a Docker Engine",
    },
    NeededProgram {
        program: "busybox (static)",
        probes: &[&["sh", "-c", "/bin/busybox true && ! ldd /bin/busybox"]],
        package: "busybox-static",
        reason: "test images are built from it, because no image can be pulled",
    },
    NeededProgram {
        program: "ip",
        probes: &[&["ip", "-Version"]],
        package: "iproute2",
        reason: "a Docker Engine with bridges runs in its own network namespaces",
    },
    NeededProgram {
        program: "docker compose",
        probes: &[
            &["docker", "compose", "version"],
            &["docker-compose", "version"],
        ],
        package: "docker-compose",
        reason: "docker-compose.yml is checked and started with it",
    },
    NeededProgram {
        program: "ssh",
        probes: &[&["ssh", "-V"]],
        package: "openssh-client",
        reason: "the SSH backend transfers files with it",
    },
    NeededProgram {
        program: "sshd",
        probes: &[&["test", "-x", "/usr/sbin/sshd"]],
        package: "openssh-server",
        reason: "the SSH backend is tested against the real server",
    },
    NeededProgram {
        program: "dovecot",
        probes: &[&["test", "-x", "/usr/lib/dovecot/imap"]],
        package: "dovecot-imapd",
        reason: "mailboxes are read from a real IMAP server",
    },
    NeededProgram {
        program: "tesseract",
        probes: &[&["tesseract", "--version"]],
        package: "tesseract-ocr",
        reason: "the text of scans is recognised with it",
    },
    NeededProgram {
        program: "chromium",
        probes: &[&["chromium", "--version"]],
        package: "chromium",
        reason: "the pages of uploads and of the console are tested in a real browser",
    },
    NeededProgram {
        program: "chromedriver",
        probes: &[&["chromedriver", "--version"]],
        package: "chromium-driver",
        reason: "controls the browser in the tests of the upload page",
    },
    NeededProgram {
        program: "rclone",
        probes: &[&["rclone", "version"]],
        package: "rclone",
        reason: "downloads through tickets are tested with an independent client",
    },
    NeededProgram {
        program: "tinyproxy",
        probes: &[&["tinyproxy", "-v"]],
        package: "tinyproxy-bin",
        reason: "connections through an upstream proxy are tested with an independent one",
    },
    NeededProgram {
        program: "nginx",
        probes: &[&["nginx", "-v"], &["/usr/sbin/nginx", "-v"]],
        package: "nginx",
        reason: "the response cache is tested with a real server",
    },
    NeededProgram {
        program: "go",
        probes: &[&["go", "version"]],
        package: "golang-go",
        reason: "the example in Go is built and run",
    },
    NeededProgram {
        program: "packages of Protocol Buffers for Go",
        // The packages of gRPC accept version 1.3 too, with which the generated code does not run.
        probes: &[&["dpkg", "--status", "golang-github-golang-protobuf-1-5-dev"]],
        package: "golang-github-golang-protobuf-1-5-dev",
        reason: "the example in Go is built with them",
    },
    NeededProgram {
        program: "packages of gRPC for Go",
        probes: &[&["test", "-d", "/usr/share/gocode/src/google.golang.org/grpc"]],
        package: "golang-google-grpc-dev",
        reason: "the example in Go is built with them",
    },
    NeededProgram {
        program: "protoc",
        probes: &[&["protoc", "--version"]],
        package: "protobuf-compiler",
        reason: "the contracts are compiled for the example in Go",
    },
    NeededProgram {
        program: "protoc-gen-go",
        probes: &[&["test", "-x", "/usr/bin/protoc-gen-go"]],
        package: "protoc-gen-go-1-5",
        reason: "the contracts are compiled for the example in Go",
    },
    NeededProgram {
        program: "protoc-gen-go-grpc",
        probes: &[&["protoc-gen-go-grpc", "--version"]],
        package: "protoc-gen-go-grpc",
        reason: "the contracts are compiled for the example in Go",
    },
    NeededProgram {
        program: "promtool",
        probes: &[&["promtool", "--version"]],
        package: "prometheus",
        reason: "alert rules and the queries of the dashboard are checked with it",
    },
    NeededProgram {
        program: "node",
        probes: &[&["node", "--version"]],
        package: "nodejs",
        reason: "runs the TypeScript client, a tus client, and the browser tests of the console",
    },
    NeededProgram {
        program: "npm",
        probes: &[&["npm", "--version"]],
        package: "npm",
        reason: "installs the packages for node and the generator of the TypeScript types",
    },
];

/// Programs for `cargo xtask bench`.
pub(crate) const BENCH_PROGRAMS: &[NeededProgram] = &[
    NeededProgram {
        program: "nats-server",
        probes: &[&["nats-server", "--version"]],
        package: "nats-server",
        reason: "calls are compared with a plain client of the same server",
    },
    NeededProgram {
        program: "curl",
        probes: &[&["curl", "--version"]],
        package: "curl",
        reason: "fetches are compared with it",
    },
    NeededProgram {
        program: "chromium",
        probes: &[&["chromium", "--version"]],
        package: "chromium",
        reason: "the console's live page is measured in it",
    },
    NeededProgram {
        program: "npm",
        probes: &[&["npm", "--version"]],
        package: "npm",
        reason: "installs the driver of the browser, and a server for comparison",
    },
];

/// Programs for `cargo xtask blackbox`, in addition to the programs for the tests.
pub(crate) const BLACKBOX_PROGRAMS: &[NeededProgram] = &[NeededProgram {
    program: "nft",
    probes: &[&["nft", "--version"]],
    package: "nftables",
    reason: "counts packets to blocked ranges",
}];

/// Programs for `cargo xtask dist`, if the program is static.
pub(crate) const STATIC_PROGRAMS: &[NeededProgram] = &[NeededProgram {
    program: "musl-gcc",
    probes: &[&["musl-gcc", "--version"]],
    package: "musl-tools",
    reason: "compiles the C parts of a static program",
}];

/// Installs missing programs when allowed, or fails with a list of them.
pub(crate) fn ensure_programs(needs: &[NeededProgram]) -> anyhow::Result<()> {
    let missing = missing_programs(needs);
    if missing.is_empty() {
        return Ok(());
    }
    if !may_install() {
        bail!("{}", install_advice(&missing));
    }
    install_packages(&missing)?;
    // The programs are probed again, because one can fail although its package is installed.
    let unusable = self::missing_programs(missing);
    if !unusable.is_empty() {
        bail!(
            "installed, but still not usable:\n{}",
            install_advice(&unusable)
        );
    }
    Ok(())
}

/// The programs of which no probe succeeds.
fn missing_programs<'need>(
    needs: impl IntoIterator<Item = &'need NeededProgram>,
) -> Vec<&'need NeededProgram> {
    needs
        .into_iter()
        .filter(|need| !need.probes.iter().any(|probe| probe_succeeds(probe)))
        .collect()
}

/// Whether the command of a probe exits with status 0.
fn probe_succeeds(probe: &[&str]) -> bool {
    probe
        .split_first()
        .is_some_and(|(name, arguments)| step::program_step(name).args(arguments).succeeds())
}

/// Whether this process is root on a machine with `apt-get`.
fn may_install() -> bool {
    let root = step::program_step("id")
        .arg("-u")
        .output()
        .is_ok_and(|user| user.trim() == "0");
    root && step::program_step("apt-get").arg("--version").succeeds()
}

/// Lists the missing programs with their reasons, and the command that installs them.
fn install_advice(missing: &[&NeededProgram]) -> String {
    let mut lines = vec!["this command needs programs that are not installed:".to_owned()];
    for need in missing {
        lines.push(format!("  {:<18} {}", need.program, need.reason));
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    lines.push("install them and run the same command again; on Debian and Ubuntu:".to_owned());
    lines.push(format!(
        "  sudo apt-get install --no-install-recommends {}",
        packages.join(" ")
    ));
    lines.join("\n")
}

/// Installs the Debian packages without starting their services.
fn install_packages(missing: &[&NeededProgram]) -> anyhow::Result<()> {
    let _quiet = NoServices::declare(Path::new("/usr/sbin/policy-rc.d"))?;
    // The installation may succeed with an old package index, so a failed update is ignored.
    let _ = step::program_step("apt-get").args(["update", "-qq"]).run();
    step::program_step("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(missing.iter().map(|need| need.package))
        // Without this variable, a package with a question would wait forever for a terminal.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

/// A policy file that Debian consults before it starts a service. While this value exists, packages start none.
struct NoServices<'path> {
    path: Option<&'path Path>,
}

impl<'path> NoServices<'path> {
    /// Writes the policy, unless the machine has one already.
    fn declare(path: &'path Path) -> anyhow::Result<Self> {
        if path.exists() {
            return Ok(Self { path: None });
        }
        // 101 means "not allowed" to Debian's `invoke-rc.d`.
        fs::write(path, "#!/bin/sh\nexit 101\n")
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: Some(path) })
    }
}

impl Drop for NoServices<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.path {
            // `drop` cannot return an error, so a failure is ignored.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRESENT_PROGRAM: NeededProgram = NeededProgram {
        program: "sh",
        probes: &[&["no-such-program-here"], &["sh", "-c", "true"]],
        package: "dash",
        reason: "one probe of two is enough",
    };
    const MISSING_PROGRAM: NeededProgram = NeededProgram {
        program: "warp",
        probes: &[&["no-such-program-here"], &["sh", "-c", "false"]],
        package: "warp-core",
        reason: "speed",
    };

    #[test]
    fn one_successful_probe_is_enough() {
        let needs = [PRESENT_PROGRAM, MISSING_PROGRAM];
        let missing = missing_programs(&needs);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].program, "warp");
    }

    #[test]
    fn the_advice_names_program_reason_and_package() {
        let advice = install_advice(&[&MISSING_PROGRAM]);
        assert!(advice.contains("warp "), "{advice}");
        assert!(advice.contains("speed"), "{advice}");
        assert!(
            advice.ends_with("sudo apt-get install --no-install-recommends warp-core"),
            "{advice}"
        );
    }

    #[test]
    fn a_static_program_needs_the_c_compiler_of_musl() {
        let advice = install_advice(&STATIC_PROGRAMS.iter().collect::<Vec<_>>());
        assert!(advice.contains("  musl-gcc "), "{advice}");
        assert!(
            advice.ends_with("sudo apt-get install --no-install-recommends musl-tools"),
            "{advice}"
        );
    }

    #[test]
    fn services_cannot_start_during_the_installation() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy-rc.d");
        {
            let _quiet = NoServices::declare(&path).unwrap();
            let status = std::process::Command::new(&path).status().unwrap();
            assert_eq!(status.code(), Some(101));
        }
        assert!(!path.exists());
    }

    #[test]
    fn an_existing_policy_of_the_machine_is_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy-rc.d");
        fs::write(&path, "theirs").unwrap();
        drop(NoServices::declare(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    }
}
