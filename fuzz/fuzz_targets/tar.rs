//! Tars of sandboxes: the reader neither panics nor stalls, and returns only safe and distinct names within its limits.
//! It returns the same members however the stream is split into chunks, and the same again from the tar that is written
//! from them. A stricter decoder returns the same entries as a more tolerant one, or none.
//!
//! The first byte chooses the size of the chunks, the second whether checksums are corrected; the rest is the tar.

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

fn body(tar: &[u8], chunk_bytes: usize) -> Body {
    let chunks: Vec<_> = tar
        .chunks(chunk_bytes.max(1))
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    Body::new(futures_util::stream::iter(chunks))
}

/// The members of a tar with their content.
type ReadMembers = Vec<(Member, Vec<u8>)>;

async fn read(tar: &[u8], chunk_bytes: usize) -> Result<ReadMembers, Error> {
    let mut reader = Reader::new(body(tar, chunk_bytes), TREE_LIMITS);
    let (mut found, mut seen, mut total) = (ReadMembers::new(), BTreeSet::new(), 0);
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
        while let Some(chunk) = reader.next_chunk().await? {
            assert!(!chunk.is_empty());
            content.extend_from_slice(&chunk);
        }
        assert_eq!(content.len() as u64, member.size);
        found.push((member, content));
    }
    Ok(found)
}

/// Corrects the checksum of each block that has the magic of a header.
fn with_checksums(tar: &[u8]) -> Vec<u8> {
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

/// Entries, each with the offset of its content, as the decoder alone returns them.
fn decode(tar: &[u8], rules: TarRules) -> Result<Vec<(Entry, usize)>, TarError> {
    let mut decoder = Decoder::new(rules);
    let (mut entries, mut offset) = (Vec::new(), 0_usize);
    let end_of = |start: usize, size: u64| {
        let size = usize::try_from(size.saturating_add(padding(size))).unwrap_or(usize::MAX);
        let end = start.saturating_add(size);
        if end > tar.len() {
            Err(TarError::Truncated)
        } else {
            Ok(end)
        }
    };
    loop {
        let rest = &tar[offset..];
        let block = rest.first_chunk();
        if block.is_none() && !rest.is_empty() {
            return Err(TarError::Truncated);
        }
        offset += if block.is_some() { BLOCK_BYTES } else { 0 };
        match decoder.block(block)? {
            DecodeStep::Next | DecodeStep::Map => {}
            DecodeStep::Extension(size) => {
                let end = end_of(offset, size)?;
                let size = usize::try_from(size).expect("a short header");
                decoder.extension(&tar[offset..offset + size])?;
                offset = end;
            }
            DecodeStep::Entry(entry) => {
                let end = end_of(offset, entry.size)?;
                entries.push((entry, offset));
                offset = end;
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

async fn check(tar: &[u8], chunk_bytes: usize) {
    check_rules(tar);
    let whole = read(tar, usize::MAX).await;
    let in_chunks = read(tar, chunk_bytes).await;
    let whole = match (whole, in_chunks) {
        (Ok(whole), Ok(in_chunks)) => {
            assert_eq!(whole, in_chunks);
            whole
        }
        (Err(whole), Err(in_chunks)) => {
            assert_eq!(whole.kind(), in_chunks.kind());
            return;
        }
        (whole, in_chunks) => panic!("{whole:?} {in_chunks:?}"),
    };
    let ours = tree::tar(
        Reader::new(body(tar, chunk_bytes), TREE_LIMITS),
        Owner::default(),
    );
    let ours = ours
        .read_all(8 << 20)
        .await
        .expect("what was read is written");
    let repeated = read(&ours, chunk_bytes)
        .await
        .expect("what was written is read");
    let comparable = |members: ReadMembers| -> Vec<_> {
        let reduce = |(member, content): (Member, Vec<u8>)| (member.name, member.kind, content);
        members.into_iter().map(reduce).collect()
    };
    assert_eq!(comparable(repeated), comparable(whole));
    let zip = tree::zip(Reader::new(body(tar, chunk_bytes), TREE_LIMITS));
    let zip = zip.read_all(8 << 20).await.expect("and zipped");
    assert!(zip.windows(4).any(|window| window == b"PK\x05\x06"));
}

fuzz_target!(|bytes: &[u8]| {
    let [chunk_factor, correction, tar @ ..] = bytes else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let chunk_bytes = usize::from(*chunk_factor) * 5 + 1;
    if correction % 2 == 0 {
        runtime.block_on(check(tar, chunk_bytes));
    } else {
        runtime.block_on(check(&with_checksums(tar), chunk_bytes));
    }
});
