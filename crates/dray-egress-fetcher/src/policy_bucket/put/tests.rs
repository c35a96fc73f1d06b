//! Tests of puts on a real server: readers and other writers meanwhile, interruptions, and the earlier layout.

use std::collections::BTreeSet;
use std::pin::pin;
use std::task::Poll;

use dray_bus::test_bus;
use dray_testkit::nats::NatsServer;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::policy_bucket::POLICY_BUCKET;

const DENY_ALL: &str = "default = \"deny\"\n";
const ALLOW_ALL: &str = "default = \"allow\"\n";
const ROLE_TEXT: &str = "[[role]]\nname = \"a\"\n";

/// The files of a policy, by name.
type FileTexts<'a> = &'a [(&'a str, &'a str)];

const FIRST_FILES: FileTexts<'static> = &[("10-base.toml", DENY_ALL), ("20-roles.toml", ROLE_TEXT)];
const SECOND_FILES: FileTexts<'static> =
    &[("10-base.toml", ALLOW_ALL), ("30-more.toml", ROLE_TEXT)];

fn draft_by(writer: &str, files: FileTexts<'_>) -> PolicyDraft {
    let files = files.iter();
    let files = files.map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
    PolicyDraft::new(PolicyBytes::from_files(files.collect()), writer).unwrap()
}

fn draft(files: FileTexts<'_>) -> PolicyDraft {
    draft_by("ada", files)
}

/// A bucket of a real server.
struct BucketFixture {
    keys: KeyValue,
    _server: NatsServer,
}

impl BucketFixture {
    async fn start() -> Self {
        let server = NatsServer::start();
        let bus = test_bus::connect_provisioned(&server.url()).await;
        Self {
            keys: bus.key_value(POLICY_BUCKET),
            _server: server,
        }
    }

    async fn state(&self) -> BucketState {
        BucketState::read(&self.keys).await.unwrap()
    }

    /// The digest of the policy that a reader sees.
    async fn digest(&self) -> Result<String, String> {
        let files = self.state().await.policy();
        let rules = files.and_then(|files| files.rules());
        rules
            .map(|rules| rules.digest().to_owned())
            .map_err(|error| error.to_string())
    }

    /// Writes one key for each file, as earlier versions did, and no key of the whole policy.
    async fn write_single_files(&self, files: FileTexts<'_>) {
        for (name, text) in files {
            let text = Bytes::copy_from_slice(text.as_bytes());
            self.keys.create_or_update(name, text).await.unwrap();
        }
        if let Some(entry) = self.keys.get(POLICY_KEY).await.unwrap() {
            self.keys.delete(POLICY_KEY, entry.revision).await.unwrap();
        }
    }
}

/// Polls a future at most `polls` times, then drops it. Returns its output if it ended.
async fn poll_at_most<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|cx| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        future.as_mut().poll(cx).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_each_put_as_a_whole_or_not_at_all() {
    let bucket = BucketFixture::start().await;
    let drafts = [draft(FIRST_FILES), draft(SECOND_FILES)];
    let first = drafts[0].put(&bucket.keys, 0).await.unwrap();
    let is_done = CancellationToken::new();
    let write = async {
        let mut revision = first.revision;
        for round in 1..=40 {
            let put = drafts[round % 2].put(&bucket.keys, revision).await.unwrap();
            assert_eq!((put.written, put.deleted), (2, 1));
            revision = put.revision;
        }
        is_done.cancel();
    };
    let read = async {
        let mut digests = BTreeSet::new();
        while !is_done.is_cancelled() {
            digests.insert(bucket.digest().await.unwrap());
        }
        digests
    };
    let ((), digests) = tokio::join!(write, read);
    let complete: BTreeSet<_> = drafts
        .iter()
        .map(|draft| draft.rules_digest().to_owned())
        .collect();
    assert!(
        !digests.is_empty() && digests.is_subset(&complete),
        "{digests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_killed_anywhere_leaves_the_old_or_the_new_policy_and_can_be_repeated() {
    let bucket = BucketFixture::start().await;
    let (old, new) = (draft(FIRST_FILES), draft(SECOND_FILES));
    let mut seen = BTreeSet::new();
    for polls in 0.. {
        bucket.write_single_files(FIRST_FILES).await;
        assert_eq!(bucket.digest().await.unwrap(), old.rules_digest());
        let based_on = bucket.state().await.revision().number;
        let ended = poll_at_most(new.put(&bucket.keys, based_on), polls).await;
        let digest = bucket.digest().await.unwrap();
        assert!(
            [old.rules_digest(), new.rules_digest()].contains(&digest.as_str()),
            "{polls}: {digest}"
        );
        seen.insert(digest);
        let present = bucket.state().await.revision().number;
        let put = new.put(&bucket.keys, present).await.unwrap();
        assert_eq!(put.leftover_keys, 0);
        assert_eq!(bucket.digest().await.unwrap(), new.rules_digest());
        assert_eq!(bucket.state().await.file_keys().count(), 0, "{polls}");
        if ended.is_some() {
            break;
        }
    }
    assert_eq!(seen.len(), 2, "puts were killed before and after the write");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_puts_at_the_same_time_one_wins_and_the_others_learn_its_writer() {
    let bucket = BucketFixture::start().await;
    let mut based_on = 0;
    for files in [FIRST_FILES, SECOND_FILES] {
        let writers: Vec<String> = (0..8).map(|number| format!("writer-{number}")).collect();
        let drafts: Vec<_> = writers.iter().map(|name| draft_by(name, files)).collect();
        let puts = drafts.iter().map(|draft| draft.put(&bucket.keys, based_on));
        let results = futures_util::future::join_all(puts).await;
        let winners: Vec<_> = writers
            .iter()
            .zip(&results)
            .filter(|(_, put)| put.is_ok())
            .collect();
        let [(winner, Ok(won))] = &winners[..] else {
            panic!("{results:?}");
        };
        for result in results.iter().filter(|result| result.is_err()) {
            let Err(PutError::Outdated { present, .. }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(present.written_by.as_ref(), Some(*winner));
            assert_eq!(present.number, won.revision);
            assert!(present.time_ms.is_some());
        }
        based_on = won.revision;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_an_earlier_version_is_read_and_its_keys_are_replaced_by_the_next_put() {
    let bucket = BucketFixture::start().await;
    bucket.write_single_files(FIRST_FILES).await;
    let old = draft(FIRST_FILES);
    assert_eq!(bucket.digest().await.unwrap(), old.rules_digest());
    let revision = bucket.state().await.revision();
    assert_eq!((revision.number, revision.written_by), (2, None));
    // The same files are written too, so that later changes are whole ones.
    let put = old.put(&bucket.keys, 2).await.unwrap();
    assert_eq!((put.revision, put.written, put.deleted), (3, 0, 0));
    let state = bucket.state().await;
    assert_eq!(state.file_keys().count(), 0);
    assert_eq!(state.revision().number, 3, "deleted keys do not change it");
    assert_eq!(state.revision().written_by.as_deref(), Some("ada"));
    let again = old.put(&bucket.keys, 3).await.unwrap();
    assert_eq!(again.revision, 3, "nothing differs");
    assert_eq!(bucket.state().await, state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_an_earlier_version_writes_beside_the_policy_does_not_go_unnoticed() {
    let bucket = BucketFixture::start().await;
    let (first, second) = (draft(FIRST_FILES), draft(SECOND_FILES));
    let put = first.put(&bucket.keys, 0).await.unwrap();
    let content = Bytes::from_static(DENY_ALL.as_bytes());
    bucket.keys.create("10-base.toml", content).await.unwrap();
    let problem = bucket.digest().await.unwrap_err();
    assert!(
        problem.contains("`10-base.toml`, which was written after"),
        "{problem}"
    );
    let outdated = second.put(&bucket.keys, put.revision).await;
    assert!(
        matches!(outdated, Err(PutError::Outdated { .. })),
        "{outdated:?}"
    );
    let present = bucket.state().await.revision().number;
    second.put(&bucket.keys, present).await.unwrap();
    assert_eq!(bucket.digest().await.unwrap(), second.rules_digest());
    assert_eq!(bucket.state().await.file_keys().count(), 0);
    // An earlier version replaces the whole bucket by single files.
    bucket.write_single_files(FIRST_FILES).await;
    assert_eq!(bucket.digest().await.unwrap(), first.rules_digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_has_to_fit_into_one_message_when_compressed() {
    let bucket = BucketFixture::start().await;
    let comment = |text: &str| format!("{DENY_ALL}#{text}\n");
    let repeated = comment(&"x".repeat(900 * 1024));
    let put = draft(&[("10-base.toml", &repeated)])
        .put(&bucket.keys, 0)
        .await;
    assert_eq!(put.unwrap().revision, 1);
    assert!(bucket.digest().await.is_ok());
    // Digests have no repetitions, and base64 six bits in each character, so gzip saves a quarter at best.
    let digests: String = (0..22_000_u32)
        .map(|number| {
            base64::Engine::encode(
                &base64::engine::general_purpose::STANDARD,
                dray_types::Sha256Digest::of(&number.to_be_bytes()).as_bytes(),
            )
        })
        .collect();
    let files = vec![("10-base.toml".to_owned(), comment(&digests).into_bytes())];
    let refused = PolicyDraft::new(PolicyBytes::from_files(files), "ada");
    assert!(matches!(refused, Err(PutError::TooLarge(_))), "{refused:?}");
}

#[test]
fn what_cannot_be_put_is_refused_without_the_bucket() {
    let check = |name: &str, text: &str, writer: &str| {
        let files = vec![(name.to_owned(), text.as_bytes().to_vec())];
        let refused = PolicyDraft::new(PolicyBytes::from_files(files), writer);
        refused.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(check("10-base.toml", DENY_ALL, "ada"), Ok(()));
    let invalid = check("10-base.toml", "\ndefault = \"maybe\"\n", "ada").unwrap_err();
    assert!(invalid.starts_with("10-base.toml:2: "), "{invalid}");
    for (name, writer) in [
        ("10 base.toml", "ada"),
        (POLICY_KEY, "ada"),
        ("10-base.toml", ""),
        ("10-base.toml", "a\nb"),
        ("10-base.toml", "ä"),
    ] {
        assert!(check(name, DENY_ALL, writer).is_err(), "{name} {writer}");
    }
}
