//! Serves `/live`, `/started`, `/ready` and `/metrics` over HTTP. No page prints the environment or the
//! configuration.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use super::ProcessHealth;

/// State of the pages.
#[derive(Clone, Debug)]
pub(crate) struct HealthPages {
    pub(crate) health: ProcessHealth,
    pub(crate) registry: prometheus::Registry,
}

pub(crate) fn health_routes(pages: HealthPages) -> Router {
    Router::new()
        .route("/live", get(get_live))
        .route("/started", get(get_started))
        .route("/ready", get(get_ready))
        .route("/metrics", get(get_metrics))
        .with_state(pages)
}

async fn get_live(State(pages): State<HealthPages>) -> Response {
    verdict_response(pages.health.is_live())
}

async fn get_started(State(pages): State<HealthPages>) -> Response {
    verdict_response(pages.health.has_started())
}

fn verdict_response(passed: bool) -> Response {
    if passed {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no\n").into_response()
    }
}

async fn get_ready(State(pages): State<HealthPages>) -> Response {
    let readiness = pages.health.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    match serde_json::to_string(&readiness) {
        Ok(body) => (status, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn get_metrics(State(pages): State<HealthPages>) -> Response {
    match crate::telemetry::encode_metrics(&pages.registry) {
        Ok(text) => (
            [(
                header::CONTENT_TYPE,
                "text/plain; version=0.0.4; charset=utf-8",
            )],
            text,
        )
            .into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
