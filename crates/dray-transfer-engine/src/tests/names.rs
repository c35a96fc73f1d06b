//! Which name a file gets, and how.

use dray_sandbox::metadata::Integrity;
use dray_sandbox_conformance::fake::{Call, Change, Fault};
use futures_util::future::join;

use super::put::{LOST, world};
use super::*;

#[tokio::test(start_paused = true)] // paused clock
async fn the_same_request_again_finds_the_file_in_place() {
    for collision in [Collision::Rename, Collision::Fail, Collision::Overwrite] {
        let mut world = world();
        world.collision = collision;
        world.put("a.csv", "abc").await.unwrap();
        let again = world.put("a.csv", "abc").await.unwrap();
        assert!(again.existed && !again.renamed, "{collision:?}");
        assert_eq!((again.receipt.attempts, again.receipt.atomic), (0, None));
        assert_eq!(
            (world.work(), world.fake.count(Call::Write)),
            (vec!["a.csv".to_owned()], 1)
        );
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_collision_rule_decides_about_another_file() {
    let mut world = world();
    world.put("a.csv", "one").await.unwrap();
    let second = world.put("a.csv", "two").await.unwrap();
    assert_eq!((second.path, second.renamed), (path("/work/a_2.csv"), true));
    assert_eq!(
        world.put("a.csv", "three").await.unwrap().path,
        path("/work/a_3.csv")
    );
    // A repeated request finds its own, whatever number it got.
    let again = world.put("a.csv", "two").await.unwrap();
    assert_eq!((again.path, again.existed), (path("/work/a_2.csv"), true));
    world.collision = Collision::Fail;
    let failed = world.put("a.csv", "four").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Exists);
    world.collision = Collision::Overwrite;
    assert!(!world.put("a.csv", "five").await.unwrap().renamed);
    assert_eq!(world.fake.content("/work/a.csv").unwrap(), "five");
    assert_eq!(world.work(), ["a.csv", "a_2.csv", "a_3.csv"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_directory_or_a_link_of_that_name_is_another_file() {
    let mut world = world();
    world.fake.directory("/work/a");
    world.fake.link("/work/b", "/home/agent/x");
    assert_eq!(world.put("a", "1").await.unwrap().path, path("/work/a_2"));
    assert_eq!(world.put("b", "1").await.unwrap().path, path("/work/b_2"));
    world.collision = Collision::Overwrite;
    let failed = world.put("a", "2").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::IsDirectory);
    world.put("b", "2").await.unwrap();
    assert_eq!(
        world.fake.content("/work/b").unwrap(),
        "2",
        "the link itself is replaced"
    );
    assert_eq!(world.fake.content("/home/agent/x"), None);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_name_that_is_taken_in_between_is_left_to_its_owner() {
    let world = world();
    world.put("first", "x").await.unwrap();
    let taken = |content: &'static str| {
        Fault::Before(Change::Replace(Bytes::from_static(content.as_bytes())))
    };
    world.fake.script(Call::Rename, [taken("other")]);
    let put = world.put("a.csv", "ours").await.unwrap();
    assert_eq!(put.path, path("/work/a_2.csv"));
    assert_eq!(world.fake.content("/work/a.csv").unwrap(), "other");
    world.fake.script(Call::Rename, [taken("same")]);
    let put = world.put("b.csv", "same").await.unwrap();
    assert_eq!((put.path, put.existed), (path("/work/b.csv"), true));
    assert_eq!(world.work(), ["a.csv", "a_2.csv", "b.csv", "first"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn two_uploads_of_one_name_at_once_both_arrive() {
    let world = world();
    let (one, two) = (pattern(3000), pattern(4000));
    let (first, second) = join(world.put("a.csv", one.clone()), async {
        let options = PutOptions {
            policy: &world.policy,
            collision: Collision::Rename,
            mode: 0o644,
            operation: "op2",
            epoch: 1,
        };
        let (source, cancel) = (BytesSource::new(two.clone()), CancellationToken::new());
        world
            .engine
            .put(&path("/work"), b"a.csv", &source, &options, &(), &cancel)
            .await
    })
    .await;
    let mut places = [(first.unwrap().path, one), (second.unwrap().path, two)];
    for (place, content) in &places {
        assert_eq!(
            world.fake.content(place.to_text().unwrap()).unwrap(),
            *content
        );
    }
    places.sort();
    assert_eq!(world.work(), ["a.csv", "a_2.csv"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_renaming_the_file_is_written_in_place_and_the_receipt_says_so() {
    for kind in [ErrorKind::ToolMissing, ErrorKind::SandboxStopped] {
        let world = world();
        world.fake.script(Call::Rename, vec![Fault::Fail(kind); 9]);
        let put = world.put("a.csv", "one").await.unwrap();
        assert_eq!(put.receipt.atomic, Some(false));
        assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
        let second = world.put("a.csv", "two").await.unwrap();
        assert_eq!(second.path, path("/work/a_2.csv"));
        assert_eq!(world.put("a.csv", "two").await.unwrap().path, second.path);
        assert_eq!(world.work(), ["a.csv", "a_2.csv"]);
        assert_eq!(
            world.fake.count(Call::Write),
            2,
            "no temp file is ever written"
        );
        assert_eq!(world.fake.count(Call::Remove), 0);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn renaming_that_stops_working_is_done_without() {
    let mut world = world();
    world.put("first", "x").await.unwrap();
    world.fake.renames(false);
    let put = world.put("a", "one").await.unwrap();
    assert_eq!(put.receipt.atomic, Some(false));
    world.collision = Collision::Overwrite;
    let put = world.put("a", "two").await.unwrap();
    assert_eq!(
        (put.receipt.atomic, put.path),
        (Some(false), path("/work/a"))
    );
    assert_eq!(world.fake.content("/work/a").unwrap(), "two");
    assert_eq!(world.work(), ["a", "first"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_name_taken_by_another_is_never_removed_for_us() {
    let world = world();
    world.fake.renames(false);
    let taken = Fault::Before(Change::Replace(Bytes::from_static(b"other")));
    world.fake.script(Call::Write, [taken]);
    let put = world.put("a", "ours").await.unwrap();
    assert_eq!(put.path, path("/work/a_2"));
    assert_eq!(world.fake.content("/work/a").unwrap(), "other");
    assert_eq!(world.work(), ["a", "a_2"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_rename_whose_answer_is_lost_happened_once() {
    for collision in [Collision::Rename, Collision::Fail, Collision::Overwrite] {
        let mut world = world();
        world.collision = collision;
        world
            .fake
            .script(Call::Rename, [Fault::None, Fault::Lost(LOST)]);
        let put = world.put("a", "one").await.unwrap();
        assert_eq!(
            (put.path, put.receipt.atomic),
            (path("/work/a"), Some(true))
        );
        world.fake.script(Call::Rename, [Fault::Fail(LOST)]);
        world.put("b", "two").await.unwrap();
        assert_eq!(world.work(), ["a", "b"]);
        assert_eq!(world.fake.count(Call::Write), 2);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn names_are_bytes_and_some_are_none() {
    let world = world();
    let source = BytesSource::new("abc");
    for name in [
        &b"\xff.bin"[..],
        b"a\nb",
        b"-rf *",
        "é".repeat(127).as_bytes(),
    ] {
        let put = world.put_from("/work", name, &source).await.unwrap();
        assert_eq!(put.path.name(), name);
    }
    let mut taken = [b'n'; 255];
    world.put_from("/work", &taken, &source).await.unwrap();
    let second = world
        .put_from("/work", &taken, &BytesSource::new("abd"))
        .await
        .unwrap();
    assert_eq!(second.path.name().len(), 255);
    taken[0] = b'/';
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256], &taken] {
        let failed = world.put_from("/work", name, &source).await.unwrap_err();
        assert_eq!(
            failed.error.kind(),
            ErrorKind::InvalidName,
            "{}",
            name.escape_ascii()
        );
    }
}
