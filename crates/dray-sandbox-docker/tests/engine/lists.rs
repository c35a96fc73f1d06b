//! Tests of listings, by a command and by the tar of a directory.

use dray_sandbox::{ErrorKind, FileKind, Listing};

use super::fixture::{ContainerFixture, kind, path};

async fn list_directory(fixture: &ContainerFixture, at: &str, depth: u32, limit: usize) -> Listing {
    fixture.sandbox.list(&path(at), depth, limit).await.unwrap()
}

#[tokio::test]
async fn both_methods_of_listing_return_the_same_entries() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh(
        r#"cd /workspace; mkdir -p b/deep/deeper; echo 123 > a; chmod 640 a; ln a hard; ln -s nowhere link; mkfifo pipe; echo > "$(printf 'n\377\n')"; touch -t 202001020304 a b/deep/x b/deep/deeper b/deep b link"#,
    );
    for (at, depth) in [("/workspace", 1), ("/workspace", 3), ("/alias/b", 2)] {
        let running = list_directory(&fixture, at, depth, 100).await;
        fixture.container.pause();
        let paused = list_directory(&fixture, at, depth, 100).await;
        fixture.container.unpause();
        let names = |listing: &Listing| -> Vec<_> {
            let entries = listing.entries.iter();
            entries
                .map(|entry| {
                    let size = match entry.kind {
                        FileKind::File | FileKind::Symlink => entry.size,
                        _ => 0,
                    };
                    let target = entry.link_target.clone();
                    (entry.path.clone(), entry.kind, size, entry.mode, target)
                })
                .collect()
        };
        assert_eq!(names(&running), names(&paused), "{at}");
        assert!(!running.entries.is_empty() && !paused.truncated);
    }
}

#[tokio::test]
async fn a_listing_of_a_stopped_container_stops_at_its_limit() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; head -c 20000000 /dev/zero > a; touch b c d");
    fixture.container.stop();
    let listing = list_directory(&fixture, "/workspace", 1, 2).await;
    assert!(listing.truncated && listing.entries.len() == 2);
    let listing = list_directory(&fixture, "/workspace", 1, 4).await;
    assert!(!listing.truncated && listing.entries.len() == 4);
}

#[tokio::test]
async fn only_directories_of_a_stopped_container_are_listed() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh("echo x > /workspace/file");
    fixture.container.stop();
    for (at, expected) in [
        ("/workspace/file", ErrorKind::NotDirectory),
        ("/workspace/missing", ErrorKind::NotFound),
        ("/dev", ErrorKind::SandboxStopped),
    ] {
        let listed = fixture.sandbox.list(&path(at), 1, 10).await;
        assert_eq!(kind(listed), expected, "{at}");
    }
}
