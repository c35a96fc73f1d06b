//! (p) What `dray read` of a few bytes takes, beside a program that prints its version: all of that is the start.

use std::path::Path;

use super::pair::{Pair, Side, words};
use super::text;

/// Rounds.
const ROUNDS: usize = 21;

/// Measures it.
pub(super) fn run(dray: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("note.txt");
    std::fs::write(&file, "ten bytes\n")?;
    let (dray, file) = (text(dray)?.to_owned(), text(&file)?.to_owned());
    let version = words([&dray, "--version"]);
    let read = words([&dray, "read", &file]);
    let pair = Pair {
        name: "(p) reading ten bytes".to_owned(),
        theirs: Side {
            name: "dray --version".to_owned(),
            words: Box::new(move |_| version.clone()),
        },
        ours: Side {
            name: "dray read".to_owned(),
            words: Box::new(move |_| read.clone()),
        },
        aim: 4.0,
        rounds: ROUNDS,
        prepare: Box::new(|| {}),
    };
    pair.run()
}
