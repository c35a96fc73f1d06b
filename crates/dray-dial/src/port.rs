//! The interface of DIAL Core for other crates: [`DialClient`] is the real implementation, `fake::FakeDial` the one for
//! tests.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_http::ByteStream;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::Value;

use crate::core::{DialClient, InterpreterAction};
use crate::error::Error;
use crate::files::{FileDownload, FileMetadata, FolderListing, UploadCondition};
use crate::meta::{Deployment, Toolset};
use crate::origin::{DialFolder, DialOrigin, FileUrl};
use crate::signin::SignIn;

/// The chunks of a chat completion, parsed, without the last `[DONE]`. Dropping it closes the connection.
pub type ChunkStream = BoxStream<'static, Result<Value, Error>>;

/// DIAL Core with the rights of one caller at a time. Every call fails with [`Error`]; the methods of [`DialClient`]
/// with the same names document the details.
#[async_trait]
pub trait DialPort: fmt::Debug + Send + Sync {
    /// The origin that keys go to.
    fn origin(&self) -> &DialOrigin;

    /// Drops the cached data of a deployment or toolset.
    fn forget(&self, caller: &Caller, id: &str);

    /// A deployment. May be cached for a while, per caller.
    async fn deployment(&self, caller: &Caller, id: &str) -> Result<Deployment, Error>;

    /// The JSON schema of a deployment's configuration. May be cached for a while, per caller.
    async fn deployment_configuration(&self, caller: &Caller, id: &str) -> Result<Value, Error>;

    /// A toolset. May be cached for a while, per caller.
    async fn toolset(&self, caller: &Caller, id: &str) -> Result<Toolset, Error>;

    /// A chat completion, streamed; an error of the service in the stream is an error of the stream. `headers` names
    /// the caller's headers that are sent; all of them if absent. The deployment may be silent for an hour: the caller
    /// limits the call.
    async fn chat(
        &self,
        caller: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, Error>;

    /// Calls the code interpreter, once.
    async fn interpreter(
        &self,
        caller: &Caller,
        action: InterpreterAction,
        body: &Value,
    ) -> Result<Value, Error>;

    /// Permits `receiver` to read files for the lifetime of this request.
    async fn grant(&self, caller: &Caller, files: &[FileUrl], receiver: &str) -> Result<(), Error>;

    /// Asks the user of the caller's channel to sign in to toolsets. Returns one outcome per toolset, in order, within
    /// `wait`.
    async fn sign_in(&self, caller: &Caller, toolsets: &[String], wait: Duration) -> Vec<SignIn>;

    /// The folder for new files of this service.
    async fn home(&self, caller: &Caller) -> Result<DialFolder, Error>;

    /// Metadata of a file.
    async fn metadata(&self, caller: &Caller, file: &FileUrl) -> Result<FileMetadata, Error>;

    /// The entries of a folder.
    async fn list_folder(
        &self,
        caller: &Caller,
        folder: &DialFolder,
    ) -> Result<FolderListing, Error>;

    /// The bytes of a file, at most `limit`. The causes of the stream are [`Error`]s.
    async fn download(
        &self,
        caller: &Caller,
        file: &FileUrl,
        limit: u64,
    ) -> Result<ByteStream, Error>;

    /// Stores `size` bytes, once.
    async fn upload(
        &self,
        caller: &Caller,
        file: &FileUrl,
        media_type: &str,
        size: u64,
        body: ByteStream,
        condition: &UploadCondition,
    ) -> Result<FileMetadata, Error>;

    /// Deletes a file, in any state or only in the one with this `etag`, once.
    async fn delete(
        &self,
        caller: &Caller,
        file: &FileUrl,
        etag: Option<&str>,
    ) -> Result<(), Error>;
}

// `Self::name` is the client's own method: inherent methods have priority over trait methods.
#[async_trait]
impl DialPort for DialClient {
    fn origin(&self) -> &DialOrigin {
        Self::origin(self)
    }

    fn forget(&self, caller: &Caller, id: &str) {
        Self::forget(self, caller, id);
    }

    async fn deployment(&self, caller: &Caller, id: &str) -> Result<Deployment, Error> {
        Self::deployment(self, caller, id).await
    }

    async fn deployment_configuration(&self, caller: &Caller, id: &str) -> Result<Value, Error> {
        Self::deployment_configuration(self, caller, id).await
    }

    async fn toolset(&self, caller: &Caller, id: &str) -> Result<Toolset, Error> {
        Self::toolset(self, caller, id).await
    }

    async fn chat(
        &self,
        caller: &Caller,
        deployment: &str,
        headers: Option<&[String]>,
        body: &Value,
    ) -> Result<ChunkStream, Error> {
        let chat = Self::chat(self).with_tool_timeouts();
        let response = chat.stream_with(caller, headers, deployment, body.clone());
        let chunks = stream::try_unfold(response.await?, |mut response| async move {
            let chunk = response.chunk().await?;
            Ok(chunk.map(|chunk| (chunk, response)))
        });
        Ok(chunks.boxed())
    }

    async fn interpreter(
        &self,
        caller: &Caller,
        action: InterpreterAction,
        body: &Value,
    ) -> Result<Value, Error> {
        Self::interpreter(self, caller, action, body).await
    }

    async fn grant(&self, caller: &Caller, files: &[FileUrl], receiver: &str) -> Result<(), Error> {
        Self::grant(self, caller, files, receiver).await
    }

    async fn sign_in(&self, caller: &Caller, toolsets: &[String], wait: Duration) -> Vec<SignIn> {
        Self::sign_in(self, caller, toolsets, wait).await
    }

    async fn home(&self, caller: &Caller) -> Result<DialFolder, Error> {
        Self::home(self, caller).await
    }

    async fn metadata(&self, caller: &Caller, file: &FileUrl) -> Result<FileMetadata, Error> {
        Self::metadata(self, caller, file).await
    }

    async fn list_folder(
        &self,
        caller: &Caller,
        folder: &DialFolder,
    ) -> Result<FolderListing, Error> {
        Self::list_folder(self, caller, folder).await
    }

    async fn download(
        &self,
        caller: &Caller,
        file: &FileUrl,
        limit: u64,
    ) -> Result<ByteStream, Error> {
        let download = Self::download(self, caller, file, limit).await;
        download.map(FileDownload::into_stream)
    }

    async fn upload(
        &self,
        caller: &Caller,
        file: &FileUrl,
        media_type: &str,
        size: u64,
        body: ByteStream,
        condition: &UploadCondition,
    ) -> Result<FileMetadata, Error> {
        Self::upload(self, caller, file, media_type, size, body, condition).await
    }

    async fn delete(
        &self,
        caller: &Caller,
        file: &FileUrl,
        etag: Option<&str>,
    ) -> Result<(), Error> {
        Self::delete(self, caller, file, etag).await
    }
}
