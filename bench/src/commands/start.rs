//! (p) The time of `dray read` for a few bytes, compared with `dray --version`. Nearly all of it is the start of the
//! process.

use std::path::Path;

use super::pair::{BenchPair, BenchSide, to_words};
use super::path_text;

/// Measured rounds. There are many, because a start takes only a few milliseconds.
const ROUND_COUNT: usize = 21;

/// Measures the start with a file of ten bytes, so that reading takes no time.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("note.txt");
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
        target: 4.0,
        rounds: ROUND_COUNT,
        prepare: Box::new(|| {}),
    };
    pair.run()
}
