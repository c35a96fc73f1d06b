//! The methods for documents and conversations; [`crate::reading`] implements them.

use std::sync::Arc;

use dray_proto::v1;
use dray_service::Request;
use dray_types::Fault;

use super::FileResolver;

impl FileResolver {
    /// Reads one document and returns it as framed Markdown.
    pub async fn read_attachment(
        self: Arc<Self>,
        request: Request<v1::ReadAttachmentRequest>,
    ) -> Result<v1::ReadAttachmentReply, Fault> {
        self.settings.get().reading.read_attachment(request).await
    }

    /// Builds the description of a conversation's files for the model.
    pub async fn build_context(
        self: Arc<Self>,
        request: Request<v1::BuildContextRequest>,
    ) -> Result<v1::BuildContextReply, Fault> {
        self.settings.get().reading.build_context(request).await
    }

    /// Runs the model's tool `read_files`.
    pub async fn read_files(
        self: Arc<Self>,
        request: Request<v1::ReadFilesRequest>,
    ) -> Result<v1::ReadFilesReply, Fault> {
        self.settings.get().reading.read_files(request).await
    }

    /// Replaces file ids by URLs.
    pub async fn substitute_ids(
        self: Arc<Self>,
        request: Request<v1::SubstituteIdsRequest>,
    ) -> Result<v1::SubstituteIdsReply, Fault> {
        self.settings.get().reading.substitute_ids(request).await
    }

    /// Runs the model's tool `sandbox_fetch_user_file`.
    pub async fn fetch_user_file(
        self: Arc<Self>,
        request: Request<v1::FetchUserFileRequest>,
    ) -> Result<v1::FetchUserFileReply, Fault> {
        self.settings.get().reading.fetch_user_file(request).await
    }
}
