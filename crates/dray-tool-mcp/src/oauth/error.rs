//! Failures of sign-ins.

use dray_dial::signin::SignIn;
use rmcp::transport::auth::AuthError;
use thiserror::Error;

use super::assertion::AssertionError;
use super::stored::SignInStoreError;
use super::workload::WorkloadError;

/// The reason why a sign-in failed.
#[derive(Debug, Error)]
pub(crate) enum SignInError {
    /// The user cannot be shown a sign-in page.
    #[error("no page can be shown to the user")]
    NoPort,
    /// The user signs in at this page before a later request.
    #[error(
        "the user has to sign in first: they open {0} in a browser, and send the code that it shows at the end"
    )]
    Waiting(String),
    /// The sign-in or its tokens cannot be kept.
    #[error(transparent)]
    Store(#[from] SignInStoreError),
    /// The user did not sign in.
    #[error("the user did not sign in")]
    Refused(SignIn),
    /// The server names an authorization server that neither it nor the manifest owns.
    #[error("the authorization server `{0}` is not named in the manifest")]
    Untrusted(String),
    /// The client cannot sign in by its private key.
    #[error(transparent)]
    Assertion(#[from] AssertionError),
    /// The client cannot sign in with the identity of the workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The sign-in page is not an address of the web.
    #[error("the sign-in page is not a page of the web")]
    NoPage,
    /// Discovery, registration or the exchange of the code failed.
    #[error("the sign-in failed")]
    Failed(#[source] Box<AuthError>),
}

impl From<AuthError> for SignInError {
    fn from(error: AuthError) -> Self {
        Self::Failed(Box::new(error))
    }
}
