//! Tests which operations wait for work that dropped callers left on the host.

use std::time::Duration;

use dray_testkit::sshd::{Options, Sshd};
use futures_util::stream;
use tokio::sync::oneshot;

use super::*;
use crate::client::Client;
use crate::config::{Config, Settings};
use crate::target::Target;

#[tokio::test]
async fn nothing_is_made_before_abandoned_work_is_done() {
    let server = Sshd::start(&Options::default());
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
    let sandbox = SshSandbox::open(Arc::clone(&link), None, address, None)
        .await
        .unwrap();
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
