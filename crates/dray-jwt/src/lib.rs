//! Verification of JSON Web Tokens (RFC 7519) of one issuer: the signature, the issuer, the audience and the time.
//!
//! - [`TokenVerifier`]: checks a token and returns its claims.
//! - [`ClaimRules`]: the issuer and the audiences that count.
//! - [`KeyCache`]: the key set (RFC 7517) of the issuer. It is loaded again when a token names an unknown key, at most
//!   once in 30 seconds.
//! - [`KeySource`]: the source of a key set. The user of this crate implements it.
//! - [`check_secure_url`]: the rule for URLs of issuers.
//! - `fake_issuer` (feature `fake-issuer`): keys that sign tokens, for tests.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dray_jwt::{ClaimRules, KeyCache, KeySource, LoadCause, TokenError, TokenVerifier};
//! use dray_types::Clock;
//! use futures_util::future::BoxFuture;
//!
//! #[derive(Debug)]
//! struct EmptySource;
//!
//! impl KeySource for EmptySource {
//!     fn load_keys(&self) -> BoxFuture<'_, Result<String, LoadCause>> {
//!         Box::pin(async { Ok(r#"{"keys": []}"#.to_owned()) })
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let rules = ClaimRules {
//!     issuer: "https://login.example.org".to_owned(),
//!     audiences: vec!["files".to_owned()],
//! };
//! let keys = KeyCache::new(Arc::new(EmptySource), Clock::system());
//! let verifier = TokenVerifier::new(rules, keys, Clock::system());
//! let refused = verifier.verify("not a token").await;
//! assert!(matches!(refused, Err(TokenError::Invalid(_))));
//! # });
//! ```
//!
//! This crate does not connect to anything, issue tokens, accept shared secrets (such as `HS256`) or unsigned tokens,
//! or decide what a subject may do.

mod claims;
#[cfg(any(test, feature = "fake-issuer"))]
pub mod fake_issuer;
mod key_cache;
mod key_set;
mod secure_url;
mod signature;
mod verifier;

pub use claims::{CLOCK_LEEWAY, ClaimRules, TokenClaims};
pub use key_cache::{KeyCache, KeySource, LoadCause};
pub use secure_url::{InsecureUrl, check_secure_url};
pub use verifier::{TokenError, TokenVerifier};
