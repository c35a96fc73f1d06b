//! Programs that the commands need, as data, and their installation.
//!
//! Installs only as root with `apt-get` at hand; otherwise it says what to install. It removes nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::step;

/// A program that is needed, how to see that it is there, and the Debian package that brings it.
pub(crate) struct NeededProgram {
    /// What the tests call it.
    program: &'static str,
    /// Any of these ends well when it is there.
    probes: &'static [&'static [&'static str]],
    /// Name of the Debian package that brings it.
    package: &'static str,
    /// What it is needed for, as the advice to install it says.
    reason: &'static str,
}

/// For `cargo xtask test`.
pub(crate) const TEST_PROGRAMS: &[NeededProgram] = &[
    NeededProgram {
        program: "nats-server",
        probes: &[&["nats-server", "--version"]],
        package: "nats-server",
        reason: "the bus is tested against the real server",
    },
    NeededProgram {
        program: "curl",
        probes: &[&["curl", "--version"]],
        package: "curl",
        reason: "URL parsing is compared with curl's",
    },
    NeededProgram {
        program: "python3 with venv",
        probes: &[&["python3", "-c", "import venv, ensurepip"]],
        package: "python3-venv",
        reason: "clients in another language prove the contracts",
    },
    NeededProgram {
        program: "kill",
        probes: &[&["kill", "-l"]],
        package: "procps",
        reason: "services are ended as an operator ends them",
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
        reason: "its service speaks the API of the Docker Engine, and is tested as one",
    },
    NeededProgram {
        program: "busybox (static)",
        probes: &[&["sh", "-c", "/bin/busybox true && ! ldd /bin/busybox"]],
        package: "busybox-static",
        reason: "images are made of it, since none can be pulled",
    },
    NeededProgram {
        program: "ip",
        probes: &[&["ip", "-Version"]],
        package: "iproute2",
        reason: "a Docker Engine with bridges gets network namespaces of its own",
    },
    NeededProgram {
        program: "docker compose",
        probes: &[
            &["docker", "compose", "version"],
            &["docker-compose", "version"],
        ],
        package: "docker-compose",
        reason: "docker-compose.yml is checked and started by the program that reads it",
    },
    NeededProgram {
        program: "kubectl",
        probes: &[&["kubectl", "kustomize", "--help"]],
        package: "kubernetes-client",
        reason: "deploy/kubernetes is rendered before it is checked",
    },
    NeededProgram {
        program: "ssh",
        probes: &[&["ssh", "-V"]],
        package: "openssh-client",
        reason: "files go into and out of sandboxes over it",
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
        reason: "mailboxes are read from the real server",
    },
    NeededProgram {
        program: "tesseract",
        probes: &[&["tesseract", "--version"]],
        package: "tesseract-ocr",
        reason: "the text of scans is recognised by the real program",
    },
    NeededProgram {
        program: "chromium",
        probes: &[&["chromium", "--version"]],
        package: "chromium",
        reason: "the pages of uploads and of the console are used as a person uses them",
    },
    NeededProgram {
        program: "chromedriver",
        probes: &[&["chromedriver", "--version"]],
        package: "chromium-driver",
        reason: "drives the browser for the page of an upload",
    },
    NeededProgram {
        program: "rclone",
        probes: &[&["rclone", "version"]],
        package: "rclone",
        reason: "downloads through tickets as a client that we did not write",
    },
    NeededProgram {
        program: "promtool",
        probes: &[&["promtool", "--version"]],
        package: "prometheus",
        reason: "alert rules and the queries of the dashboard are checked by it",
    },
    NeededProgram {
        program: "node",
        probes: &[&["node", "--version"]],
        package: "nodejs",
        reason: "runs the TypeScript client, a client of tus, and what drives the browser for the console",
    },
    NeededProgram {
        program: "npm",
        probes: &[&["npm", "--version"]],
        package: "npm",
        reason: "installs them, and the generator of the TypeScript types",
    },
];

/// For `cargo xtask bench`.
pub(crate) const BENCH_PROGRAMS: &[NeededProgram] = &[
    NeededProgram {
        program: "nats-server",
        probes: &[&["nats-server", "--version"]],
        package: "nats-server",
        reason: "calls are measured against a bare client of the same server",
    },
    NeededProgram {
        program: "curl",
        probes: &[&["curl", "--version"]],
        package: "curl",
        reason: "fetches are measured against it",
    },
];

/// For `cargo xtask blackbox`, beyond what the tests need.
pub(crate) const BLACKBOX_PROGRAMS: &[NeededProgram] = &[
    NeededProgram {
        program: "nft",
        probes: &[&["nft", "--version"]],
        package: "nftables",
        reason: "packet counters on blocked ranges",
    },
    NeededProgram {
        program: "openssl",
        probes: &[&["openssl", "version"]],
        package: "openssl",
        reason: "certificates of the simulated internet",
    },
];

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
    // Looked at again: a package can be installed and its program still fail.
    let still = self::missing_programs(missing);
    if !still.is_empty() {
        bail!(
            "installed, but still not usable:\n{}",
            install_advice(&still)
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

/// Whether a probe ends well.
fn probe_succeeds(probe: &[&str]) -> bool {
    probe
        .split_first()
        .is_some_and(|(name, arguments)| step::program_step(name).args(arguments).succeeds())
}

/// Root on a machine with `apt-get`.
fn may_install() -> bool {
    let root = step::program_step("id")
        .arg("-u")
        .output()
        .is_ok_and(|user| user.trim() == "0");
    root && step::program_step("apt-get").arg("--version").succeeds()
}

/// What to install, and why.
fn install_advice(missing: &[&NeededProgram]) -> String {
    let mut lines = vec!["this machine lacks what the command needs:".to_owned()];
    for need in missing {
        lines.push(format!("  {:<18} {}", need.program, need.reason));
    }
    let packages: Vec<_> = missing.iter().map(|need| need.package).collect();
    lines.push("install it and run the same command again; on Debian and Ubuntu:".to_owned());
    lines.push(format!(
        "  sudo apt-get install --no-install-recommends {}",
        packages.join(" ")
    ));
    lines.join("\n")
}

/// Installs the Debian packages, without starting any service that they bring.
fn install_packages(missing: &[&NeededProgram]) -> anyhow::Result<()> {
    let _quiet = NoServices::declare(Path::new("/usr/sbin/policy-rc.d"))?;
    // A stale index may still do, so a failure here is not one yet.
    let _ = step::program_step("apt-get").args(["update", "-qq"]).run();
    step::program_step("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(missing.iter().map(|need| need.package))
        // A package that asks a question would wait for ever without a terminal.
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

/// While it lives, packages may not start services: Debian asks this file first.
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
            // Nothing sensible can be done about a failure while another error may be on its way.
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
    const NOT_THERE: NeededProgram = NeededProgram {
        program: "warp",
        probes: &[&["no-such-program-here"], &["sh", "-c", "false"]],
        package: "warp-core",
        reason: "speed",
    };

    #[test]
    fn one_successful_probe_is_enough() {
        let needs = [PRESENT_PROGRAM, NOT_THERE];
        let missing = missing_programs(&needs);
        assert_eq!(missing.len(), 1);
        assert_eq!(missing[0].program, "warp");
    }

    #[test]
    fn the_advice_names_program_reason_and_package() {
        let advice = install_advice(&[&NOT_THERE]);
        assert!(advice.contains("warp "), "{advice}");
        assert!(advice.contains("speed"), "{advice}");
        assert!(
            advice.ends_with("sudo apt-get install --no-install-recommends warp-core"),
            "{advice}"
        );
    }

    #[test]
    fn services_are_kept_from_starting_only_while_installing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        {
            let _quiet = NoServices::declare(&path).unwrap();
            let status = std::process::Command::new(&path).status().unwrap();
            assert_eq!(status.code(), Some(101));
        }
        assert!(!path.exists());
    }

    #[test]
    fn a_policy_of_the_machine_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy-rc.d");
        fs::write(&path, "theirs").unwrap();
        drop(NoServices::declare(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
    }
}
