//! (n) `dray sandbox get` and `put` compared with `docker cp`: with a container that has `BusyBox` alone, whose
//! `sha256sum` does not use the SHA instructions of the processor, and with one that has the programs of Debian,
//! including `openssl` and `python3`, as the images of agents do.

use std::path::{Path, PathBuf};

use dray_testkit::docker::{Container, ContainerOptions, DockerEngine};

use super::pair::{BenchPair, BenchSide, to_words};
use super::{IntegrityCheck, SIZES_AND_ROUNDS, path_text, wait_until_settled};
use crate::transfer::write_random_file;

/// Directory of the files in the container.
const CONTAINER_DIRECTORY: &str = "/workspace";

/// The programs of a container.
#[derive(Clone, Copy, Debug)]
enum ContainerPrograms {
    /// One static program with all tools.
    BusyBox,
    /// Those of this machine: GNU coreutils, `openssl` and `python3`.
    Debian,
}

impl ContainerPrograms {
    const ALL_PROGRAMS: [Self; 2] = [Self::BusyBox, Self::Debian];

    const fn name(self) -> &'static str {
        match self {
            Self::BusyBox => "container",
            Self::Debian => "container with openssl",
        }
    }

    fn options(self) -> ContainerOptions {
        let mounts = match self {
            Self::BusyBox => &[][..],
            // No image can be pulled, so the programs of this machine are mounted; they come first in the search path.
            Self::Debian => &["/usr:/usr:ro", "/usr/lib:/lib:ro", "/usr/lib64:/lib64:ro"],
        };
        ContainerOptions {
            volumes: mounts.iter().map(|mount| (*mount).to_owned()).collect(),
            ..ContainerOptions::default()
        }
    }
}

/// Fixture of both sides.
struct DockerFixture<'a> {
    dray: &'a str,
    programs: ContainerPrograms,
    engine: String,
    container: Container,
    directory: tempfile::TempDir,
}

/// Measures both kinds of containers, all sizes and proofs.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let engine = DockerEngine::start();
    for programs in ContainerPrograms::ALL_PROGRAMS {
        run_with(dray, &engine, programs)?;
    }
    Ok(())
}

fn run_with(dray: &Path, engine: &DockerEngine, programs: ContainerPrograms) -> anyhow::Result<()> {
    let fixture = DockerFixture {
        dray: path_text(dray)?,
        programs,
        engine: format!("unix://{}", engine.socket().display()),
        container: engine.container(programs.options()),
        directory: tempfile::tempdir()?,
    };
    if matches!(programs, ContainerPrograms::Debian) {
        // Without these programs, the rows would be those of BusyBox again.
        fixture
            .container
            .sh("openssl version && python3 --version && sha256sum --version");
    }
    for (size, rounds) in SIZES_AND_ROUNDS {
        write_random_file(&fixture.local("in"), size)?;
        let file = format!("{CONTAINER_DIRECTORY}/out");
        fixture
            .container
            .sh(&format!("head -c {size} /dev/urandom >{file}"));
        wait_until_settled();
        for proof in IntegrityCheck::ALL_CHECKS {
            fixture.pair(size, rounds, proof, "get")?.run()?;
            fixture.pair(size, rounds, proof, "put")?.run()?;
            // Both sides create a file per round, which would fill the disk of the engine.
            fixture.container.sh(&format!(
                "rm -f {CONTAINER_DIRECTORY}/cp-* {CONTAINER_DIRECTORY}/dray-*"
            ));
        }
    }
    Ok(())
}

impl DockerFixture<'_> {
    fn local(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn pair(
        &self,
        size: u64,
        rounds: usize,
        proof: IntegrityCheck,
        direction: &str,
    ) -> anyhow::Result<BenchPair<'_>> {
        let (from, to) = (self.local("in"), self.local("out"));
        let (from, to) = (path_text(&from)?.to_owned(), path_text(&to)?.to_owned());
        let id = self.container.id();
        let is_get = direction == "get";
        let (source, target) = (from.clone(), to.clone());
        let theirs = move |round: usize| {
            let copy = to_words(["docker", "--host", &self.engine, "cp", "--quiet"]);
            let remote = format!("{id}:{CONTAINER_DIRECTORY}");
            let arguments = if is_get {
                [format!("{remote}/out"), target.clone()]
            } else {
                let name = format!("cp-{round}");
                [source.clone(), format!("{remote}/{name}")]
            };
            [copy, arguments.to_vec()].concat()
        };
        let ours = move |round: usize| {
            let sandbox = format!("docker:{id}");
            let file = format!("{CONTAINER_DIRECTORY}/out");
            let endpoint = format!("sandbox-transfer.docker.endpoint={}", self.engine);
            let name = format!("dray-{round}");
            let arguments = if is_get {
                to_words(["get", &sandbox, &file, "--output", &to])
            } else {
                to_words(["put", &from, &sandbox, CONTAINER_DIRECTORY, "--name", &name])
            };
            let settings = to_words(["--set", &endpoint, "--set", proof.setting()]);
            [to_words([self.dray, "sandbox"]), arguments, settings].concat()
        };
        Ok(BenchPair {
            name: format!(
                "(n) {direction} {size} B, {}, {}",
                self.programs.name(),
                proof.name()
            ),
            theirs: BenchSide {
                name: "docker cp".to_owned(),
                words: Box::new(theirs),
            },
            ours: BenchSide {
                name: format!("dray sandbox {direction}"),
                words: Box::new(ours),
            },
            target: proof.target_ratio(size),
            rounds,
            prepare: Box::new(|| {}),
        })
    }
}
