//! A client connects only to destinations that its guard allows.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use super::*;

/// Allows or refuses as the test configures, and records the checks.
#[derive(Debug, Default)]
struct ScriptedGuard {
    refuses_urls: bool,
    /// The allowed addresses of every name; `None` refuses.
    allows: Option<Vec<IpAddr>>,
    urls: Mutex<Vec<String>>,
    names: Mutex<Vec<String>>,
}

impl DestinationGuard for ScriptedGuard {
    fn check_url(&self, url: &Url) -> Result<(), Cause> {
        self.urls.lock().unwrap().push(url.to_string());
        if self.refuses_urls {
            return Err("refused".into());
        }
        Ok(())
    }

    fn check_addresses(&self, host: &str, _: Vec<IpAddr>) -> Result<Vec<IpAddr>, Cause> {
        self.names.lock().unwrap().push(host.to_owned());
        self.allows.clone().ok_or_else(|| "refused".into())
    }
}

const LOOPBACK_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

async fn status(guard: &Arc<ScriptedGuard>, url: &str) -> Result<u16, HttpError> {
    let guard: Arc<dyn DestinationGuard> = Arc::<ScriptedGuard>::clone(guard);
    let client = HttpClient::guarded(HttpTimeouts::default(), guard).unwrap();
    let response = client.get(url).send(&quiet).await?;
    Ok(response.status())
}

#[tokio::test]
async fn a_literal_address_is_refused_before_a_connection_is_made() {
    let (server, url) = server(ResponseScript::ok("hello")).await;
    let guard = Arc::new(ScriptedGuard {
        refuses_urls: true,
        ..ScriptedGuard::default()
    });
    let error = status(&guard, &url).await.unwrap_err();
    assert!(
        matches!(error.failure, FailureKind::Connect(_)),
        "{error:?}"
    );
    assert_eq!(error.sent, RequestProgress::Incomplete);
    assert_eq!(*guard.urls.lock().unwrap(), [url]);
    assert_eq!(server.received_requests().len(), 0);
}

#[tokio::test]
async fn a_name_whose_addresses_are_refused_is_not_connected() {
    let (server, _) = server(ResponseScript::ok("hello")).await;
    let guard = Arc::new(ScriptedGuard::default());
    let url = format!("http://localhost:{}/", server.address().port());
    let error = status(&guard, &url).await.unwrap_err();
    assert!(
        matches!(error.failure, FailureKind::Connect(_)),
        "{error:?}"
    );
    assert_eq!(*guard.names.lock().unwrap(), ["localhost"]);
    assert_eq!(server.received_requests().len(), 0);
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_the_guard_returned() {
    let (server, _) = server(ResponseScript::ok("hello")).await;
    let url = format!("http://localhost:{}/", server.address().port());
    let allowed = Arc::new(ScriptedGuard {
        allows: Some(vec![LOOPBACK_ADDRESS]),
        ..ScriptedGuard::default()
    });
    assert_eq!(status(&allowed, &url).await.unwrap(), 200);
    // The system resolves the name to a listener; the guard's address has none.
    let elsewhere = Arc::new(ScriptedGuard {
        allows: Some(vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 77))]),
        ..ScriptedGuard::default()
    });
    let error = status(&elsewhere, &url).await.unwrap_err();
    assert!(
        matches!(error.failure, FailureKind::Connect(_)),
        "{error:?}"
    );
    assert_eq!(server.received_requests().len(), 1);
}
