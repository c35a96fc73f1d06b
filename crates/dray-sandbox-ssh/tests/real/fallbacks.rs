//! Tests of the fallbacks for hosts that do not offer everything (sandbox-transfer 2, 5.5).

use dray_sandbox::{Transport, Write};
use dray_testkit::sshd::{SftpOffer, SshdOptions};

use crate::{SshFixture, read, write};

/// Checks that files can be written and read on a host with these options. Returns its transports.
async fn usable_transports(options: &SshdOptions) -> (SshFixture, Vec<Transport>) {
    let host = SshFixture::start(options);
    let sandbox = host.open().await;
    let path = host.path("file");
    write(&*sandbox, &path, b"text").await.unwrap();
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    let probe = sandbox.probe().await.unwrap();
    assert_eq!(probe.transports, sandbox.transports(&path));
    assert_eq!(probe.working_directory, host.root());
    assert!(probe.free.is_some_and(|free| free > 0));
    (host, probe.transports)
}

const COMMAND_TRANSPORTS: [Transport; 2] = [Transport::ExecRaw, Transport::ExecBase64];

#[tokio::test]
async fn sftp_is_preferred_to_commands() {
    let (_host, found) = usable_transports(&SshdOptions::default()).await;
    assert_eq!(
        found,
        [&[Transport::Sftp], &COMMAND_TRANSPORTS[..]].concat()
    );
}

#[tokio::test]
async fn a_host_without_sftp_is_used_through_commands() {
    let (_host, found) = usable_transports(&SshdOptions::default().sftp(SftpOffer::None)).await;
    assert_eq!(found, COMMAND_TRANSPORTS);
}

#[tokio::test]
async fn a_host_without_a_shell_is_used_through_sftp() {
    let (_host, found) = usable_transports(&SshdOptions::default().without_shell()).await;
    assert_eq!(found, [Transport::Sftp]);
}

#[tokio::test]
async fn a_host_whose_start_files_print_into_sftp_is_used_through_commands() {
    let noisy = SshdOptions::default()
        .sftp(SftpOffer::Program)
        .start_file("echo Welcome");
    let (_host, found) = usable_transports(&noisy).await;
    assert_eq!(found, COMMAND_TRANSPORTS);
    let quiet = SshdOptions::default().sftp(SftpOffer::Program);
    let (_host, found) = usable_transports(&quiet).await;
    assert_eq!(found[0], Transport::Sftp);
}

#[tokio::test]
async fn r_10_a_write_continues_after_the_connection_was_lost() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("part", "first ");
    host.server.restart();
    assert!(sandbox.resumes(Transport::Sftp));
    let rest = Write {
        transport: Transport::Sftp,
        path: &path,
        size: 12,
        offset: 6,
        mode: 0o600,
    };
    sandbox
        .write(rest, dray_sandbox::Body::from_bytes("second"))
        .await
        .unwrap();
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"first second");
}

#[tokio::test]
async fn a_tree_is_read_and_written_as_tar_but_never_into_a_home_directory() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    std::fs::create_dir(host.session().join("from")).unwrap();
    std::fs::write(host.session().join("from/a"), "text").unwrap();
    let (tar, transport) = sandbox.read_tree(&host.path("from")).await.unwrap();
    assert_eq!(transport, Transport::ExecRaw);
    let tar = tar.read_all(1 << 20).await.unwrap();
    assert!(tar.windows(4).any(|part| part == b"text"));
    let before = std::fs::metadata(host.server.home()).unwrap();
    let home = dray_sandbox::SandboxPath::new(host.server.home().to_str().unwrap()).unwrap();
    for path in [
        home.clone(),
        home.parent(),
        dray_sandbox::SandboxPath::root(),
    ] {
        let refused = sandbox
            .write_tree(&path, dray_sandbox::Body::from_bytes(tar.clone()))
            .await;
        assert_eq!(crate::kind(refused), dray_sandbox::ErrorKind::ToolMissing);
    }
    let after = std::fs::metadata(host.server.home()).unwrap();
    assert_eq!(after.permissions(), before.permissions());
    std::fs::create_dir(host.session().join("to")).unwrap();
    let written = sandbox
        .write_tree(&host.path("to"), dray_sandbox::Body::from_bytes(tar))
        .await
        .unwrap();
    assert_eq!(written, Transport::ExecRaw);
    let unpacked = std::fs::read(host.session().join("to/a"));
    assert_eq!(unpacked.unwrap(), b"text");
}
