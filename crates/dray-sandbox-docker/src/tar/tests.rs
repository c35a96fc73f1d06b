//! Archives that are whole, cut anywhere, or lie.

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind};
use futures_util::stream;

use super::*;

/// In pieces of `piece` bytes.
fn body(bytes: &[u8], piece: usize) -> Body {
    let pieces: Vec<_> = bytes
        .chunks(piece)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Body::new(stream::iter(pieces))
}

fn archive(name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut tar = file(name, data.len() as u64, 0o640, (7, 8), 1_000);
    tar.extend_from_slice(data);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    tar.extend_from_slice(&END);
    tar
}

async fn read(bytes: &[u8], piece: usize) -> Result<Vec<(Header, Vec<u8>)>, Error> {
    let mut reader = Reader::new(body(bytes, piece));
    let mut entries = Vec::new();
    while let Some(header) = reader.entry().await? {
        let mut data = Vec::new();
        while let Some(piece) = reader.data().await? {
            data.extend_from_slice(&piece);
        }
        entries.push((header, data));
    }
    Ok(entries)
}

/// A header block that says what it is told.
fn block(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut block = file(b"x", 0, 0o644, (0, 0), 0);
    change(&mut block);
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn pax(records: &[u8]) -> Vec<u8> {
    let mut tar = block(|block| {
        block[156] = b'x';
        block[124..136].copy_from_slice(format!("{:011o}\0", records.len()).as_bytes());
    });
    tar.extend_from_slice(records);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
    tar
}

#[tokio::test]
async fn what_is_written_is_read_however_it_is_cut() {
    let names: [&[u8]; 4] = [
        b"report.pdf",
        b"\xff\n.bin",
        &[b'n'; 100],
        &[b"\xc3\xa4".repeat(127), b"x".to_vec()].concat(),
    ];
    for name in names {
        for size in [0, 1, 511, 512, 513, 5000] {
            let data = vec![b'd'; size];
            let tar = archive(name, &data);
            for piece in [1, 7, 512, 100_000] {
                let entries = read(&tar, piece).await.unwrap();
                assert_eq!(entries.len(), 1);
                let (header, read) = &entries[0];
                assert_eq!((header.name.as_slice(), read), (name, &data));
                assert_eq!((header.mode, header.mtime), (0o640, 1_000));
                assert_eq!(header.kind, Kind::File);
            }
        }
    }
}

#[tokio::test]
async fn r_5_every_cut_before_the_end_blocks_is_truncated() {
    let tar = archive(b"file", b"some data");
    for length in 0..tar.len() {
        let error = read(&tar[..length], 512).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{length}");
    }
}

#[tokio::test]
async fn sizes_beyond_8_gib_are_read_in_both_notations() {
    let size: u64 = 3 << 40;
    let written = file(b"huge", size, 0o644, (0, 0), 0);
    let mut reader = Reader::new(body(&written, 512));
    assert_eq!(reader.entry().await.unwrap().unwrap().size, size);

    let base_256 = block(|block| {
        block[124] = 0x80;
        block[125..136].fill(0);
        block[128..136].copy_from_slice(&size.to_be_bytes());
    });
    let mut reader = Reader::new(body(&base_256, 512));
    assert_eq!(reader.entry().await.unwrap().unwrap().size, size);
    let error = reader.data().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
}

#[tokio::test]
async fn the_size_of_pax_counts_so_that_nothing_is_smuggled() {
    let mut tar = pax(b"12 size=512\n");
    // By its header the file is empty and what follows would be another entry.
    tar.extend_from_slice(&block(|_| {}));
    tar.extend_from_slice(&block(|block| block[0] = b'y'));
    tar.extend_from_slice(&END);
    let entries = read(&tar, 512).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (entries[0].0.name.as_slice(), entries[0].1.len()),
        (&b"x"[..], 512)
    );
}

#[tokio::test]
async fn long_names_of_gnu_are_read() {
    let long = [b'g'; 300];
    let mut tar = block(|block| {
        block[156] = b'L';
        block[124..136].copy_from_slice(b"00000000455\0");
    });
    tar.extend_from_slice(&long);
    tar.resize(2 * BLOCK, 0);
    tar.extend_from_slice(&archive(b"short", b"data"));
    let entries = read(&tar, 100).await.unwrap();
    assert_eq!(entries[0].0.name, long);
}

#[tokio::test]
async fn links_and_their_targets_are_read() {
    let link = block(|block| {
        block[156] = b'2';
        block[157..163].copy_from_slice(b"../etc");
    });
    let tar = [link, END.to_vec()].concat();
    let entries = read(&tar, 512).await.unwrap();
    let header = &entries[0].0;
    assert_eq!(
        (header.kind, header.link.as_slice()),
        (Kind::Symlink, &b"../etc"[..])
    );
}

#[tokio::test]
async fn what_is_no_archive_is_refused() {
    let mut broken = archive(b"file", b"data");
    broken[0] ^= 1;
    let huge_records = block(|block| {
        block[156] = b'x';
        block[124..136].copy_from_slice(b"77777777777\0");
    });
    let overflow = block(|block| block[124..136].fill(0xff));
    let digits = block(|block| block[124..136].copy_from_slice(b"99999999999\0"));
    let mut global = pax(b"12 size=512\n");
    global = [
        block(|block| block.copy_from_slice(&global[..512])),
        global[512..].to_vec(),
    ]
    .concat();
    let global = {
        let first = block(|block| {
            block.copy_from_slice(&global[..512]);
            block[156] = b'g';
        });
        [first, global[512..].to_vec()].concat()
    };
    let half = [vec![0; BLOCK], archive(b"file", b"data")].concat();
    for (what, tar) in [
        ("checksum", broken),
        ("garbage", vec![b'?'; 2048]),
        ("huge records", huge_records),
        ("negative size", overflow),
        ("no digits", digits),
        ("global size", global),
        ("half an end", half),
        ("no length", pax(b"size=1\n")),
        ("too long", pax(b"99 size=1\n")),
        ("not a number", pax(b"10 size=x\n")),
        ("no value", pax(b"5 ab\n")),
        ("zero length", pax(b"0 path=x\n")),
        ("sparse", pax(b"22 GNU.sparse.major=1\n")),
    ] {
        let error = read(&tar, 512).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{what}");
    }
}

#[test]
fn owners_with_large_numbers_fit() {
    let tar = file(b"file", 0, 0o644, (1000, 3_000_000), 0);
    assert_eq!(&tar[108..116], b"0001750\0");
    assert_eq!(&tar[116..124], &[0x80, 0, 0, 0, 0, 0x2d, 0xc6, 0xc0]);
}
