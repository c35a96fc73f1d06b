//! Tests which paths of a directory are shown.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;

/// Swaps of the directory between two pauses; each takes a few microseconds.
const ROUNDS_BETWEEN_PAUSES: u32 = 64;

#[tokio::test]
async fn a_large_directory_is_shown_in_parts_to_its_end() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("large");
    std::fs::create_dir(root.join("d")).unwrap();
    for number in 0..2_100 {
        std::fs::write(root.join(format!("d/file-{number:04}")), "x").unwrap();
    }
    let link = fixture.preview(address(&sandbox), "d").await;
    let mut names = Vec::new();
    let mut path = Some(String::new());
    while let Some(part) = path {
        let page = link.get("v", &part).await;
        assert_eq!(page.status, 200);
        let text = page.text();
        let found = text.split(">file-").skip(1);
        names.extend(found.map(|name| name.split('<').next().unwrap().to_owned()));
        path = text
            .split_once("\" rel=\"next\"")
            .and_then(|(before, _)| before.rsplit_once('/'))
            .map(|(_, rest)| rest.to_owned());
    }
    let expected: Vec<_> = (0..2_100).map(|number| format!("{number:04}")).collect();
    assert_eq!(names, expected);
    fixture.end().await;
}

#[tokio::test]
async fn a_directory_is_shown_with_its_relative_assets_alone() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("site");
    std::fs::create_dir_all(root.join("www/css")).unwrap();
    std::fs::write(root.join("www/index.html"), "<link href=css/a.css>").unwrap();
    std::fs::write(root.join("www/css/a.css"), "b{}").unwrap();
    std::fs::write(root.join("outside.txt"), "not shown").unwrap();
    let link = fixture.preview(address(&sandbox), "www").await;
    let index = link.get("p", "").await;
    assert_eq!(
        (index.status, index.text().as_str()),
        (200, "<link href=css/a.css>")
    );
    assert_eq!(
        index.field("content-type"),
        Some("text/html; charset=utf-8")
    );
    let policy = index.field("content-security-policy").unwrap();
    assert!(policy.starts_with("sandbox allow-scripts") && !policy.contains("allow-same-origin"));
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("connection-allowlist", "(response-origin);redirects=allow"),
    ] {
        assert_eq!(index.field(name), Some(value), "{name}");
    }
    assert_eq!(link.get("p", "css/a.css").await.text(), "b{}");
    let redirect = link.get("p", "css").await;
    assert_eq!(redirect.status, 308);
    assert!(redirect.field("location").unwrap().ends_with("/css/"));
    assert_eq!(link.get("p", "css/").await.status, 404, "no index there");
    let listing = link.get("v", "").await;
    assert!(listing.text().contains("css/") && listing.text().contains("Download as ZIP"));
    let zip = link.get("z", "").await;
    assert!(
        zip.is_whole && zip.status == 200 && zip.text().contains("css/a.css"),
        "{}",
        zip.head
    );
    let post = link.send("POST", "p", "index.html", &[]).await;
    assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD")));
    let post = link.send("POST", "v", "", &[]).await;
    assert_eq!((post.status, post.field("allow")), (405, Some("GET, HEAD")));
    fixture.end().await;
}

#[tokio::test]
async fn an_archive_over_a_limit_is_refused_before_its_first_byte() {
    let limited = [
        WITH_PREVIEWS[0],
        ("sandbox-transfer.max_tree_entries", "2"),
        ("sandbox-transfer.preview.max_archive_entries", "3"),
    ];
    let fixture = TransferFixture::with(&limited).await;
    let (root, sandbox) = fixture.sandbox("many");
    std::fs::create_dir_all(root.join("www/few")).unwrap();
    for name in ["a", "b", "c", "few/d"] {
        std::fs::write(root.join("www").join(name), name).unwrap();
    }
    let link = fixture.preview(address(&sandbox), "www").await;
    let refused = link.get("z", "").await;
    assert_eq!(refused.status, 413, "{}", refused.head);
    assert!(
        refused.text().contains("more files or bytes"),
        "{}",
        refused.text()
    );
    let few = link.get("z", "few/").await;
    assert!(few.status == 200 && few.is_whole, "{}", few.head);
    fixture.end().await;
}

#[tokio::test]
async fn names_that_look_like_others_are_shown_without_bidi_characters() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("names");
    // U+202E turns the rest of a line: a browser shows `reportexe.pdf`.
    let turned = "report\u{202e}fdp.exe";
    std::fs::create_dir_all(root.join("www/up\u{2066}down")).unwrap();
    std::fs::write(root.join("www").join(turned), "x").unwrap();
    let link = fixture.preview(address(&sandbox), "www").await;
    let listing = link.get("v", "").await.text();
    assert!(listing.contains(">report?fdp.exe<"), "{listing}");
    let file = link.get("v", "report%E2%80%AEfdp.exe").await.text();
    assert!(file.contains("<title>report?fdp.exe</title>"), "{file}");
    assert!(!listing.contains('\u{202e}'), "{listing}");
    let directory = link.get("v", "up%E2%81%A6down/").await.text();
    assert!(directory.contains("<code>up?down</code>"), "{directory}");
    fixture.end().await;
}

#[tokio::test]
async fn no_path_leaves_the_directory() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("trap");
    std::fs::create_dir_all(root.join("www/sub")).unwrap();
    std::fs::write(root.join("www/index.html"), "inside").unwrap();
    std::fs::write(root.join("secret.txt"), "ESCAPED").unwrap();
    std::fs::write(root.join("www/.env"), "ESCAPED").unwrap();
    symlink("../secret.txt", root.join("www/link.txt")).unwrap();
    symlink(root.join("secret.txt"), root.join("www/absolute.txt")).unwrap();
    symlink("..", root.join("www/up")).unwrap();
    symlink("/etc", root.join("www/etc")).unwrap();
    symlink("loop", root.join("www/loop")).unwrap();
    symlink("index.html", root.join("www/good.html")).unwrap();
    let link = fixture.preview(address(&sandbox), "www").await;
    for rest in [
        "../secret.txt",
        "%2e%2e/secret.txt",
        ".%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "..%2fsecret.txt",
        "..%5csecret.txt",
        "..\\secret.txt",
        "%252e%252e/secret.txt",
        "%252e%252e%252fsecret.txt",
        "sub/../../secret.txt",
        "sub/%2e%2e/%2e%2e/secret.txt",
        "/../secret.txt",
        "//etc/passwd",
        "index.html%00.txt",
        "..%00/secret.txt",
        "%c0%ae%c0%ae/secret.txt",
        "%uff0e%uff0e/secret.txt",
        "..;/secret.txt",
        "link.txt",
        "absolute.txt",
        "up/secret.txt",
        "up/",
        "etc/passwd",
        "loop",
        ".env",
        "index.html/",
        "index.html/../../secret.txt",
        "www/../secret.txt",
    ] {
        for area in ["p", "v", "d", "z"] {
            let response = link.get(area, rest).await;
            assert!(!response.text().contains("ESCAPED"), "{area} {rest}");
            let inside = response.text().contains("inside");
            assert!(
                (400..500).contains(&response.status) || inside,
                "{area} {rest}: {} {}",
                response.status,
                response.text()
            );
        }
    }
    // A link that stays inside is a file like any other, and the archive has neither links nor what policy refuses.
    assert_eq!(link.get("p", "good.html").await.text(), "inside");
    let zip = link.get("z", "").await.text();
    assert!(zip.contains("index.html") && !zip.contains("ESCAPED"));
    fixture.end().await;
}

#[tokio::test]
async fn a_path_that_is_swapped_while_it_is_read_shows_nothing_from_outside() {
    let fixture = TransferFixture::with_previews().await;
    let (root, sandbox) = fixture.sandbox("swap");
    std::fs::create_dir_all(root.join("www/a")).unwrap();
    std::fs::create_dir_all(root.join("other")).unwrap();
    std::fs::write(root.join("www/a/f.txt"), "inside").unwrap();
    std::fs::write(root.join("other/f.txt"), "ESCAPED").unwrap();
    let link = fixture.preview(address(&sandbox), "www").await;
    let stop = Arc::new(AtomicBool::new(false));
    let responses = Arc::new(AtomicU32::new(0));
    let swapping = std::thread::spawn({
        let (root, stop, responses) = (root.clone(), stop.clone(), responses.clone());
        move || {
            let (a, kept) = (root.join("www/a"), root.join("www/kept"));
            let mut rounds = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                // From time to time the directory stays in place for one whole request, so that at least one is served.
                if rounds.is_multiple_of(ROUNDS_BETWEEN_PAUSES) {
                    let seen = responses.load(Ordering::Relaxed);
                    while responses.load(Ordering::Relaxed) < seen + 2
                        && !stop.load(Ordering::Relaxed)
                    {
                        std::thread::yield_now();
                    }
                }
                rounds += 1;
                std::fs::rename(&a, &kept).unwrap();
                symlink("../other", &a).unwrap();
                std::fs::remove_file(&a).unwrap();
                std::fs::rename(&kept, &a).unwrap();
            }
        }
    });
    let mut served = 0;
    for _ in 0..150 {
        let response = link.get("p", "a/f.txt").await;
        responses.fetch_add(1, Ordering::Relaxed);
        assert!(!response.text().contains("ESCAPED"), "{}", response.head);
        served += u32::from(response.status == 200 && response.text() == "inside");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert!(served > 0, "the file was never served between two swaps");
    fixture.end().await;
}
