//! Clients whose TLS handshake in an intercepted tunnel fails.

use rustls::AlertDescription;
use tokio_rustls::TlsConnector;

use super::intercepted::InterceptingProxy;
use super::*;

#[tokio::test]
async fn a_client_without_the_authority_or_http1_is_refused_and_the_target_gets_no_byte() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let only_h2 = {
        let mut config = (*tls_config(Some(fixture.anchor.clone()))).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let stranger = tls_config(Some(fixture.origin.certificate()));
    for (config, code) in [
        (stranger, "client_tls_failed"),
        (only_h2, "http1_not_offered"),
    ] {
        let (client, _) = fixture.proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
        let name = TARGET_HOST.to_owned().try_into().unwrap();
        let connected = TlsConnector::from(config).connect(name, client).await;
        let error = connected.unwrap_err();
        let error = error.get_ref().and_then(|error| error.downcast_ref());
        let alert = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
        assert_eq!(
            error == Some(&alert),
            code == "http1_not_offered",
            "{error:?}"
        );
        let mut received = Vec::new();
        let mut server = ends.recv().await.unwrap();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, Vec::<u8>::new());
        let event = fixture.proxy.event().await;
        assert_eq!(
            (event.code.as_str(), event.rule.as_str()),
            (code, "interception")
        );
        assert!(event.intercepted);
    }
}
