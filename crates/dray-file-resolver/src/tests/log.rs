//! R8: the log has no contents, no queries and no credentials.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use dray_testkit::dial::InjectedFault;
use dray_types::{Fault, FaultCode};
use tracing_subscriber::fmt::MakeWriter;

use super::fixture::{ResolverFixture, request};

#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl LogLines {
    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&lines).into_owned()
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn r8_logs_hold_no_contents_queries_or_credentials() {
    let lines = LogLines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let fixture =
        ResolverFixture::with(&[("file-resolver.tenants.acme.api_key", "work-credential")]).await;
    fixture.core.add_key("call-credential", "b");
    fixture.core.put("b/a", "file-contents", "text/plain");
    fixture.core.put("b/bad", "file-contents", "text/plain");
    let truncated = InjectedFault::Truncated;
    fixture.core.inject_file_fault("b/bad", truncated);
    let mut asked = request(
        r#"{"a":"file:text::files/b/a?query-secret","b":"file:base64::files/b/a","p":"plain-argument",
            "u":"file:url::https://user-info:x@h.example/?query-secret"}"#,
    );
    if let Some(credentials) = &mut asked.credentials {
        credentials.api_key = "call-credential".to_owned();
        credentials.authorization = "Bearer bearer-credential".to_owned();
    }
    fixture.ask(asked).await.unwrap();
    let url = "https://h.example/a?query-secret";
    let refused = Fault::new(FaultCode::Denied, "refused").detail("ssrf_blocked");
    fixture.egress.answer(url, Err(refused));
    fixture
        .invalid(&format!(r#"{{"a":"file:text::{url}"}}"#))
        .await;
    let other = "https://h.example/b?query-secret";
    fixture.egress.answer(other, Err(Fault::internal()));
    let reference = format!(r#"{{"a":"file:text::{other}"}}"#);
    fixture.fault(&reference).await;
    fixture
        .fault(r#"{"a":"file:text::files/b/bad?query-secret"}"#)
        .await;
    fixture
        .invalid(r#"{"a":"file:text::files/b/none?query-secret"}"#)
        .await;
    let logged = lines.text();
    assert!(
        logged.contains("tool call not resolved"),
        "nothing was logged"
    );
    assert!(logged.contains("files/b/bad"), "the reference is not named");
    for secret in [
        "file-contents",
        "query-secret",
        "plain-argument",
        "user-info",
        "call-credential",
        "bearer-credential",
        "work-credential",
        "ZmlsZS1jb250ZW50cw",
    ] {
        let lines: Vec<_> = logged
            .lines()
            .filter(|line| line.contains(secret))
            .collect();
        assert!(lines.is_empty(), "{secret} is logged: {lines:#?}");
    }
}
