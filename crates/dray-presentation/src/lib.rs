//! Rules for the presentation of files: names, sizes, sentences about them, and how an agent refers to files in its
//! answers. `dray_media_type::kind` detects the type of a file.
//!
//! - [`name`] makes names safe for files, displays, prompts, headers and object keys.
//! - [`media::extract_with`] and [`media::HoldBack`] remove `MEDIA:` tags from an answer, complete or streamed.
//! - [`mod@line`] writes the lines that list uploads for an agent.
//! - [`defang::defang`] and [`escape::escape_path`] make texts and paths of others safe for a model.
//! - [`caption::fit_caption`] and [`notice::failure_notice`] make the texts for people; [`size`] formats sizes.
//!
//! The functions do no I/O: to find out which paths exist, they call a closure of the caller. A clean name is not a
//! safe path; the sandbox and the store check paths.
//!
//! ```
//! use dray_presentation::{name, size};
//!
//! assert_eq!(name::clean_name("../../etc/report.csv"), "report.csv");
//! assert_eq!(size::human_size(43_008), "42 KB");
//! ```

pub mod caption;
mod chars;
pub mod defang;
pub mod escape;
pub mod line;
pub mod media;
pub mod name;
pub mod notice;
pub mod size;
