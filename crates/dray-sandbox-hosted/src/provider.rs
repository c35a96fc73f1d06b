//! The trait with the differences between providers.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use dray_http::{ByteStream, HttpResponse, RequestBuilder};
use dray_sandbox::{Error, ErrorKind, Handle, SandboxPath};
use dray_sandbox_exec::Exec;

use crate::control::require_lifetime;
use crate::fault::unanswered;

/// One incarnation of a sandbox at its provider.
#[async_trait]
pub trait Provider: Debug + Send + Sync + 'static {
    /// Runs commands as the sandbox user.
    type Commands: Exec + 'static;

    /// Whether a download may begin in the middle of a file, by the header `Range`.
    const HAS_RANGES: bool;

    /// Whether the output of a command may be as long as a tar of a directory.
    const HAS_LONG_OUTPUT: bool;

    /// Kinds of failure that may mean that the sandbox is stopped or gone.
    const DOUBTFUL_KINDS: &'static [ErrorKind];

    /// Handle of the incarnation.
    fn handle(&self) -> &Handle;

    /// Remaining lifetime; `None` for a sandbox without an end.
    ///
    /// # Errors
    /// The state of an incarnation that cannot be used now, such as [`ErrorKind::SandboxGone`].
    async fn life_left(&self) -> Result<Option<Duration>, Error>;

    /// Makes sure that the incarnation lives for `needed` from now.
    ///
    /// # Errors
    /// [`ErrorKind::SandboxGone`] when it does not.
    async fn ensure_lifetime(&self, needed: Duration) -> Result<(), Error> {
        match self.life_left().await? {
            Some(left) => require_lifetime(left, needed),
            None => Ok(()),
        }
    }

    /// A request for the bytes of a file.
    fn download(&self, path: &str) -> RequestBuilder;

    /// A request that fills a file.
    fn upload(&self, path: &str, size: u64, body: ByteStream) -> RequestBuilder;

    /// Checks the response to an upload.
    ///
    /// # Errors
    /// [`ErrorKind::Protocol`] when it names another file.
    async fn check_upload(
        &self,
        _path: &SandboxPath,
        _response: HttpResponse,
    ) -> Result<(), Error> {
        Ok(())
    }

    /// Renames a file; an existing target is replaced. Returns false when the provider has no call for that.
    ///
    /// # Errors
    /// The call failed. After [`ErrorKind::ToolMissing`], [`ErrorKind::Unavailable`] and [`ErrorKind::Protocol`], the
    /// caller tries commands.
    async fn replace(&self, _from: &str, _to: &str) -> Result<bool, Error> {
        Ok(false)
    }

    /// Converts a response with a status other than success to an error.
    async fn refused(&self, response: HttpResponse) -> Error;

    /// Sends a request; any response but success is an error.
    ///
    /// # Errors
    /// The refusal, or the state of the sandbox that caused it.
    async fn send(&self, request: RequestBuilder) -> Result<HttpResponse, Error> {
        let error = match request.send(&|_| {}).await {
            Ok(response) if response.is_success() => return Ok(response),
            Ok(response) => self.refused(response).await,
            Err(error) => unanswered(error),
        };
        Err(self.explained(error).await)
    }

    /// Replaces an unclear failure by the state that the control API reports. Proxies respond with several statuses for
    /// a sandbox that is stopped or no longer exists, and errors about a file have some of these statuses, too.
    async fn explained(&self, error: Error) -> Error {
        if !Self::DOUBTFUL_KINDS.contains(&error.kind()) {
            return error;
        }
        match self.life_left().await {
            Err(state)
                if matches!(
                    state.kind(),
                    ErrorKind::SandboxGone | ErrorKind::SandboxStopped | ErrorKind::SandboxPaused
                ) =>
            {
                state.caused_by(error)
            }
            _ => error,
        }
    }
}
