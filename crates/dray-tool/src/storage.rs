//! Files of calls, kept where the client can fetch them (quickapps 25).

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::message::Attachment;

use crate::Failure;

/// What a URL in an argument is (quickapps 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlClass {
    /// A file of DIAL: `files/…`, or an absolute URL at the exact DIAL origin.
    Dial,
    /// `http` or `https` elsewhere.
    External,
    /// `data:`.
    Data,
    /// Anything else.
    Unsupported,
}

/// Files for the calls of one request, with the rights of its caller. Without DIAL, what is kept goes to the artifact
/// store and its URL is a link that expires.
#[async_trait]
pub trait Storage: std::fmt::Debug + Send + Sync {
    /// What a URL is, without looking at what is behind it.
    fn classify(&self, url: &str) -> UrlClass;

    /// The file behind a URL as an attachment that stays: of a DIAL file its metadata, of anything else a copy that is
    /// made once per request, also under concurrency (the promoter, quickapps 25.3). `parameter` names the argument in
    /// failures.
    ///
    /// # Errors
    ///
    /// [`Failure::Parameter`] for what the model can mend: scheme, policy, size, address. Others are the storage's.
    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, Failure>;

    /// Keeps bytes exactly as they are under a name that overwrites nothing.
    ///
    /// # Errors
    ///
    /// Those of the storage.
    async fn keep(&self, name: &str, media_type: &str, bytes: Bytes)
    -> Result<Attachment, Failure>;
}
