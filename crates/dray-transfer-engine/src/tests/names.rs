//! Tests of the names that files get.

use dray_sandbox::metadata::Integrity;
use dray_sandbox_conformance::fake::{Call, Change, Fault};
use futures_util::future::join;

use super::put::{LOST_CONNECTION, fixture};
use super::*;

#[tokio::test(start_paused = true)] // paused clock
async fn the_same_request_again_finds_the_file_in_place() {
    for collision in [Collision::Rename, Collision::Fail, Collision::Overwrite] {
        let mut fixture = fixture();
        fixture.collision = collision;
        fixture.put("a.csv", "abc").await.unwrap();
        let repeated = fixture.put("a.csv", "abc").await.unwrap();
        assert!(repeated.existed && !repeated.renamed, "{collision:?}");
        assert_eq!(
            (repeated.receipt.attempts, repeated.receipt.atomic),
            (0, None)
        );
        assert_eq!(
            (fixture.work(), fixture.fake.count(Call::Write)),
            (vec!["a.csv".to_owned()], 1)
        );
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_collision_rule_decides_about_another_file() {
    let mut fixture = fixture();
    fixture.put("a.csv", "one").await.unwrap();
    let second = fixture.put("a.csv", "two").await.unwrap();
    assert_eq!((second.path, second.renamed), (path("/work/a_2.csv"), true));
    assert_eq!(
        fixture.put("a.csv", "three").await.unwrap().path,
        path("/work/a_3.csv")
    );
    // A repeated request finds its own file, whatever number it has.
    let repeated = fixture.put("a.csv", "two").await.unwrap();
    assert_eq!(
        (repeated.path, repeated.existed),
        (path("/work/a_2.csv"), true)
    );
    fixture.collision = Collision::Fail;
    let failed = fixture.put("a.csv", "four").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Exists);
    fixture.collision = Collision::Overwrite;
    assert!(!fixture.put("a.csv", "five").await.unwrap().renamed);
    assert_eq!(fixture.fake.content("/work/a.csv").unwrap(), "five");
    assert_eq!(fixture.work(), ["a.csv", "a_2.csv", "a_3.csv"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_directory_or_a_link_of_that_name_is_another_file() {
    let mut fixture = fixture();
    fixture.fake.directory("/work/a");
    fixture.fake.link("/work/b", "/home/agent/x");
    assert_eq!(fixture.put("a", "1").await.unwrap().path, path("/work/a_2"));
    assert_eq!(fixture.put("b", "1").await.unwrap().path, path("/work/b_2"));
    fixture.collision = Collision::Overwrite;
    let failed = fixture.put("a", "2").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::IsDirectory);
    fixture.put("b", "2").await.unwrap();
    assert_eq!(
        fixture.fake.content("/work/b").unwrap(),
        "2",
        "the link itself is replaced"
    );
    assert_eq!(fixture.fake.content("/home/agent/x"), None);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_name_that_is_taken_in_between_is_left_to_its_owner() {
    let fixture = fixture();
    fixture.put("first", "x").await.unwrap();
    let taken = |content: &'static str| {
        Fault::Before(Change::Replace(Bytes::from_static(content.as_bytes())))
    };
    fixture.fake.script(Call::Rename, [taken("other")]);
    let put = fixture.put("a.csv", "ours").await.unwrap();
    assert_eq!(put.path, path("/work/a_2.csv"));
    assert_eq!(fixture.fake.content("/work/a.csv").unwrap(), "other");
    fixture.fake.script(Call::Rename, [taken("same")]);
    let put = fixture.put("b.csv", "same").await.unwrap();
    assert_eq!((put.path, put.existed), (path("/work/b.csv"), true));
    assert_eq!(fixture.work(), ["a.csv", "a_2.csv", "b.csv", "first"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn two_uploads_of_one_name_concurrently_both_arrive() {
    let fixture = fixture();
    let (one, two) = (pattern(3000), pattern(4000));
    let (first, second) = join(fixture.put("a.csv", one.clone()), async {
        let options = PutOptions {
            policy: &fixture.policy,
            collision: Collision::Rename,
            mode: 0o644,
            operation: "op2",
            epoch: 1,
        };
        let (source, cancel) = (BytesSource::new(two.clone()), CancellationToken::new());
        fixture
            .engine
            .put(&path("/work"), b"a.csv", &source, &options, &(), &cancel)
            .await
    })
    .await;
    let mut places = [(first.unwrap().path, one), (second.unwrap().path, two)];
    for (place, content) in &places {
        assert_eq!(
            fixture.fake.content(place.to_text().unwrap()).unwrap(),
            *content
        );
    }
    places.sort();
    assert_eq!(fixture.work(), ["a.csv", "a_2.csv"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_renaming_the_file_is_written_in_place_and_the_receipt_says_so() {
    for kind in [ErrorKind::ToolMissing, ErrorKind::SandboxStopped] {
        let fixture = fixture();
        fixture
            .fake
            .script(Call::Rename, vec![Fault::Fail(kind); 9]);
        let put = fixture.put("a.csv", "one").await.unwrap();
        assert_eq!(put.receipt.atomic, Some(false));
        assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
        let second = fixture.put("a.csv", "two").await.unwrap();
        assert_eq!(second.path, path("/work/a_2.csv"));
        assert_eq!(fixture.put("a.csv", "two").await.unwrap().path, second.path);
        assert_eq!(fixture.work(), ["a.csv", "a_2.csv"]);
        assert_eq!(
            fixture.fake.count(Call::Write),
            2,
            "no temp file is ever written"
        );
        assert_eq!(fixture.fake.count(Call::Remove), 0);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_is_written_in_place_when_renaming_stops_working() {
    let mut fixture = fixture();
    fixture.put("first", "x").await.unwrap();
    fixture.fake.renames(false);
    let put = fixture.put("a", "one").await.unwrap();
    assert_eq!(put.receipt.atomic, Some(false));
    fixture.collision = Collision::Overwrite;
    let put = fixture.put("a", "two").await.unwrap();
    assert_eq!(
        (put.receipt.atomic, put.path),
        (Some(false), path("/work/a"))
    );
    assert_eq!(fixture.fake.content("/work/a").unwrap(), "two");
    assert_eq!(fixture.work(), ["a", "first"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_of_another_process_is_never_removed() {
    let fixture = fixture();
    fixture.fake.renames(false);
    let taken = Fault::Before(Change::Replace(Bytes::from_static(b"other")));
    fixture.fake.script(Call::Write, [taken]);
    let put = fixture.put("a", "ours").await.unwrap();
    assert_eq!(put.path, path("/work/a_2"));
    assert_eq!(fixture.fake.content("/work/a").unwrap(), "other");
    assert_eq!(fixture.work(), ["a", "a_2"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_rename_whose_answer_is_lost_happened_once() {
    for collision in [Collision::Rename, Collision::Fail, Collision::Overwrite] {
        let mut fixture = fixture();
        fixture.collision = collision;
        fixture
            .fake
            .script(Call::Rename, [Fault::None, Fault::Lost(LOST_CONNECTION)]);
        let put = fixture.put("a", "one").await.unwrap();
        // Whether the rename was atomic was part of the lost response.
        assert_eq!((put.path, put.receipt.atomic), (path("/work/a"), None));
        assert!(!put.existed);
        fixture
            .fake
            .script(Call::Rename, [Fault::Fail(LOST_CONNECTION)]);
        fixture.put("b", "two").await.unwrap();
        assert_eq!(fixture.work(), ["a", "b"]);
        assert_eq!(fixture.fake.count(Call::Write), 2);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn names_are_bytes_and_some_bytes_are_invalid() {
    let fixture = fixture();
    let source = BytesSource::new("abc");
    for name in [
        &b"\xff.bin"[..],
        b"a\nb",
        b"-rf *",
        "é".repeat(127).as_bytes(),
    ] {
        let put = fixture.put_from("/work", name, &source).await.unwrap();
        assert_eq!(put.path.name(), name);
    }
    let mut taken = [b'n'; 255];
    fixture.put_from("/work", &taken, &source).await.unwrap();
    let second = fixture
        .put_from("/work", &taken, &BytesSource::new("abd"))
        .await
        .unwrap();
    assert_eq!(second.path.name().len(), 255);
    taken[0] = b'/';
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256], &taken] {
        let failed = fixture.put_from("/work", name, &source).await.unwrap_err();
        assert_eq!(
            failed.error.kind(),
            ErrorKind::InvalidName,
            "{}",
            name.escape_ascii()
        );
    }
}
