//! Asks DNS for the addresses of a name (egress-security 7).
//!
//! A [`Resolver`] returns addresses and CNAME targets; [`dray_guard::Judge`] decides whether they may be used. Nothing
//! is cached (D-7): every hop asks again.

use dray_guard::{CanonicalName, Code, DnsAnswer, Judge};
use futures_util::future::BoxFuture;

mod arrival;
mod encrypted;
mod health;
mod hickory;
mod https;
mod name_server;
mod question;
mod server;
mod servers;
mod stream;
mod timing;

pub use hickory::HickoryResolver;
pub use name_server::NameServer;
pub use servers::{ServersError, name_servers, parse_servers, system_name_servers};
pub use timing::{QuestionEnd, QuestionObserver};

/// Asks DNS. The product uses [`HickoryResolver`]; tests and the demo inject their own.
pub trait Resolver: Send + Sync + 'static {
    /// Returns the addresses of `name`, both families, and the CNAME targets on the way.
    ///
    /// An implementation that follows CNAME chains itself asks [`Judge::check_cname`] before each step and stops at a
    /// refused target, with that target in the answer: a refused name is not queried.
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>>;
}

/// Resolves no name. The resolver of a fetcher that is switched off.
#[derive(Clone, Copy, Debug)]
pub struct NoResolver;

impl Resolver for NoResolver {
    fn lookup<'a>(
        &'a self,
        _name: &'a CanonicalName,
        _judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async { Err(DnsError::Failure("no resolver is configured".to_owned())) })
    }
}

/// The reason why a lookup returned no addresses (D-3).
#[derive(Clone, Debug, thiserror::Error)]
pub enum DnsError {
    /// The name does not exist, or has no address.
    #[error("the name has no address")]
    NotFound,
    /// The servers refused, failed or sent invalid responses.
    #[error("the name servers failed: {0}")]
    Failure(String),
    /// The servers did not answer in time.
    #[error("the name servers did not respond in time")]
    Timeout,
}

impl DnsError {
    /// Every value of [`Self::kind`], for metrics that exist from the start.
    pub const ERROR_KINDS: [&'static str; 3] = ["not_found", "failure", "timeout"];

    /// The reason for the agent.
    pub const fn code(&self) -> Code {
        match self {
            Self::NotFound => Code::DnsNotFound,
            Self::Failure(_) => Code::DnsFailure,
            Self::Timeout => Code::Timeout,
        }
    }

    /// The value of the metric label `kind`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Failure(_) => "failure",
            Self::Timeout => "timeout",
        }
    }
}

#[cfg(test)]
mod tests;
