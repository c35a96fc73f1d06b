//! Connections that arrive between the stop signal and the moment at which load balancers know of it.

use tonic::transport::Endpoint;

use super::grpc_auth::fetch;
use super::pages::get;
use super::service::TestHost;

#[tokio::test]
async fn a_connection_after_the_signal_is_served_while_the_process_lingers() {
    let fixture = TestHost::new(&[("shutdown.linger", "1h")]).await;
    fixture.running.ready().await;
    let addresses = fixture.running.addresses();
    let (http, grpc) = (addresses.http.unwrap(), addresses.grpc.unwrap());
    let (health, listeners) = (
        fixture.running.health().clone(),
        fixture.running.context().listeners.clone(),
    );
    let TestHost {
        running,
        directory: _directory,
        ..
    } = fixture;
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(running.stop());
    health.wait_unready().await;
    assert_eq!(get(http, "/ready").await.unwrap().0, 503);
    let endpoint = Endpoint::from_shared(format!("http://{grpc}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let served = fetch(channel, "echo:hello", &[("dray-tenant", "acme")]).await;
    assert_eq!(served.unwrap(), "hello");
    assert!(!listeners.stop.is_cancelled(), "chats are accepted as well");
}
