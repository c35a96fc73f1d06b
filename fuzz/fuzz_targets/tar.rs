//! Tars of sandboxes: the reader neither panics nor stalls, gives only safe and distinct names within its limits, sees the
//! same however the stream is cut, and what it saw is seen again in the tar that is written from it. A stricter decoder sees
//! the same entries as a more tolerant one, or none.
//!
//! The first byte chooses the size of the pieces, the second whether checksums are put right; the rest is the tar.

#![no_main]

use std::collections::BTreeSet;

use bytes::Bytes;
use dray_archive::tar::{BLOCK_BYTES, DecodeStep, Decoder, Entry, TarError, TarRules, padding};
use dray_sandbox::{Body, Error};
use dray_sandbox_tree::{self as tree, Kind, Limits, Member, Members as _, Owner, Reader};
use libfuzzer_sys::fuzz_target;

const TREE_LIMITS: Limits = Limits {
    entries: 50,
    total: 1 << 20,
    file: 1 << 18,
    depth: 5,
    names: 10_000,
};

fn body(tar: &[u8], piece: usize) -> Body {
    let pieces: Vec<_> = tar
        .chunks(piece.max(1))
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Body::new(futures_util::stream::iter(pieces))
}

type Found = Vec<(Member, Vec<u8>)>;

async fn read(tar: &[u8], piece: usize) -> Result<Found, Error> {
    let mut reader = Reader::new(body(tar, piece), TREE_LIMITS);
    let (mut found, mut seen, mut total) = (Found::new(), BTreeSet::new(), 0);
    while let Some(member) = reader.next().await? {
        let parts: Vec<_> = member.name.split(|byte| *byte == b'/').collect();
        assert!(parts.len() <= TREE_LIMITS.depth);
        for part in parts {
            assert!(!part.is_empty() && part != b"." && part != b".." && part.len() <= 255);
            assert!(!part.contains(&0));
        }
        assert!(seen.insert(member.name.to_ascii_lowercase()));
        assert!(member.mode <= 0o777 && member.size <= TREE_LIMITS.file);
        assert!(member.kind == Kind::File || member.size == 0);
        total += member.size;
        assert!(total <= TREE_LIMITS.total && found.len() < TREE_LIMITS.entries);
        let mut content = Vec::new();
        while let Some(piece) = reader.next_chunk().await? {
            assert!(!piece.is_empty());
            content.extend_from_slice(&piece);
        }
        assert_eq!(content.len() as u64, member.size);
        found.push((member, content));
    }
    Ok(found)
}

/// Puts right the checksum of each block that says that it is a header.
fn mended(tar: &[u8]) -> Vec<u8> {
    let mut tar = tar.to_vec();
    for block in tar.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().copied().map(u32::from).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    tar
}

/// Entries with where their content begins, by a decoder alone.
fn decode(tar: &[u8], rules: TarRules) -> Result<Vec<(Entry, usize)>, TarError> {
    let mut decoder = Decoder::new(rules);
    let (mut entries, mut at) = (Vec::new(), 0_usize);
    let next = |at: usize, size: u64| {
        let size = usize::try_from(size.saturating_add(padding(size))).unwrap_or(usize::MAX);
        let end = at.saturating_add(size);
        if end > tar.len() {
            Err(TarError::Truncated)
        } else {
            Ok(end)
        }
    };
    loop {
        let rest = &tar[at..];
        let block = rest.first_chunk();
        if block.is_none() && !rest.is_empty() {
            return Err(TarError::Truncated);
        }
        at += if block.is_some() { BLOCK_BYTES } else { 0 };
        match decoder.block(block)? {
            DecodeStep::Next | DecodeStep::Map => {}
            DecodeStep::Extension(size) => {
                let end = next(at, size)?;
                let size = usize::try_from(size).expect("a short header");
                decoder.extension(&tar[at..at + size])?;
                at = end;
            }
            DecodeStep::Entry(entry) => {
                let end = next(at, entry.size)?;
                entries.push((entry, at));
                at = end;
            }
            DecodeStep::End => return Ok(entries),
        }
    }
}

fn check_rules(tar: &[u8]) {
    let [exact, strict, tolerant] =
        [TarRules::Exact, TarRules::Strict, TarRules::Tolerant].map(|rules| decode(tar, rules));
    if let Ok(exact) = exact {
        assert_eq!(Ok(&exact), strict.as_ref());
    }
    if let Ok(strict) = strict {
        assert_eq!(Ok(strict), tolerant);
    }
}

async fn check(tar: &[u8], piece: usize) {
    check_rules(tar);
    let whole = read(tar, usize::MAX).await;
    let pieces = read(tar, piece).await;
    let whole = match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole, pieces);
            whole
        }
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole.kind(), pieces.kind());
            return;
        }
        (whole, pieces) => panic!("{whole:?} {pieces:?}"),
    };
    let ours = tree::tar(Reader::new(body(tar, piece), TREE_LIMITS), Owner::default());
    let ours = ours
        .read_all(8 << 20)
        .await
        .expect("what was read is written");
    let again = read(&ours, piece).await.expect("what was written is read");
    let plain = |found: Found| -> Vec<_> {
        let one = |(member, content): (Member, Vec<u8>)| (member.name, member.kind, content);
        found.into_iter().map(one).collect()
    };
    assert_eq!(plain(again), plain(whole));
    let zip = tree::zip(Reader::new(body(tar, piece), TREE_LIMITS));
    let zip = zip.read_all(8 << 20).await.expect("and zipped");
    assert!(zip.windows(4).any(|window| window == b"PK\x05\x06"));
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, mend, tar @ ..] = bytes else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let piece = usize::from(*piece) * 5 + 1;
    if mend % 2 == 0 {
        runtime.block_on(check(tar, piece));
    } else {
        runtime.block_on(check(&mended(tar), piece));
    }
});
