//! Tests of containers that do not run or no longer exist (R-1, R-9).

use dray_sandbox::{
    Backend as _, BackendCheck, ErrorKind, FileKind, Follow, Handle, Read, Sandbox, Transport,
};
use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::fixture::{ContainerFixture, address, backend, endpoint, kind, path};

/// Checks that archive calls work and that what needs a command fails with this kind.
async fn archive_only(fixture: &ContainerFixture, expected: ErrorKind) {
    let sandbox: &dyn Sandbox = &*fixture.sandbox;
    fixture.write("/workspace/file", b"data").await.unwrap();
    assert_eq!(fixture.read("/workspace/file").await.unwrap(), b"data");
    let probe = sandbox.probe().await.unwrap();
    assert_eq!(probe.transports, [Transport::Archive]);
    let listing = sandbox.list(&path("/workspace"), 1, 10).await.unwrap();
    assert_eq!(listing.entries.len(), 1);
    assert_eq!(listing.entries[0].path, path("/workspace/file"));
    assert_eq!(
        (listing.entries[0].kind, listing.entries[0].size),
        (FileKind::File, 4)
    );
    let at = path("/workspace/file");
    let other = path("/workspace/other");
    assert_eq!(kind(sandbox.fingerprint(&at).await), expected);
    assert_eq!(kind(sandbox.rename(&at, &other, false).await), expected);
    assert_eq!(kind(sandbox.remove(&at, false).await), expected);
    assert_eq!(kind(sandbox.make_directory(&other).await), expected);
    assert_eq!(
        kind(sandbox.stat(&path("/dev/null"), Follow::No).await),
        expected
    );
}

#[tokio::test]
async fn files_are_read_from_and_written_to_a_paused_container() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.pause();
    archive_only(&fixture, ErrorKind::SandboxPaused).await;
}

#[tokio::test]
async fn files_are_read_from_and_written_to_a_stopped_container() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.stop();
    archive_only(&fixture, ErrorKind::SandboxStopped).await;
    let probe = fixture.sandbox.probe().await.unwrap();
    assert_eq!((probe.uid, probe.gid), (1000, 1000));
    assert_eq!(probe.home, path("/home/agent"));
    assert_eq!(probe.working_directory, path("/workspace"));
    // The same incarnation comes back with its files.
    fixture.container.start();
    assert_eq!(fixture.cat("/workspace/file"), b"data");
    assert_eq!(fixture.sandbox.probe().await.unwrap().uid, 1000);
}

#[tokio::test]
async fn a_name_that_is_not_utf_8_is_the_only_file_of_a_stopped_container_that_is_not_read() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh(r#"echo x > "$(printf '/workspace/n\377')"; echo data > /workspace/file"#);
    fixture.container.stop();
    for (name, expected) in [
        (&b"n\xff"[..], ErrorKind::InvalidName),
        // The archive calls read this one.
        (&b"file"[..], ErrorKind::ToolMissing),
    ] {
        let file = path("/workspace").join(name).unwrap();
        let file = fixture.sandbox.stat(&file, Follow::Yes).await.unwrap();
        let read = Read {
            transport: Transport::ExecRaw,
            file: &file,
            offset: 0,
        };
        assert_eq!(kind(fixture.sandbox.read(read).await), expected);
    }
    assert_eq!(fixture.read("/workspace/file").await.unwrap(), b"data\n");
}

#[tokio::test]
async fn users_behind_a_link_are_found() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("mkdir /store; mv /etc/passwd /store/users; ln -s ../store/users /etc/passwd");
    fixture.write("/workspace/file", b"data").await.unwrap();
    let owner = fixture.container.sh("stat -c %u /workspace/file");
    assert_eq!(owner, b"1000\n");
}

#[tokio::test]
async fn files_are_read_from_and_written_to_a_container_that_never_ran() {
    let fixture = ContainerFixture::of(ContainerOptions {
        created_only: true,
        ..ContainerOptions::default()
    })
    .await;
    archive_only(&fixture, ErrorKind::SandboxStopped).await;
}

#[tokio::test]
async fn r_9_files_are_read_from_and_written_to_a_container_without_a_shell() {
    let fixture = ContainerFixture::of(ContainerOptions {
        user: "1000:1000".into(),
        shell_less: true,
        ..ContainerOptions::default()
    })
    .await;
    archive_only(&fixture, ErrorKind::ToolMissing).await;
    // A container that ran no command offers only the archive calls.
    assert_eq!(
        fixture.sandbox.transports(&path("/workspace/file")),
        [Transport::Archive]
    );
    let probe = fixture.sandbox.probe().await.unwrap();
    assert_eq!((probe.uid, probe.gid), (1000, 1000));
}

#[tokio::test]
async fn the_archive_calls_replace_failing_commands_only_where_the_user_is_root() {
    for user in ["agent", ""] {
        let fixture = ContainerFixture::of(ContainerOptions {
            user: user.into(),
            working_directory: "/workspace/here".into(),
            ..ContainerOptions::default()
        })
        .await;
        fixture
            .container
            .sh("umask 077; echo closed > /workspace/closed; rmdir /workspace/here");
        let closed = path("/workspace/closed");
        let failed = fixture.sandbox.fingerprint(&closed).await;
        assert_eq!(kind(failed), ErrorKind::ToolMissing);
        let read = fixture.read("/workspace/closed").await;
        let listed = fixture.sandbox.list(&path("/workspace"), 1, 9).await;
        let written = fixture.write("/workspace/new", b"new").await;
        if user.is_empty() {
            assert_eq!(read.unwrap(), b"closed\n");
            assert_eq!(listed.unwrap().entries.len(), 1);
            written.unwrap();
        } else {
            assert_eq!(kind(read), ErrorKind::Unavailable);
            assert_eq!(kind(listed), ErrorKind::Unavailable);
            assert_eq!(kind(written), ErrorKind::Unavailable);
        }
        // The shell still counts as hung.
        fixture.container.stop();
        let listed = fixture.sandbox.list(&path("/workspace"), 1, 9).await;
        assert!(!listed.unwrap().entries.is_empty());
    }
}

#[tokio::test]
async fn a_program_in_place_of_the_shell_gets_no_rights_of_root() {
    for script in [
        // What the engine prints when a container has no shell.
        r#"echo 'OCI runtime exec failed: exec: "sh": not found'; exit 127"#,
        // The response of a script that cannot run.
        r#"/bin/busybox sh "$@" | /bin/busybox sed -u 's/^\(@@[0-9a-f]*\) begin.*/\1 refused sandbox_stopped/'"#,
    ] {
        let fixture = ContainerFixture::of(ContainerOptions {
            user: "agent".into(),
            environment: vec!["PATH=/workspace/bin:/bin".to_owned()],
            ..ContainerOptions::default()
        })
        .await;
        fixture.container.sh(&format!(
            "umask 077; echo closed > /workspace/closed; umask 022; mkdir /workspace/bin
cat > /workspace/bin/sh <<'END'
#!/bin/busybox sh
{script}
END
chmod 755 /workspace/bin/sh"
        ));
        let closed = path("/workspace/closed");
        assert!(fixture.sandbox.fingerprint(&closed).await.is_err());
        let file = fixture.stat("/workspace/closed").await.unwrap();
        // Each attempt may change which transports are offered.
        for _ in 0..2 {
            for transport in fixture.sandbox.read_transports(&file) {
                let read = Read {
                    transport,
                    file: &file,
                    offset: 0,
                };
                let opened = fixture.sandbox.read(read).await;
                assert!(opened.is_err(), "{transport:?}: {script}");
            }
        }
        let listed = fixture.sandbox.list(&path("/workspace"), 1, 9).await;
        assert!(listed.is_err(), "{script}");
        assert!(
            fixture
                .sandbox
                .read_tree(&path("/workspace"))
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn a_read_that_was_chosen_while_no_command_ran_gets_no_rights_of_root_when_they_run_again() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("umask 077; echo closed > /workspace/closed");
    let file = fixture.stat("/workspace/closed").await.unwrap();
    fixture.container.stop();
    let stopped = fixture.sandbox.fingerprint(&file.path).await;
    assert_eq!(kind(stopped), ErrorKind::SandboxStopped);
    let chosen = fixture.sandbox.read_transports(&file).first().copied();
    assert_eq!(chosen, Some(Transport::Archive));
    fixture.container.start();
    // Another request shows that commands run.
    fixture.sandbox.probe().await.unwrap();
    assert_eq!(kind(fixture.open_as(&file).await), ErrorKind::Unavailable);
    let written = fixture.write("/workspace/new", b"new").await;
    assert_eq!(kind(written), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_large_file_that_only_its_owner_may_read_is_read_by_commands_of_the_user() {
    for (user, expected) in [("agent", false), ("", true)] {
        let fixture = ContainerFixture::of(ContainerOptions {
            user: user.into(),
            ..ContainerOptions::default()
        })
        .await;
        fixture
            .container
            .sh("cd /workspace; truncate -s 20000000 open closed; chmod 600 closed");
        let open = fixture.stat("/workspace/open").await.unwrap();
        let first = fixture.sandbox.read_transports(&open).first().copied();
        assert_eq!(first, Some(Transport::Archive));
        let closed = fixture.stat("/workspace/closed").await.unwrap();
        let transports = fixture.sandbox.read_transports(&closed);
        assert_eq!(transports.contains(&Transport::Archive), expected, "{user}");
    }
}

#[tokio::test]
async fn only_commands_write_where_they_run_as_another_user_than_root() {
    let at = path("/workspace/file");
    let has_archive = |fixture: &ContainerFixture| {
        let transports = fixture.sandbox.write_transports(&at);
        transports.contains(&Transport::Archive)
    };
    let agent = ContainerFixture::agent().await;
    assert!(!has_archive(&agent));
    agent.container.stop();
    // The command shows that the container is stopped.
    let stopped = agent.sandbox.fingerprint(&at).await;
    assert_eq!(kind(stopped), ErrorKind::SandboxStopped);
    assert!(has_archive(&agent));
    agent.container.start();
    let written = agent.write("/workspace/file", b"data").await;
    assert_eq!(kind(written), ErrorKind::Unavailable);
    assert!(!has_archive(&agent));
    let root = ContainerFixture::of(ContainerOptions::default()).await;
    assert!(has_archive(&root));
}

#[tokio::test]
async fn r_1_a_removed_container_is_gone() {
    let fixture = ContainerFixture::agent().await;
    fixture.write("/workspace/file", b"data").await.unwrap();
    let file = fixture.stat("/workspace/file").await.unwrap();
    let handle = fixture.sandbox.handle().clone();
    fixture.container.remove();
    let gone_kind = ErrorKind::SandboxGone;
    assert_eq!(kind(fixture.stat("/workspace/file").await), gone_kind);
    assert_eq!(kind(fixture.open_as(&file).await), gone_kind);
    assert_eq!(kind(fixture.write("/workspace/new", b"x").await), gone_kind);
    assert_eq!(kind(fixture.sandbox.probe().await), gone_kind);
    assert_eq!(
        kind(fixture.backend.resolve(&handle.address).await),
        gone_kind
    );
    assert_eq!(kind(fixture.backend.open(&handle).await), gone_kind);
}

#[tokio::test]
async fn r_1_another_container_of_the_same_name_is_not_the_same() {
    let mut fixture = ContainerFixture::agent().await;
    let handle = fixture.sandbox.handle().clone();
    let name = fixture.container.name().to_owned();
    fixture.container.rename(&format!("{name}-old"));
    let other = fixture.engine.container(ContainerOptions {
        name: name.clone(),
        ..ContainerOptions::default()
    });
    assert_eq!(
        kind(fixture.backend.open(&handle).await),
        ErrorKind::SandboxGone
    );
    let now = fixture.backend.resolve(&handle.address).await.unwrap();
    assert_eq!(now.incarnation, other.id());
    // The opened sandbox still means the first container.
    fixture.write("/workspace/file", b"old").await.unwrap();
    assert_eq!(fixture.cat("/workspace/file"), b"old");
    assert!(
        other
            .exec("0", &["cat", "/workspace/file"])
            .stdout
            .is_empty()
    );
}

#[tokio::test]
async fn r_1_a_short_id_is_bound_to_the_complete_id() {
    let fixture = ContainerFixture::agent().await;
    let short = address(&fixture.container.id()[..12]);
    let handle = fixture.backend.resolve(&short).await.unwrap();
    assert_eq!(handle.incarnation, fixture.container.id());
    assert!(fixture.backend.open(&handle).await.is_ok());
    let made_up = Handle {
        incarnation: "0".repeat(64),
        ..handle
    };
    assert_eq!(
        kind(fixture.backend.open(&made_up).await),
        ErrorKind::SandboxGone
    );
}

#[tokio::test]
async fn malformed_names_are_refused() {
    let backend = backend(endpoint(&DockerEngine::shared()));
    for name in ["../json", "a b", "a/json?x=", "%2e%2e"] {
        let resolved = backend.resolve(&address(name)).await;
        assert_eq!(kind(resolved), ErrorKind::InvalidName, "{name}");
    }
}

#[tokio::test]
async fn removing_a_container_during_a_read_is_an_error() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("head -c 30000000 /dev/zero > /workspace/big");
    let mut body = fixture.open("/workspace/big").await.unwrap();
    let first = body.next().await.unwrap().unwrap();
    let ContainerFixture { container, .. } = fixture;
    let removing = tokio::task::spawn_blocking(move || drop(container));
    match body.read_all(100 << 20).await {
        Ok(rest) => assert_eq!(first.len() + rest.len(), 30_000_000),
        Err(error) => assert!(
            matches!(error.kind(), ErrorKind::SandboxGone | ErrorKind::Truncated),
            "{error}"
        ),
    }
    removing.await.unwrap();
}

#[tokio::test]
async fn an_engine_that_dies_is_unavailable() {
    let fixture = ContainerFixture::on(DockerEngine::start(), ContainerOptions::default()).await;
    fixture
        .container
        .sh("head -c 50000000 /dev/zero > /workspace/big");
    let mut body = fixture.open("/workspace/big").await.unwrap();
    assert!(body.next().await.unwrap().is_ok());
    fixture.engine.kill9();
    let error = body.read_all(100 << 20).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Truncated),
        "{error}"
    );
    assert_eq!(
        kind(fixture.stat("/workspace/big").await),
        ErrorKind::Unavailable
    );
    assert_eq!(kind(fixture.sandbox.probe().await), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_check_reports_the_versions_of_the_engine_and_of_its_api() {
    let fixture = ContainerFixture::agent().await;
    let ready = fixture.backend.check().await.unwrap();
    assert!(
        matches!(&ready, BackendCheck::Ready(text) if text.starts_with("engine ") && text.contains("API 1.")),
        "{ready:?}"
    );
}
