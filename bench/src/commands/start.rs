//! (p) The time of `dray read` for a few bytes, beside a program that prints its version: nearly all of it is the
//! start.

use std::path::Path;

use super::pair::{BenchPair, BenchSide, to_words};
use super::path_text;

/// Rounds that count; many, because a start takes a few milliseconds only.
const ROUND_COUNT: usize = 21;

/// Measures the start with a file of ten bytes, so that reading takes no time.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("note.txt");
    std::fs::write(&file, "ten bytes\n")?;
    let (dray, file) = (path_text(dray)?.to_owned(), path_text(&file)?.to_owned());
    let version = to_words([&dray, "--version"]);
    let read = to_words([&dray, "read", &file]);
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
