//! Properties that hold for every tar, even for tars that no tool would write.

use dray_sandbox::error::Error;
use proptest::prelude::*;

use super::{GivenMembers, ScriptedTar, body, file};
use crate::{Kind, Limits, Members as _, Owner, Reader, tar, zip};

/// Reads everything and checks what a member promises.
async fn read_checked(bytes: &[u8], limits: Limits) -> Result<Vec<Vec<u8>>, Error> {
    let mut reader = Reader::new(body(bytes, 333), limits);
    let mut names = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    let mut total = 0;
    while let Some(member) = reader.next().await? {
        assert!(!member.name.is_empty() && member.name.len() <= 8192);
        for part in member.name.split(|byte| *byte == b'/') {
            assert!(!part.is_empty() && part != b"." && part != b".." && part.len() <= 255);
            assert!(!part.contains(&0));
        }
        assert!(member.name.split(|byte| *byte == b'/').count() <= limits.depth);
        assert!(seen.insert(member.name.to_ascii_lowercase()));
        assert!(member.mode <= 0o777 && member.size <= limits.file);
        assert!(member.kind == Kind::File || member.size == 0);
        let mut remaining = member.size;
        while let Some(chunk) = reader.next_chunk().await? {
            assert!(!chunk.is_empty());
            remaining -= chunk.len() as u64;
        }
        assert_eq!(remaining, 0);
        total += member.size;
        assert!(total <= limits.total);
        names.push(member.name);
        assert!(names.len() <= limits.entries);
    }
    Ok(names)
}

const SMALL_LIMITS: Limits = Limits {
    entries: 20,
    total: 10_000,
    file: 4000,
    depth: 4,
    names: 4000,
};

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.build().unwrap().block_on(future)
}

/// Parts of names, many of them odd.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"A".to_vec()),
        Just(b"..".to_vec()),
        Just(b".".to_vec()),
        Just(b"".to_vec()),
        Just(b"b.txt".to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| {
        let mut name = parts.join(&b'/');
        name.truncate(99);
        name
    })
}

fn archive() -> impl Strategy<Value = Vec<u8>> {
    let flag = prop::sample::select(b"0\x0005xLgKS1237VZ".to_vec());
    let member = (flag, name(), prop::collection::vec(any::<u8>(), 0..1500));
    prop::collection::vec(member, 0..12).prop_map(|members| {
        let tar = members
            .into_iter()
            .fold(ScriptedTar::default(), |tar, member| {
                let (flag, name, content) = member;
                match flag {
                    b'x' => {
                        let size = content.len().to_string();
                        tar.pax(b'x', &[("path", "p/q"), ("size", &size)])
                    }
                    b'1'..=b'6' => tar.member(flag, &name, b""),
                    flag => tar.member(flag, &name, &content),
                }
            });
        tar.ended()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn members_keep_their_promises_for_any_archive(tar in archive()) {
        let _ = run(read_checked(&tar, SMALL_LIMITS));
    }

    #[test]
    fn changed_bytes_never_break_the_reader(
        tar in archive(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut tar = tar;
        for (at, byte) in changes {
            let at = at.index(tar.len());
            tar[at] = byte;
        }
        let _ = run(read_checked(&tar, SMALL_LIMITS));
        let _ = run(read_checked(&tar[..cut.index(tar.len())], SMALL_LIMITS));
    }

    #[test]
    fn written_members_are_read_back(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 1..8),
        length in 1_usize..250,
    ) {
        let members = contents.iter().enumerate().map(|(index, content)| {
            file(format!("{}{index}/{0}", "n".repeat(length)), content)
        });
        let members: Vec<_> = members.collect();
        let names: Vec<_> = members.iter().map(|(member, _)| member.name.clone()).collect();
        let limits = Limits::default();
        run(async {
            let bytes = tar(GivenMembers::new(members), Owner::default());
            let bytes = bytes.read_all(1 << 20).await.unwrap();
            assert_eq!(read_checked(&bytes, limits).await.unwrap(), names);
            zip(Reader::new(body(&bytes, 100), limits)).read_all(1 << 20).await.unwrap();
        });
    }
}
