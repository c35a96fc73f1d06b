//! A client of DIAL Core (quickapps 5), and of any model that speaks chat completions (quickapps 17).
//!
//! Keys go to the exact origin that configuration names. Nothing is followed, nothing is cached beyond what says so.
//!
//! - [`DialClient`]: files, permissions, metadata, sign-in and the code interpreter.
//! - [`chat`]: streams of chat completions, from DIAL or from anywhere.
//! - [`origin`]: what a URL is, without any request.

mod cache;
pub mod chat;
mod core;
mod error;
pub mod files;
pub mod meta;
pub mod origin;
mod retry;
pub mod signin;
mod sse;

pub use crate::core::{DialClient, DialOptions, InterpreterAction, InterpreterEndpoint};
pub use error::{Error, ErrorKind};
pub use origin::{DialFolder, DialOrigin, FileUrl, UrlClass};
