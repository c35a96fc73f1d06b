//! Tests of login and host keys (sandbox-transfer 5.4, 5.5).

use dray_sandbox::{Address, Backend as _, BackendCheck, ErrorKind, RetryMode};
use dray_sandbox_ssh::{Config, HostKeys, SshBackend};
use dray_testkit::sshd::SshdOptions;
use dray_types::UnreachableCause;

use crate::{SshFixture, kind, open, read, write};

#[tokio::test]
async fn a_host_that_does_not_listen_is_unavailable() {
    let mut host = SshFixture::start(&SshdOptions::default());
    host.server.kill9();
    let refused = host.backend().resolve(&host.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        refused.context().contains("Connection refused"),
        "{refused}"
    );
    assert_eq!(refused.unreachable_cause(), Some(UnreachableCause::Refused));
    assert!(matches!(refused.kind().retry_mode(), RetryMode::BackOff(_)));
}

#[tokio::test]
async fn a_key_that_the_host_does_not_accept_is_an_auth_error() {
    let host = SshFixture::start(&SshdOptions::default());
    let backend = SshBackend::new(Config {
        identity_file: Some(host.server.strange_key()),
        ..host.config()
    })
    .unwrap();
    let refused = backend.resolve(&host.address()).await;
    assert_eq!(kind(refused), ErrorKind::Auth);
}

#[tokio::test]
async fn a_caller_without_a_key_cannot_use_the_connection_of_a_caller_with_a_key() {
    let host = SshFixture::start(&SshdOptions::default());
    let _open = host.open().await;
    let backend = SshBackend::new(Config {
        identity_file: Some(host.server.strange_key()),
        ..host.config()
    })
    .unwrap();
    assert_eq!(
        kind(backend.resolve(&host.address()).await),
        ErrorKind::Auth
    );
}

#[tokio::test]
async fn a_changed_host_key_is_an_auth_error_and_not_retried() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let backend = host.backend();
    let handle = backend.resolve(&host.address()).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let path = host.make("file", "text");
    let known = std::fs::read(host.control().join("known_hosts")).unwrap();
    host.server.change_host_key();
    let opened = backend.open(&handle).await.map(drop).unwrap_err();
    assert_eq!(opened.kind(), ErrorKind::Auth);
    assert_eq!(opened.kind().retry_mode(), RetryMode::Never);
    assert_eq!(
        kind(backend.resolve(&host.address()).await),
        ErrorKind::Auth
    );
    assert_eq!(kind(read(&*sandbox, &path).await), ErrorKind::Auth);
    assert_eq!(
        std::fs::read(host.control().join("known_hosts")).unwrap(),
        known
    );
}

#[tokio::test]
async fn strict_mode_accepts_only_known_hosts() {
    let host = SshFixture::start(&SshdOptions::default());
    let known_hosts = host.control.path().join("known");
    let config = Config {
        host_keys: HostKeys::Strict,
        known_hosts: Some(known_hosts.clone()),
        ..host.config()
    };
    let backend = SshBackend::new(config).unwrap();
    let refused = backend.resolve(&host.address()).await;
    assert_eq!(kind(refused), ErrorKind::Auth);
    let key = host.server.key().with_file_name("host.pub");
    let key = std::fs::read_to_string(key).unwrap();
    let line = format!("[127.0.0.1]:{} {key}", host.server.port());
    std::fs::write(known_hosts, line).unwrap();
    backend.resolve(&host.address()).await.unwrap();
}

#[tokio::test]
async fn r_1_a_rebuilt_host_is_another_incarnation() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let backend = host.backend();
    let handle = backend.resolve(&host.address()).await.unwrap();
    host.server.change_host_key();
    // The test adds the new key to the known hosts.
    std::fs::remove_file(host.control().join("known_hosts")).unwrap();
    assert_eq!(kind(backend.open(&handle).await), ErrorKind::SandboxGone);
    let new = backend.resolve(&host.address()).await.unwrap();
    assert_ne!(new.incarnation, handle.incarnation);
    backend.open(&new).await.unwrap();
}

#[tokio::test]
async fn r_1_a_session_directory_that_was_recreated_is_another_incarnation() {
    let host = SshFixture::start(&SshdOptions::default());
    let backend = host.backend();
    let handle = backend.resolve(&host.address()).await.unwrap();
    let address = host.address();
    let moved = host.session().with_extension("old");
    std::fs::rename(host.session(), &moved).unwrap();
    assert_eq!(kind(backend.open(&handle).await), ErrorKind::SandboxGone);
    assert_eq!(
        kind(backend.resolve(&address).await),
        ErrorKind::SandboxGone
    );
    std::fs::create_dir(host.work.path()).unwrap();
    assert_eq!(kind(backend.open(&handle).await), ErrorKind::SandboxGone);
    std::fs::remove_dir_all(moved).unwrap();
}

#[tokio::test]
async fn r_1_after_a_new_connection_the_session_directory_is_checked_again() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("file", "text");
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    let moved = host.session().with_extension("old");
    std::fs::rename(host.session(), &moved).unwrap();
    std::fs::create_dir(host.work.path()).unwrap();
    let path = host.make("file", "of another session");
    host.server.restart();
    assert_eq!(kind(read(&*sandbox, &path).await), ErrorKind::SandboxGone);
    assert_eq!(
        kind(write(&*sandbox, &host.path("new"), b"x").await),
        ErrorKind::SandboxGone
    );
    std::fs::remove_dir_all(moved).unwrap();
}

#[tokio::test]
async fn an_alias_in_the_configuration_of_ssh_can_be_an_address() {
    let host = SshFixture::start(&SshdOptions::default());
    let file = host.control.path().join("config");
    let text = format!(
        "Host box\n HostName 127.0.0.1\n Port {}\n User {}\n IdentityFile {}\n",
        host.server.port(),
        host.server.user(),
        host.server.key().display()
    );
    std::fs::write(&file, text).unwrap();
    let backend = SshBackend::new(Config {
        config_file: Some(file),
        identity_file: None,
        ..host.config()
    })
    .unwrap();
    let address: Address = format!("ssh:box{}", host.session().display())
        .parse()
        .unwrap();
    let sandbox = open(&backend, &address).await;
    let path = host.make("file", "text");
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    // The same host under its other name is the same incarnation.
    let other = host.backend().resolve(&host.address()).await.unwrap();
    assert_eq!(other.incarnation, sandbox.handle().incarnation);
}

#[tokio::test]
async fn no_configuration_file_weakens_the_required_options() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let file = host.control.path().join("config");
    let ran = host.control.path().join("ran");
    let text = format!(
        "Host *\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n ControlPath none\n\
         RemoteCommand touch {ran}\n PermitLocalCommand yes\n LocalCommand touch {ran}\n RequestTTY force\n\
         BatchMode no\n ForwardAgent yes\n LocalForward 127.0.0.1:1 127.0.0.1:1\n ExitOnForwardFailure yes\n",
        ran = ran.display()
    );
    std::fs::write(&file, text).unwrap();
    let backend = SshBackend::new(Config {
        config_file: Some(file),
        ..host.config()
    })
    .unwrap();
    let sandbox = open(&backend, &host.address()).await;
    let path = host.path("file");
    write(&*sandbox, &path, b"a\r\n\x04b").await.unwrap();
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"a\r\n\x04b");
    assert!(!ran.exists());
    host.server.change_host_key();
    assert_eq!(
        kind(backend.resolve(&host.address()).await),
        ErrorKind::Auth
    );
}

#[tokio::test]
async fn invalid_addresses_are_refused_before_anything_runs() {
    let host = SshFixture::start(&SshdOptions::default());
    for address in ["ssh:-oProxyCommand=touch x", "ssh:a b", "docker:box"] {
        let refused = host.backend().resolve(&address.parse().unwrap()).await;
        assert_eq!(kind(refused), ErrorKind::InvalidName, "{address}");
    }
    assert_eq!(host.logins(), 0);
}

#[tokio::test]
async fn a_check_reports_the_client_program_and_connects_to_no_host() {
    let host = SshFixture::start(&SshdOptions::default());
    let found = host.backend().check().await.unwrap();
    assert!(
        matches!(&found, BackendCheck::Unverified(text) if text.contains("OpenSSH")),
        "{found:?}"
    );
    let missing = SshBackend::new(Config {
        program: "/nonexistent/ssh".into(),
        ..host.config()
    });
    let failed = missing.unwrap().check().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::ToolMissing);
}
