//! Tests that links are resolved with the root of the container as the top directory.

use dray_sandbox::{ErrorKind, FileKind, Follow};

use super::fixture::{ContainerFixture, kind, path};

#[tokio::test]
async fn a_link_that_climbs_ends_at_the_root_of_the_container() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; ln -s ../../../../../etc/passwd climb; ln -s /etc up; ln -s . here");
    for linked_path in [
        "/workspace/climb",
        "/workspace/up/passwd",
        "/workspace/here/here/climb",
        "/alias/climb",
    ] {
        let file = fixture.stat(linked_path).await.unwrap();
        assert_eq!(file.real_path, path("/etc/passwd"), "{linked_path}");
        assert_eq!(file.path, path(linked_path));
        assert!(
            fixture
                .read(linked_path)
                .await
                .unwrap()
                .starts_with(b"root:")
        );
    }
}

#[tokio::test]
async fn a_link_target_may_have_any_bytes() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh(r#"cd /workspace; ln -s "$(printf 'no\377where')" odd; ln -s ../x relative"#);
    for (name, text) in [("odd", &b"no\xffwhere"[..]), ("relative", b"../x")] {
        let at = path(format!("/workspace/{name}"));
        let link = fixture.sandbox.stat(&at, Follow::No).await.unwrap();
        assert_eq!(link.kind, FileKind::Symlink);
        assert_eq!(link.link_target.as_deref(), Some(text));
    }
    assert_eq!(
        kind(fixture.stat("/workspace/odd").await),
        ErrorKind::NotFound
    );
}

#[tokio::test]
async fn forty_links_are_followed_and_no_more() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh(
        "cd /workspace; echo end > l0; i=0; while [ $i -lt 41 ]; do j=$((i + 1)); ln -s l$i l$j; i=$j; done",
    );
    let file = fixture.stat("/workspace/l40").await.unwrap();
    assert_eq!(file.real_path, path("/workspace/l0"));
    assert_eq!(kind(fixture.stat("/workspace/l41").await), ErrorKind::Loop);
}

#[tokio::test]
async fn a_link_loop_counts_as_a_dangling_link() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh("cd /workspace; ln -s b a; ln -s a b");
    let at = path("/workspace/a");
    let link = fixture.sandbox.stat(&at, Follow::No).await.unwrap();
    assert_eq!(link.kind, FileKind::Symlink);
    assert_eq!(kind(fixture.stat("/workspace/a").await), ErrorKind::Loop);
    assert_eq!(kind(fixture.stat("/workspace/a/x").await), ErrorKind::Loop);
}

#[tokio::test]
async fn a_link_into_what_is_not_seen_is_followed_by_the_container() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; ln -s /dev/shm/file far; echo memory > /dev/shm/file; chmod 644 /dev/shm/file");
    let file = fixture.stat("/workspace/far").await.unwrap();
    assert_eq!(file.real_path, path("/dev/shm/file"));
    assert_eq!((file.kind, file.size), (FileKind::File, 7));
}
