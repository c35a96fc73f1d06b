//! (p) What `dray read` of a few bytes takes, beside a program that prints its version: all of that is the start.

use std::path::Path;

use super::pair::{BenchPair, BenchSide, words};
use super::text;

/// Rounds.
const ROUND_COUNT: usize = 21;

/// Measures it.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("note.txt");
    std::fs::write(&file, "ten bytes\n")?;
    let (dray, file) = (text(dray)?.to_owned(), text(&file)?.to_owned());
    let version = words([&dray, "--version"]);
    let read = words([&dray, "read", &file]);
    let pair = BenchPair {
        name: "(p) reading ten bytes".to_owned(),
        theirs: BenchSide {
            name: "dray --version".to_owned(),
            words: Box::new(move |_| version.clone()),
        },
        ours: BenchSide {
            name: "dray read".to_owned(),
            words: Box::new(move |_| read.clone()),
        },
        aim: 4.0,
        rounds: ROUND_COUNT,
        prepare: Box::new(|| {}),
    };
    pair.run()
}
