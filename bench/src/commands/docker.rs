//! (n) `dray sandbox get` and `put` beside `docker cp`.

use std::path::{Path, PathBuf};

use dray_testkit::docker::{Container, ContainerOptions, Engine};

use super::pair::{Pair, Side, words};
use super::{Proof, SIZES, settle, text};
use crate::transfer::make;

/// Where files lie in the container.
const DIRECTORY: &str = "/workspace";

/// What both sides need.
struct World<'a> {
    dray: &'a str,
    engine: String,
    container: Container,
    folder: tempfile::TempDir,
}

/// Measures all sizes and proofs.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let engine = Engine::start();
    let world = World {
        dray: text(dray)?,
        engine: format!("unix://{}", engine.socket().display()),
        container: engine.container(ContainerOptions::default()),
        folder: tempfile::tempdir()?,
    };
    for (size, rounds) in SIZES {
        make(&world.local("in"), size)?;
        let file = format!("{DIRECTORY}/out");
        world
            .container
            .sh(&format!("head -c {size} /dev/urandom >{file}"));
        settle();
        for proof in Proof::ALL {
            world.pair(size, rounds, proof, "get")?.run()?;
            world.pair(size, rounds, proof, "put")?.run()?;
            world
                .container
                .sh(&format!("rm -f {DIRECTORY}/cp-* {DIRECTORY}/dray-*"));
        }
    }
    Ok(())
}

impl World<'_> {
    fn local(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pair(
        &self,
        size: u64,
        rounds: usize,
        proof: Proof,
        direction: &str,
    ) -> anyhow::Result<Pair<'_>> {
        let (from, to) = (self.local("in"), self.local("out"));
        let (from, to) = (text(&from)?.to_owned(), text(&to)?.to_owned());
        let id = self.container.id();
        let get = direction == "get";
        let (source, target) = (from.clone(), to.clone());
        let theirs = move |round: usize| {
            let copy = words(["docker", "--host", &self.engine, "cp", "--quiet"]);
            let inside = format!("{id}:{DIRECTORY}");
            let ends = if get {
                [format!("{inside}/out"), target.clone()]
            } else {
                let name = format!("cp-{round}");
                [source.clone(), format!("{inside}/{name}")]
            };
            [copy, ends.to_vec()].concat()
        };
        let ours = move |round: usize| {
            let sandbox = format!("docker:{id}");
            let file = format!("{DIRECTORY}/out");
            let endpoint = format!("sandbox-transfer.docker.endpoint={}", self.engine);
            let name = format!("dray-{round}");
            let ends = if get {
                words(["get", &sandbox, &file, "--output", &to])
            } else {
                words(["put", &from, &sandbox, DIRECTORY, "--name", &name])
            };
            let settings = words(["--set", &endpoint, "--set", proof.setting()]);
            [words([self.dray, "sandbox"]), ends, settings].concat()
        };
        Ok(Pair {
            name: format!("(n) {direction} {size} B, container, {}", proof.name()),
            theirs: Side {
                name: "docker cp".to_owned(),
                words: Box::new(theirs),
            },
            ours: Side {
                name: format!("dray sandbox {direction}"),
                words: Box::new(ours),
            },
            aim: proof.aim(size),
            rounds,
            prepare: Box::new(|| {}),
        })
    }
}
