//! Tests of an opened sandbox: the first probe, digests by reading back, and waiting for work that dropped callers
//! left on the host.

use std::time::Duration;

use dray_testkit::sshd::{Sshd, SshdOptions};
use futures_util::stream;
use tokio::sync::oneshot;

use super::*;
use crate::client::Client;
use crate::config::{Config, Settings};
use crate::target::Target;

/// A server and its opened home directory.
async fn open_sandbox() -> (Sshd, tempfile::TempDir, SshSandbox) {
    let server = Sshd::start(&SshdOptions::default());
    let control = tempfile::tempdir_in("/tmp").unwrap();
    let settings = Settings::new(Config {
        control_directory: Some(control.path().join("c")),
        config_file: Some("none".into()),
        identity_file: Some(server.key()),
        ..Config::default()
    })
    .unwrap();
    let address = format!("{}@127.0.0.1:{}", server.user(), server.port());
    let client = Client::new(Arc::new(settings), Target::parse(&address).unwrap());
    let name = client.connection_name().await.unwrap();
    let link = Arc::new(HostLink::new(client, &name));
    let address = dray_sandbox::Address {
        backend: "ssh".to_owned(),
        name: address,
    };
    let sandbox = SshSandbox::open(link, None, address, None).await.unwrap();
    (server, control, sandbox)
}

#[tokio::test]
async fn the_probe_of_the_examination_equals_that_of_a_later_request() {
    let (_server, _control, sandbox) = open_sandbox().await;
    let first = sandbox.fresh_probe.lock().unwrap().take().unwrap().1;
    let second = sandbox.probe().await.unwrap();
    let facts = |probe: Probe| (probe.home, probe.uid, probe.gid, probe.tools);
    assert!(first.free.is_some());
    assert_eq!(facts(first), facts(second));
}

#[tokio::test]
async fn the_digest_of_a_small_file_on_a_near_host_comes_from_reading_it_again() {
    let (server, _control, sandbox) = open_sandbox().await;
    sandbox.pool.set_near();
    for (size, is_read_back) in [(64 * 1024, true), (64 * 1024 + 1, false)] {
        let bytes = vec![7; size];
        let file = server.home().join("file");
        std::fs::write(&file, &bytes).unwrap();
        let path = SandboxPath::new(file.to_str().unwrap()).unwrap();
        let digest = Fingerprint::Sha256(dray_types::Sha256Digest::of(&bytes), size as u64);
        assert_eq!(sandbox.fingerprint(&path).await.unwrap(), digest);
        let metadata = sandbox.stat(&path, Follow::Yes).await.unwrap();
        let read = Read {
            transport: Transport::Sftp,
            file: &metadata,
            offset: 0,
        };
        assert_eq!(sandbox.reads_with_digest(&read), is_read_back);
        let (body, computed) = sandbox.read_with_digest(read).await.unwrap();
        assert!(body.read_all(1 << 20).await.unwrap() == bytes);
        assert_eq!(computed.await.ok(), is_read_back.then_some(digest));
    }
}

#[tokio::test]
async fn nothing_is_created_before_abandoned_work_is_done() {
    let (server, _control, sandbox) = open_sandbox().await;
    let link = Arc::clone(&sandbox.link);
    let made = server.home().join("made");
    let path = SandboxPath::new(made.to_str().unwrap()).unwrap();

    let (finish, finished) = oneshot::channel::<()>();
    link.background_work().add(async {
        let _ = finished.await;
    });
    let nothing = Body::new(stream::empty());
    let wait = Duration::from_secs(2);
    {
        let unpacking = tokio::time::timeout(wait, sandbox.write_tree(&path, nothing)).await;
        assert!(unpacking.is_err(), "{unpacking:?}");
        let making = sandbox.make_directory(&path);
        tokio::pin!(making);
        let waited = tokio::time::timeout(wait, &mut making).await;
        assert!(waited.is_err() && !made.exists(), "{waited:?}");
        finish.send(()).unwrap();
        making.await.unwrap();
    }
    assert!(made.is_dir());
}
