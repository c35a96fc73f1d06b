//! Random faults in random order: wrong bytes are never accepted, and no temporary file remains.

use dray_sandbox::metadata::Transport;
use dray_sandbox_conformance::fake::{Call, Change, Digests, Fault};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn kind() -> impl Strategy<Value = ErrorKind> {
    prop::sample::select(ErrorKind::ALL.to_vec())
}

/// Errors of a call that has begun. A taken name is found before that.
fn later_kind() -> impl Strategy<Value = ErrorKind> {
    kind().prop_filter("known before", |kind| *kind != ErrorKind::Exists)
}

fn position() -> impl Strategy<Value = u64> {
    0_u64..6000
}

/// Faults of any call that change nothing in the sandbox.
fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        6 => Just(Fault::None),
        2 => kind().prop_map(Fault::Fail),
        1 => Just(Fault::Hang),
        1 => later_kind().prop_map(Fault::Lost),
        3 => (position(), later_kind()).prop_map(|(at, kind)| Fault::Break(at, kind)),
        1 => position().prop_map(Fault::Stall),
        2 => position().prop_map(Fault::Flip),
        1 => Just(Fault::WrongDigest),
    ]
}

/// Faults of a `stat`, except a false "not found". If the sandbox cannot rename, a file is written under its own name
/// after `stat` says that the name is free. Afterwards it is unknown which process wrote it.
fn stat_fault() -> impl Strategy<Value = Fault> {
    fault().prop_filter("a false report that a file does not exist", |fault| {
        *fault != Fault::Fail(ErrorKind::NotFound)
    })
}

/// Faults of reading: also wrong sizes, and changes of the file during the transfer.
fn read_fault() -> impl Strategy<Value = Fault> {
    let change = prop_oneof![
        3 => (0_usize..6000, any::<u8>()).prop_map(|(length, byte)| Change::Rewrite(vec![byte; length].into())),
        2 => (0_usize..6000, any::<u8>()).prop_map(|(length, byte)| Change::Replace(vec![byte; length].into())),
        1 => Just(Change::Remove),
        1 => Just(Change::Link(path("/tmp/secret"))),
        1 => Just(Change::EndSandbox),
    ];
    prop_oneof![
        4 => fault(),
        2 => position().prop_map(Fault::Endless),
        2 => position().prop_map(Fault::ShortEnd),
        1 => position().prop_map(Fault::Size),
        3 => (position(), change.clone()).prop_map(|(at, change)| Fault::Meanwhile(at, change)),
        1 => change.prop_map(Fault::Before),
    ]
}

/// The properties of a random sandbox.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug)]
struct RandomSandbox {
    transports: Vec<Transport>,
    resumes: bool,
    drains: bool,
    weak: bool,
    renames: bool,
    while_reading: bool,
}

fn random_sandbox() -> impl Strategy<Value = RandomSandbox> {
    let transports = prop_oneof![
        Just(vec![Transport::Files]),
        Just(vec![Transport::Archive, Transport::Files]),
        Just(vec![Transport::Archive, Transport::Sftp, Transport::Files]),
    ];
    (transports, any::<[bool; 5]>()).prop_map(
        |(transports, [resumes, drains, weak, renames, while_reading])| RandomSandbox {
            transports,
            resumes,
            drains,
            weak,
            renames,
            while_reading,
        },
    )
}

impl RandomSandbox {
    fn fixture(&self) -> EngineFixture {
        let options = EngineOptions {
            digest_while_reading: self.while_reading,
            ..EngineOptions::default()
        };
        EngineFixture::with(self.fake(), options)
    }

    fn fake(&self) -> Fake {
        let fake = Fake::new();
        fake.transports(&self.transports);
        for transport in &self.transports {
            if self.resumes {
                fake.resuming(*transport);
            }
            if self.drains {
                fake.draining(*transport);
            }
        }
        fake.digests(if self.weak {
            Digests::Cksum
        } else {
            Digests::Sha256
        });
        fake.renames(self.renames);
        fake
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true) // paused clock
        .build()
        .unwrap();
    runtime.block_on(future)
}

/// Contents that a read may return: the first one, and every later one.
fn versions(first: &[u8], faults: &[Fault]) -> Vec<Vec<u8>> {
    let changed = faults.iter().filter_map(|fault| match fault {
        Fault::Meanwhile(_, change) | Fault::Before(change) => Some(change),
        _ => None,
    });
    let later = changed.filter_map(|change| match change {
        Change::Rewrite(content) | Change::Replace(content) => Some(content.to_vec()),
        _ => None,
    });
    std::iter::once(first.to_vec()).chain(later).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn r_8_a_get_gives_a_true_file_or_an_error(
        sandbox in random_sandbox(),
        length in 0_usize..6000,
        reads in vec(read_fault(), 0..6),
        stats in vec(read_fault(), 0..4),
        prints in vec(read_fault(), 0..4),
    ) {
        let first = pattern(length);
        let scripts = [(Call::Read, reads), (Call::Stat, stats), (Call::Fingerprint, prints)];
        let all: Vec<Fault> = scripts.iter().flat_map(|(_, faults)| faults.clone()).collect();
        let versions = versions(&first, &all);
        let (result, sink) = block_on(async {
            let fixture = sandbox.fixture();
            fixture.fake.file("/tmp/secret", "never");
            fixture.fake.file("/work/a", first);
            for (call, faults) in scripts {
                fixture.fake.script(call, faults);
            }
            fixture.get("/work/a").await
        });
        if result.is_ok() {
            prop_assert!(versions.contains(&sink.bytes), "bytes that the file never held");
        }
    }

    #[test]
    fn r_13_a_put_is_complete_or_leaves_no_file(
        sandbox in random_sandbox(),
        length in 0_usize..6000,
        taken in prop::option::of(0_usize..6000),
        collision in prop::sample::select(vec![Collision::Rename, Collision::Fail, Collision::Overwrite]),
        writes in vec(fault(), 0..6),
        stats in vec(stat_fault(), 0..4),
        prints in vec(fault(), 0..4),
        renames in vec(fault(), 0..5),
    ) {
        let content = pattern(length);
        let other = taken.map(|length| vec![b'#'; length]);
        // After a lost response and a wrong digest, one more copy is unavoidable.
        let max_copies = 2 + usize::from(prints.contains(&Fault::WrongDigest));
        let lost = renames.iter().any(|fault| matches!(fault, Fault::Lost(_)))
            || other.as_ref() == Some(&content);
        let (put, fixture) = block_on(async {
            let mut fixture = sandbox.fixture();
            fixture.collision = collision;
            if let Some(other) = &other {
                fixture.fake.file("/work/a", other.clone());
            }
            fixture.fake.script(Call::Write, writes);
            fixture.fake.script(Call::Stat, stats);
            fixture.fake.script(Call::Fingerprint, prints);
            fixture.fake.script(Call::Rename, renames);
            (fixture.put("a", content.clone()).await, fixture)
        });
        let files = fixture.work();
        prop_assert!(!files.iter().any(|name| name.contains(".op1.")), "{:?}", files);
        match put {
            Ok(put) => {
                prop_assert_eq!(fixture.fake.content(put.path.to_text().unwrap()).unwrap(), content);
                prop_assert!(put.left.is_empty());
                prop_assert!(files.len() <= max_copies, "more than one copy: {:?}", files);
            }
            Err(failed) => {
                prop_assert!(failed.left.is_empty());
                prop_assert!(failed.receipt.sha256.is_none());
                // The response of the rename was lost and the path cannot be checked: the file may exist, but only
                // complete.
                let is_complete = |name: &String| {
                    fixture.fake.content(&format!("/work/{name}")).unwrap() == content
                };
                let ours = files.iter().filter(|name| is_complete(name)).count();
                let foreign = files.len() - ours;
                prop_assert!(foreign <= usize::from(other.is_some()), "{:?}", files);
                prop_assert!(ours == 0 || lost, "{:?}", files);
            }
        }
        if let Some(other) = other && collision != Collision::Overwrite {
            prop_assert_eq!(fixture.fake.content("/work/a").unwrap(), other);
        }
    }
}
