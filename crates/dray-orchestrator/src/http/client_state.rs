//! State that the service stores for clients of `OpenAI`'s API between their requests, and its routes.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::current::CurrentSurface;
use super::responses::{self, conversations};
use super::{files, sign_in, uploads};
use crate::client_files::ClientFiles;
use crate::client_uploads::ClientUploads;
use crate::metrics::OrchestratorMetrics;
use crate::progress::ProgressStore;
use crate::responses::ResponseStore;
use crate::sign_ins::{CALLBACK_PATH, StoredSignIns};

/// State that the service stores for clients of `OpenAI`'s API between their requests.
#[derive(Clone, Debug)]
pub struct ClientState {
    pub(crate) files: ClientFiles,
    pub(crate) uploads: ClientUploads,
    pub(crate) responses: ResponseStore,
    /// Checkpoints of responses in the background.
    pub(crate) progress: ProgressStore,
    /// Sign-ins at MCP servers, where browsers can reach this service.
    pub(crate) sign_ins: Option<Arc<StoredSignIns>>,
}

/// The tasks of the service that outlive a request, and what ends them.
#[derive(Clone, Debug)]
pub struct BackgroundTasks {
    /// Owner of the tasks.
    pub tasks: TaskTracker,
    /// Cancelled when the service ends.
    pub stop: CancellationToken,
    /// The metrics that count stored and damaged state.
    pub metrics: OrchestratorMetrics,
}

/// Routes for state that is stored between requests.
pub(super) fn client_state_routes() -> Router<CurrentSurface> {
    let content = get(files::get_content);
    let container_content = get(files::get_container_content);
    let conversation = get(conversations::get_conversation)
        .post(conversations::update_conversation)
        .delete(conversations::delete_conversation);
    let items = get(conversations::list_items).post(conversations::add_items);
    let item = get(conversations::get_item).delete(conversations::delete_item);
    Router::new()
        .route(CALLBACK_PATH, get(sign_in::get_callback))
        .route("/v1/files", get(files::list_files).post(files::upload_file))
        .route(
            "/v1/files/{id}",
            get(files::get_file).delete(files::delete_file),
        )
        .route("/v1/files/{id}/content", content)
        .route(
            "/v1/containers/{container}/files/{id}/content",
            container_content,
        )
        .route("/v1/uploads", post(uploads::create_upload))
        .route("/v1/uploads/{id}/parts", post(uploads::add_part))
        .route("/v1/uploads/{id}/complete", post(uploads::complete_upload))
        .route("/v1/uploads/{id}/cancel", post(uploads::cancel_upload))
        .route("/v1/responses", post(responses::create_response))
        // No id of a response is `input_tokens`, so this route hides none of those with ids.
        .route(
            "/v1/responses/input_tokens",
            post(responses::count_input_tokens),
        )
        .route(
            "/v1/responses/{id}",
            get(responses::get_response).delete(responses::delete_response),
        )
        .route(
            "/v1/responses/{id}/cancel",
            post(responses::cancel_response),
        )
        .route(
            "/v1/responses/{id}/input_items",
            get(responses::list_input_items),
        )
        .route(
            "/v1/conversations",
            post(conversations::create_conversation),
        )
        .route("/v1/conversations/{id}", conversation)
        .route("/v1/conversations/{id}/items", items)
        .route("/v1/conversations/{id}/items/{item}", item)
}
