//! Test support: small real things that misbehave on purpose. Nothing in here is part of the product.

pub mod dial;
pub mod dns;
pub mod docker;
pub mod files;
pub mod http;
pub mod nats;
pub mod python;
pub mod rehearsal;
pub mod s3;
pub mod sshd;
pub mod tls;
mod wait;

pub use wait::{eventually, eventually_within};
