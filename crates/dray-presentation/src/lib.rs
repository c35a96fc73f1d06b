//! Rules about files as people see them: what a file is called, how its size reads, the sentences that go with it, and
//! how an agent names files in its answers. What a file is, `dray_media_type::kind` detects.
//!
//! - [`name`] makes names safe to keep, to show, and to put into prompts, headers and object keys.
//! - [`media::extract_media`] and [`media::HoldBack`] take `MEDIA:` tags out of an answer, whole or streamed.
//! - [`line`] writes and reads the lines by which an agent learns of uploads.
//! - [`caption::fit_caption`] and [`notice::failure_notice`] make the texts that people get, with [`size`] in them.
//!
//! Every function takes values and returns values. Nothing here opens a file, asks a clock or waits: a caller that knows
//! which paths exist passes a closure. A clean name is not a safe path; the sandbox and the store check paths.
//!
//! ```
//! use dray_presentation::{name, size};
//!
//! assert_eq!(name::clean_name("../../etc/report.csv"), "report.csv");
//! assert_eq!(size::human_size(43_008), "42 KB");
//! ```

pub mod caption;
mod chars;
pub mod line;
pub mod media;
pub mod name;
pub mod notice;
pub mod size;
