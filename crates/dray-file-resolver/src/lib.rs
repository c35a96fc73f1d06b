//! dray-file-resolver
pub mod arguments;
pub mod base64;
pub mod classify;
pub mod dial;
pub mod reply;
pub mod text;
