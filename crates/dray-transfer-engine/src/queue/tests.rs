//! Tests of the queue.

use std::os::unix::fs::MetadataExt as _;

use proptest::prelude::*;

use super::*;

fn options() -> EngineOptions {
    EngineOptions {
        ..EngineOptions::default()
    }
}

fn chunk(number: usize) -> Bytes {
    vec![number.to_le_bytes()[0]; MAX_HELD_BYTES / 4 + number].into()
}

#[tokio::test]
async fn r_7_a_writer_with_a_spool_does_not_wait_for_a_stalled_reader() {
    let options = options();
    let queue = Queue::new(Some(Spool::from(&options)));
    for number in 0..20 {
        queue.push(chunk(number)).await.unwrap();
    }
    queue.end(Ok(()));
    assert!(queue.state().held <= MAX_HELD_BYTES);
    let mut expected: Vec<u8> = (0..20).flat_map(chunk).collect();
    while let Some(bytes) = queue.pop().await.unwrap() {
        let rest = expected.split_off(bytes.len());
        assert!(expected == bytes, "bytes came in another order");
        expected = rest;
    }
    assert!(expected.is_empty());
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_reader_that_keeps_pace_needs_no_spool_file() {
    let nowhere = EngineOptions {
        spool_dir: "/nonexistent/spool".into(),
        ..options()
    };
    let queue = Queue::new(Some(Spool::from(&nowhere)));
    let write = async {
        for number in 0..20 {
            queue.push(chunk(number)).await.unwrap();
        }
        queue.end(Ok(()));
    };
    let read = async {
        let mut count = 0;
        while let Some(bytes) = queue.pop().await.unwrap() {
            assert!(bytes == chunk(count));
            count += 1;
            tokio::time::sleep(SPOOL_GRACE / 2).await; // paused clock
        }
        count
    };
    assert_eq!(futures_util::join!(write, read).1, 20);
}

#[tokio::test]
async fn r_12_a_writer_without_a_spool_waits_for_room() {
    let queue = Queue::new(None);
    for number in 0..3 {
        queue.push(chunk(number)).await.unwrap();
    }
    let mut fourth = Box::pin(queue.push(chunk(9)));
    assert!(futures_util::poll!(&mut fourth).is_pending());
    assert_eq!(queue.pop().await.unwrap(), Some(chunk(0)));
    fourth.await.unwrap();
    assert!(queue.state().held <= MAX_HELD_BYTES);
}

#[tokio::test]
async fn a_failure_of_the_writer_comes_after_its_bytes() {
    let queue = Queue::new(None);
    queue.push(Bytes::from_static(b"a")).await.unwrap();
    queue.end(Err(Error::new(ErrorKind::Truncated, "short")));
    assert_eq!(queue.pop().await.unwrap(), Some(Bytes::from_static(b"a")));
    assert_eq!(queue.pop().await.unwrap_err().kind(), ErrorKind::Truncated);
}

#[tokio::test]
async fn a_spool_that_is_full_or_missing_is_an_error() {
    let full = EngineOptions {
        spool_limit: 10,
        ..options()
    };
    let nowhere = EngineOptions {
        spool_dir: "/nonexistent/spool".into(),
        ..options()
    };
    for (options, kind) in [
        (full, ErrorKind::NoSpace),
        (nowhere, ErrorKind::Unavailable),
    ] {
        let queue = Queue::new(Some(Spool::from(&options)));
        queue.push(vec![0; MAX_HELD_BYTES].into()).await.unwrap();
        let error = queue.push(vec![0; 11].into()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.is_of_this_host(), "the sandbox has space");
    }
}

#[tokio::test]
async fn transfers_share_the_limit_of_the_spool_and_give_back_what_they_had() {
    let options = EngineOptions {
        spool_limit: 3 * MAX_HELD_BYTES as u64,
        ..options()
    };
    let queue = || Queue::new(Some(Spool::from(&options)));
    let block = Bytes::from(vec![7; MAX_HELD_BYTES]);
    let (first, second) = (queue(), queue());
    for _ in 0..3 {
        first.push(block.clone()).await.unwrap();
        second.push(Bytes::from_static(b"x")).await.unwrap();
    }
    second.push(block.clone()).await.unwrap();
    let full = second.push(block.clone()).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::NoSpace);
    assert!(
        full.retry_after().is_some(),
        "the first queue has the space"
    );
    drop(first);
    second.push(block.clone()).await.unwrap();
    let third = queue();
    third.push(block.clone()).await.unwrap();
    assert!(third.push(block.clone()).await.is_ok());
    assert!(third.push(block.clone()).await.is_err());
}

#[tokio::test]
async fn a_read_that_was_cancelled_frees_no_bytes_that_are_written_after_it() {
    let queue = Queue::new(Some(Spool::from(&EngineOptions::default())));
    let block = Bytes::from(vec![7; MAX_HELD_BYTES]);
    for _ in 0..8 {
        queue.push(block.clone()).await.unwrap();
    }
    let mut unread = 8 * MAX_HELD_BYTES - queue.pop().await.unwrap().unwrap().len();
    let mut late = None;
    while unread > 0 {
        // What a cancelled `pop` leaves on its thread.
        if late.is_none() && queue.state().read >= FREE_BYTES {
            let ReaderStep::Spooled(read) = queue.next() else {
                panic!("nothing is spooled");
            };
            late = Some(read);
        }
        unread -= queue.pop().await.unwrap().unwrap().len();
    }
    let newer = Bytes::from(vec![9; MAX_HELD_BYTES]);
    queue.push(newer.clone()).await.unwrap();
    queue.push(newer.clone()).await.unwrap();
    late.unwrap().read().unwrap();
    queue.end(Ok(()));
    while let Some(chunk) = queue.pop().await.unwrap() {
        assert!(chunk.iter().all(|byte| *byte == 9), "bytes were freed");
    }
}

#[tokio::test]
async fn the_spool_has_the_backlog_and_not_everything_that_passed_through_it() {
    let options = EngineOptions {
        spool_limit: 4 * FREE_BYTES,
        ..options()
    };
    let queue = Queue::new(Some(Spool::from(&options)));
    let block = Bytes::from(vec![7; MAX_HELD_BYTES]);
    // The reader is always behind, so the file is never written from its beginning again.
    for _ in 0..4 {
        queue.push(block.clone()).await.unwrap();
    }
    for _ in 0..64 {
        queue.push(block.clone()).await.unwrap();
        let mut taken = 0;
        while taken < block.len() {
            taken += queue.pop().await.unwrap().unwrap().len();
        }
    }
    let file = queue.state().file.clone().unwrap();
    let used = file.metadata().unwrap().blocks() * 512;
    assert!(used <= options.spool_limit, "{used}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn bytes_come_out_as_they_went_in(
        steps in proptest::collection::vec((any::<bool>(), 1_usize..MAX_HELD_BYTES / 2), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true) // paused clock
            .build()
            .unwrap();
        runtime.block_on(async {
            let options = EngineOptions::default();
            let queue = Queue::new(Some(Spool::from(&options)));
            let (mut pushed, mut popped) = (0, 0);
            // The period is a prime, so that no two places in a chunk are equal for long.
            let all: Vec<u8> = (0..251_u8).cycle().take(MAX_HELD_BYTES).collect();
            let content = |from: usize, length: usize| Bytes::copy_from_slice(&all[from % 251..][..length]);
            for (push, length) in steps {
                if push {
                    queue.push(content(pushed, length)).await.unwrap();
                    pushed += length;
                } else if popped < pushed {
                    let chunk = queue.pop().await.unwrap().unwrap();
                    assert!(chunk == content(popped, chunk.len()));
                    popped += chunk.len();
                }
            }
            queue.end(Ok(()));
            while let Some(chunk) = queue.pop().await.unwrap() {
                assert!(chunk == content(popped, chunk.len()));
                popped += chunk.len();
            }
            assert_eq!(popped, pushed);
        });
    }
}
