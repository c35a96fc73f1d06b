//! Tests that all bytes of a response are of one state of the file.

use super::*;

/// A change of a file while it is sent.
type Change = fn(&Path);

#[tokio::test]
async fn ranges_and_conditions_are_those_of_one_state_of_the_file() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("video");
    // The size is above the limit up to which files are read whole.
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let file = root.join("video.mp4");
    std::fs::write(&file, &content).unwrap();
    let link = fixture.preview(address(&sandbox), "video.mp4").await;
    assert_eq!(link.preview.file, b"video.mp4");
    let head = link.send("HEAD", "p", "video.mp4", &[]).await;
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("3000000"))
    );
    assert_eq!(head.field("accept-ranges"), Some("bytes"));
    let etag = head.field("etag").unwrap().to_owned();
    assert!(head.body.is_empty() && etag.starts_with('"'), "{etag}");
    let whole = link.get("p", "video.mp4").await;
    assert!(whole.is_whole && whole.body == content);
    for (range, start, end) in [
        ("bytes=0-9", 0, 10),
        ("bytes=2000000-2000099", 2_000_000, 2_000_100),
        ("bytes=2999990-", 2_999_990, 3_000_000),
        ("bytes=-7", 2_999_993, 3_000_000),
    ] {
        let part = link
            .send("GET", "p", "video.mp4", &[("range", range)])
            .await;
        assert_eq!(part.status, 206, "{range}");
        assert_eq!(part.body, content[start..end], "{range}");
        let expected = format!("bytes {start}-{}/3000000", end - 1);
        assert_eq!(part.field("content-range"), Some(expected.as_str()));
    }
    let beyond = link
        .send("GET", "p", "video.mp4", &[("range", "bytes=3000000-")])
        .await;
    assert_eq!(
        (beyond.status, beyond.field("content-range")),
        (416, Some("bytes */3000000"))
    );
    let same = link
        .send("GET", "p", "video.mp4", &[("if-none-match", &etag)])
        .await;
    assert_eq!((same.status, same.body.len()), (304, 0));
    // None of these is one strong tag, so nothing shows that the client has a part of this state.
    for tag in ["*", "\"other\", *"] {
        let fields = [("range", "bytes=0-9"), ("if-range", tag)];
        let whole = link.send("GET", "p", "video.mp4", &fields).await;
        assert_eq!((whole.status, whole.body.len()), (200, 3_000_000), "{tag}");
    }
    let fields = [
        ("if-none-match", "\"other\""),
        ("if-none-match", etag.as_str()),
    ];
    let same = link.send("GET", "p", "video.mp4", &fields).await;
    assert_eq!(same.status, 304, "two fields are one list");
    a_replaced_file_is_not_mixed_with_its_old_parts(&file, &link, &etag).await;
    fixture.end().await;
}

/// A client that has a part of the old file gets the whole new file or an error.
async fn a_replaced_file_is_not_mixed_with_its_old_parts(file: &Path, link: &Link, etag: &str) {
    std::fs::write(file, vec![7; 2_000_000]).unwrap();
    let fields = [("range", "bytes=1000-1999"), ("if-range", etag)];
    let mixed = link.send("GET", "p", "video.mp4", &fields).await;
    assert_eq!((mixed.status, mixed.body.len()), (200, 2_000_000));
    let old = link
        .send("GET", "p", "video.mp4", &[("if-match", etag)])
        .await;
    assert_eq!(old.status, 412);
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_sent_breaks_off() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("moving");
    let file = root.join("log.bin");
    let large = vec![b'a'; 24 << 20];
    let changes: [(&str, Change); 4] = [
        ("grows", |file| {
            use std::io::Write as _;
            std::fs::File::options()
                .append(true)
                .open(file)
                .unwrap()
                .write_all(b"more")
                .unwrap();
        }),
        ("shrinks", |file| {
            std::fs::File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_len(5 << 20)
                .unwrap();
        }),
        ("is replaced", |file| {
            let other = file.with_extension("new");
            std::fs::write(&other, vec![b'b'; 24 << 20]).unwrap();
            std::fs::rename(other, file).unwrap();
        }),
        ("is removed", |file| std::fs::remove_file(file).unwrap()),
    ];
    for (name, change) in changes {
        std::fs::write(&file, &large).unwrap();
        let link = fixture.preview(address(&sandbox), "log.bin").await;
        let mut stream = connect(&link.origin).await;
        let target = format!("/p/{}/log.bin", link.token);
        let head = request_head(&link.origin, "GET", &target, &[]);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut begin = vec![0; 64 << 10];
        stream.read_exact(&mut begin).await.unwrap();
        // The rest waits in the sandbox: the queue and the socket hold far less.
        change(&file);
        let mut all = begin;
        let _ = stream.read_to_end(&mut all).await;
        let response = parse_response("GET", &all);
        assert_eq!(response.status, 200, "{name}");
        assert!(!response.is_whole, "a file that {name} looks whole");
        let revoke = v1::RevokePreviewRequest {
            sandbox: Some(address(&sandbox)),
            preview_id: link.preview.preview_id,
        };
        fixture.ask(&revoke).await.unwrap();
    }
    fixture.end().await;
}
