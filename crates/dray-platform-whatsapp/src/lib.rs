//! `WhatsApp`, in two ways (platform-delivery 7.5): the Cloud API, and a local bridge to the account of a phone.
//!
//! - [`CloudPlatform`]: one business phone number, as `Platform` and `InboundSource`.
//! - [`BridgePlatform`]: a bridge process on loopback, as `Platform` and `InboundSource`.
//! - [`CloudOptions`], [`BridgeOptions`]: their configuration.
//! - `fake_server` (feature `fake-server`): servers with the same protocols, for tests and the demo.
//!
//! What it does not do: it has no state, and retries no request whose message may already be visible. It neither starts
//! the bridge process nor converts files.
//!
//! ```rust
//! use dray_platform::Platform as _;
//! use dray_platform_whatsapp::{CloudOptions, CloudPlatform};
//! use dray_types::Secret;
//!
//! let options = CloudOptions {
//!     token: Secret::new("example"),
//!     phone_number_id: "106540352242922".to_owned(),
//!     ..CloudOptions::default()
//! };
//! let number = CloudPlatform::new("", options)?;
//! assert_eq!(number.name(), "whatsapp");
//! # Ok::<(), dray_platform::PlatformError>(())
//! ```

mod bridge;
mod cloud;
#[cfg(any(test, feature = "fake-server"))]
pub mod fake_server;
mod kinds;
#[cfg(test)]
mod tests;

pub use bridge::{BridgeOptions, BridgePlatform};
pub use cloud::{CloudOptions, CloudPlatform};

/// The platform's name in targets.
const PLATFORM_NAME: &str = "whatsapp";
