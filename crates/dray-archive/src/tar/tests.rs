//! Archives that are complete, cut at any byte, or have false headers.

use proptest::prelude::*;

use super::*;

/// Entries with their content, read from bytes.
fn decode(mut bytes: &[u8], rules: TarRules) -> Result<Vec<(Entry, Vec<u8>)>, TarError> {
    let mut remaining = bytes.len();
    let mut take = |size: u64| {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (taken, rest) = bytes.split_at_checked(size).ok_or(TarError::Truncated)?;
        bytes = rest;
        Ok((taken.to_vec(), rest.len()))
    };
    let mut decoder = Decoder::new(rules);
    let mut entries = Vec::new();
    loop {
        let block = if remaining == 0 {
            None
        } else {
            let (block, rest) = take(BLOCK_BYTES as u64)?;
            remaining = rest;
            block.first_chunk().copied()
        };
        match decoder.block(block.as_ref())? {
            DecodeStep::Next | DecodeStep::Map => {}
            DecodeStep::Extension(size) => {
                let (content, _) = take(size)?;
                (_, remaining) = take(padding(size))?;
                decoder.extension(&content)?;
            }
            DecodeStep::Entry(entry) => {
                let (content, _) = take(entry.size)?;
                (_, remaining) = take(padding(entry.size))?;
                entries.push((entry, content));
            }
            DecodeStep::End => return Ok(entries),
        }
    }
}

/// A header block with changes and the right checksum, and its padded content.
fn block(flag: u8, content: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let size = content.len() as u64;
    let mut tar = encode(&NewEntry {
        flag,
        size,
        ..NewEntry::file(b"x")
    });
    change(&mut tar);
    tar[148..156].fill(b' ');
    let sum: u32 = tar.iter().copied().map(u32::from).sum();
    tar[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
    tar
}

fn plain(flag: u8, content: &[u8]) -> Vec<u8> {
    block(flag, content, |_| {})
}

fn archive(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), END_BLOCKS.to_vec()].concat()
}

fn error_of(tar: &[u8], rules: TarRules) -> &'static str {
    match decode(tar, rules) {
        Ok(_) => "none",
        Err(TarError::Malformed(_)) => "malformed",
        Err(TarError::Truncated) => "truncated",
    }
}

fn names(tar: &[u8], rules: TarRules) -> Vec<String> {
    let entries = decode(tar, rules).unwrap();
    let name = |(entry, _): (Entry, _)| entry.name.escape_ascii().to_string();
    entries.into_iter().map(name).collect()
}

#[test]
fn encoded_headers_are_decoded() {
    let long = [b"\xc3\xa4".repeat(127), b"x".to_vec()].concat();
    let parted = [b"d".repeat(90), b"/".to_vec(), b"n".repeat(90)].concat();
    for name in [
        b"report.pdf".as_slice(),
        b"\xff\n.bin",
        &[b'n'; 100],
        &long,
        &parted,
    ] {
        for size in [0, 1, 511, 512, 513, 5000] {
            let content = vec![b'd'; size];
            let mut tar = encode(&NewEntry {
                size: size as u64,
                mode: 0o640,
                mtime: 1_000,
                ..NewEntry::file(name)
            });
            tar.extend_from_slice(&content);
            tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
            let entries = decode(&archive(&[tar]), TarRules::Exact).unwrap();
            let [(entry, read)] = entries.as_slice() else {
                panic!("{entries:?}");
            };
            assert_eq!((entry.name.as_slice(), read), (name, &content));
            assert_eq!((entry.mode, entry.mtime), (0o640, Some(1_000)));
            assert_eq!(entry.kind, EntryKind::File);
        }
    }
}

#[test]
fn numbers_that_are_too_long_for_octal_digits_are_binary() {
    let size = 3 << 40;
    let owner = Owner {
        uid: 1000,
        gid: 3_000_000,
    };
    let tar = encode(&NewEntry {
        size,
        owner,
        ..NewEntry::file(b"huge")
    });
    assert_eq!(&tar[108..116], b"0001750\0");
    assert_eq!(&tar[116..124], &[0x80, 0, 0, 0, 0, 0x2d, 0xc6, 0xc0]);
    let step = Decoder::new(TarRules::Exact).block(tar.first_chunk());
    let Ok(DecodeStep::Entry(entry)) = step else {
        panic!("{step:?}");
    };
    assert_eq!(entry.size, size);
}

#[test]
fn r_5_every_cut_is_truncated_up_to_where_the_rules_allow_an_end() {
    let tar = archive(&[plain(b'0', b"some data")]);
    for length in 0..tar.len() {
        let prefix = &tar[..length];
        assert_eq!(error_of(prefix, TarRules::Exact), "truncated", "{length}");
        let strict = if length == 3 * BLOCK_BYTES {
            "none"
        } else {
            "truncated"
        };
        assert_eq!(error_of(prefix, TarRules::Strict), strict, "{length}");
    }
    for whole in [0, 2, 3, 4] {
        assert_eq!(
            error_of(&tar[..whole * BLOCK_BYTES], TarRules::Tolerant),
            "none"
        );
    }
}

#[test]
fn cve_2025_62518_the_size_of_a_pax_header_wins() {
    let tar = archive(&[
        plain(b'x', b"12 size=512\n"),
        // The header says that the file is empty, so the following block is another entry.
        plain(b'0', b""),
        block(b'0', b"", |block| block[0] = b'y'),
    ]);
    for rules in [TarRules::Exact, TarRules::Strict, TarRules::Tolerant] {
        let entries = decode(&tar, rules).unwrap();
        assert_eq!((entries.len(), entries[0].1.len()), (1, 512));
    }
}

#[test]
fn names_and_targets_of_extended_headers_are_read() {
    let link = |block: &mut [u8]| block[157..163].copy_from_slice(b"../etc");
    let tar = archive(&[
        plain(b'L', b"gnu\0"),
        plain(b'x', b"12 path=pax\n"),
        plain(b'0', b""),
        plain(b'L', &[[b'g'; 300].as_slice(), b"\0"].concat()),
        plain(b'0', b""),
        block(b'2', b"", link),
        plain(b'K', b"far\0"),
        block(b'2', b"", link),
        plain(b'x', b"17 linkpath=wins\n"),
        plain(b'K', b"far\0"),
        block(b'1', b"", link),
        block(b'0', b"", |block| block[..2].copy_from_slice(b"d/")),
    ]);
    let entries = decode(&tar, TarRules::Exact).unwrap();
    let first = &entries[0].0;
    assert_eq!(first.name, b"pax", "pax wins over GNU");
    assert_eq!(entries[1].0.name, [b'g'; 300]);
    let links: Vec<_> = entries[2..5]
        .iter()
        .map(|(entry, _)| (entry.kind, entry.link.as_slice()))
        .collect();
    assert_eq!(
        links,
        [
            (EntryKind::Symlink, b"../etc".as_slice()),
            (EntryKind::Symlink, b"far"),
            (EntryKind::HardLink, b"wins"),
        ]
    );
    assert_eq!(
        entries[5].0.kind,
        EntryKind::Directory,
        "the seventh edition"
    );
}

#[test]
fn files_with_holes_are_named_and_their_maps_are_passed() {
    let map = |more: u8| {
        let mut block = vec![1; BLOCK_BYTES];
        block[504] = more;
        block
    };
    let old = block(b'S', b"", |block| {
        block[124..136].copy_from_slice(b"00000000005\0");
        block[482] = 1;
        block[483..495].copy_from_slice(b"00000010000\0");
    });
    let mut holes = b"holes".to_vec();
    holes.resize(BLOCK_BYTES, 0);
    let tar = archive(&[
        old,
        map(1),
        map(0),
        holes,
        plain(
            b'x',
            b"22 GNU.sparse.major=1\n28 GNU.sparse.name=disk.img\n28 GNU.sparse.realsize=4096\n",
        ),
        plain(b'0', b"1\n0\n"),
        plain(b'0', b"after"),
    ]);
    for rules in [TarRules::Exact, TarRules::Strict, TarRules::Tolerant] {
        let entries = decode(&tar, rules).unwrap();
        let found: Vec<_> = entries
            .iter()
            .map(|(entry, content)| (entry.kind, entry.real_size, content.as_slice()))
            .collect();
        assert_eq!(
            found,
            [
                (EntryKind::Sparse, Some(4096), b"holes".as_slice()),
                (EntryKind::Sparse, Some(4096), b"1\n0\n"),
                (EntryKind::File, None, b"after"),
            ]
        );
        assert_eq!(entries[1].0.name, b"disk.img");
    }
}

#[test]
fn global_headers_change_neither_names_nor_sizes() {
    let tar = archive(&[plain(b'g', b"12 path=all\n"), plain(b'0', b"")]);
    assert_eq!(names(&tar, TarRules::Exact), ["x"]);
    let sized = archive(&[plain(b'g', b"12 size=512\n"), plain(b'0', b"")]);
    assert_eq!(error_of(&sized, TarRules::Strict), "malformed");
    assert_eq!(names(&sized, TarRules::Tolerant), ["x"]);
}

#[test]
fn ambiguous_archives_are_refused_and_listed() {
    let file = || plain(b'0', b"data");
    let path = || plain(b'x', b"12 path=abc\n");
    let lone = vec![0; BLOCK_BYTES];
    let link = block(b'1', b"", |block| block[134] = b'1');
    for (what, parts, listed) in [
        ("content of a link", vec![link, file()], 2),
        ("two extended headers", vec![path(), path(), file()], 1),
        (
            "a global header between",
            vec![path(), plain(b'g', b""), file()],
            1,
        ),
        ("an extended header alone", vec![path()], 0),
        ("half an end", vec![file(), lone, file()], 1),
        (
            "no size",
            vec![block(b'0', b"", |block| block[124..136].fill(b' '))],
            1,
        ),
        ("no length", vec![plain(b'x', b"size=1\n"), file()], 1),
        ("too long", vec![plain(b'x', b"99 size=1\n"), file()], 1),
        ("not a number", vec![plain(b'x', b"10 size=x\n"), file()], 1),
        ("no value", vec![plain(b'x', b"5 ab\n"), file()], 1),
        ("zero length", vec![plain(b'x', b"0 path=x\n"), file()], 1),
    ] {
        let tar = archive(&parts);
        for rules in [TarRules::Exact, TarRules::Strict] {
            assert_eq!(error_of(&tar, rules), "malformed", "{what}");
        }
        assert_eq!(names(&tar, TarRules::Tolerant).len(), listed, "{what}");
    }
}

#[test]
fn files_that_are_not_tar_are_refused_by_every_rule() {
    let mut checksum = archive(&[plain(b'0', b"")]);
    checksum[0] ^= 1;
    let huge = |flag| {
        block(flag, b"", |block| {
            block[124..136].copy_from_slice(b"77777777777\0");
        })
    };
    for (what, tar) in [
        ("checksum", checksum),
        ("garbage", vec![b'?'; 2048]),
        ("huge records", huge(b'x')),
        ("huge name", huge(b'L')),
        (
            "negative size",
            block(b'0', b"", |block| block[124..136].fill(0xff)),
        ),
        (
            "no digits",
            block(b'0', b"", |block| block[124..136].fill(b'9')),
        ),
    ] {
        for rules in [TarRules::Exact, TarRules::Strict, TarRules::Tolerant] {
            assert_eq!(error_of(&tar, rules), "malformed", "{what}");
        }
    }
    assert!(!is_header(&[0; BLOCK_BYTES]));
}

fn part() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop::sample::select(b"\x000123456 7LKxgS".to_vec());
    let content = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600),
        Just(b"12 path=abc\n11 size=33\n".to_vec()),
        Just(b"22 GNU.sparse.major=1\n".to_vec()),
    ];
    let change = (0..BLOCK_BYTES, any::<u8>(), prop::bool::weighted(0.2));
    (flags, content, change).prop_map(|(flag, content, (at, byte, is_changed))| {
        block(flag, &content, |block| {
            if is_changed {
                block[at] = byte;
            }
        })
    })
}

proptest! {
    #[test]
    fn a_stricter_reader_sees_the_same_or_nothing(
        parts in prop::collection::vec(part(), 0..6),
        cut in 0..2000_usize,
    ) {
        let mut tar = archive(&parts);
        tar.truncate(tar.len().saturating_sub(cut));
        let [exact, strict, tolerant] =
            [TarRules::Exact, TarRules::Strict, TarRules::Tolerant].map(|rules| decode(&tar, rules));
        if let Ok(exact) = exact {
            prop_assert_eq!(Ok(&exact), strict.as_ref());
        }
        if let Ok(strict) = strict {
            prop_assert_eq!(Ok(strict), tolerant);
        }
    }
}
