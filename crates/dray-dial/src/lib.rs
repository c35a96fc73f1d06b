//! A client of DIAL Core (quickapps 5), and of any model with a chat completions API (quickapps 17).
//!
//! Keys go to the exact origin that the configuration names. Redirects are not followed, and only metadata are
//! cached.
//!
//! - [`DialClient`]: files, permissions, metadata, sign-in and the code interpreter.
//! - [`DialPort`]: what other crates need of it, as a trait; `fake` (feature `fake`) is an implementation in memory for
//!   tests.
//! - [`chat`]: streams of chat completions, from DIAL or from anywhere.
//! - [`inline_bytes`]: the content that an attachment carries inline; [`decode_data_url`]: that of a `data:` URL.
//! - [`origin`]: the classification of a URL, without a request.
//!
//! It decides nothing about files that people may read: DIAL Core checks every key itself.
//!
//! ```
//! use dray_dial::{DialOrigin, UrlClass};
//!
//! let origin = DialOrigin::parse("https://core.example/").unwrap();
//! assert_eq!(origin.url("v1/bucket"), "https://core.example/v1/bucket");
//! let file = origin.file("https://core.example/v1/files/B/a%20b.pdf").unwrap();
//! assert_eq!(file.as_str(), "files/B/a%20b.pdf");
//! let other_port = "https://core.example:8443/v1/files/B/a.pdf";
//! assert_eq!(origin.classify(other_port), UrlClass::External);
//! ```

mod cache;
pub mod chat;
mod core;
mod data_url;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
pub mod files;
mod inline;
pub mod meta;
pub mod origin;
mod port;
mod retry;
pub mod signin;
mod user;

pub use crate::core::{DialClient, DialOptions, InterpreterAction, InterpreterEndpoint};
pub use data_url::{InlineData, InvalidDataUrl, decode_base64, decode_data_url};
pub use error::{Error, ErrorKind};
pub use inline::{decode_attachment_data, inline_bytes};
pub use origin::{DialFolder, DialOrigin, FileUrl, InvalidOrigin, UrlClass};
pub use port::{ChunkStream, DialPort};
pub use user::UserInfo;
