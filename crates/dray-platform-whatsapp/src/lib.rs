//! `WhatsApp`, two ways (platform-delivery 7.5): the Cloud API, and a local bridge to a phone's account.
//!
//! - [`CloudPlatform`]: one business phone number, as `Platform` and `Inbox`.
//! - [`BridgePlatform`]: a bridge process on loopback, as `Platform` and `Inbox`.
//! - [`CloudOptions`], [`BridgeOptions`]: what an operator sets about them.
//! - `double` (feature `double`): servers that speak the same wires, for tests and the demo.
//!
//! What it does not do: it keeps no state and tries nothing again that may be visible.

mod bridge;
mod cloud;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod kinds;
#[cfg(test)]
mod tests;

pub use bridge::{BridgeOptions, BridgePlatform};
pub use cloud::{CloudOptions, CloudPlatform};

/// The platform's name in targets.
const PLATFORM_NAME: &str = "whatsapp";
