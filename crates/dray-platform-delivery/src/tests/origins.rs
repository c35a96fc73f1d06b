//! Uploads from pages of other origins.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt as _;

use super::inbound::fixture;
use crate::inbound::listener;

#[tokio::test]
async fn only_pages_of_listed_origins_may_upload() {
    let fixture =
        fixture(|config| config.upload_origins = vec!["https://app.example".to_owned()]).await;
    let headers = |request: Request<Body>| async {
        let router = listener::inbound_router(Arc::clone(&fixture.replica.inbound));
        let answer = router.oneshot(request).await.unwrap();
        let of = |name: &str| Some(answer.headers().get(name)?.to_str().unwrap().to_owned());
        (
            answer.status(),
            of("access-control-allow-origin"),
            of("access-control-allow-headers"),
        )
    };
    let asked = |method: &str, path: &str, origin: &str| {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost:1")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .body(Body::empty())
            .unwrap()
    };
    let own = Some("https://app.example".to_owned());
    for path in ["/uploads", "/uploads/u1/finish"] {
        let (status, origin, allowed) =
            headers(asked("OPTIONS", path, "https://app.example")).await;
        assert_eq!((status, &origin), (StatusCode::NO_CONTENT, &own), "{path}");
        assert_eq!(allowed.as_deref(), Some("authorization, content-type"));
        let (status, origin, _) = headers(asked("OPTIONS", path, "https://evil.example")).await;
        assert_eq!((status, origin), (StatusCode::FORBIDDEN, None), "{path}");
    }
    // The page may read a refusal too; other origins may not.
    let (status, origin, _) = headers(asked("POST", "/uploads", "https://app.example")).await;
    assert_eq!((status, origin), (StatusCode::UNAUTHORIZED, own));
    let (_, origin, _) = headers(asked("POST", "/uploads", "null")).await;
    assert_eq!(origin, None);
    let (_, origin, _) = headers(asked(
        "OPTIONS",
        "/platforms/bot/webhook",
        "https://app.example",
    ))
    .await;
    assert_eq!(origin, None, "a page must not call webhooks");
}
