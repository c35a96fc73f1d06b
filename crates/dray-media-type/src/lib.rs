//! Media types (RFC 9110, section 8.3.1): their strings, their file extensions, and detection by content.
//!
//! - [`essence`], [`parameter`] and [`matches_pattern`] read the text of a media type.
//! - [`type_of_name`] and [`usual_extension`] look into the one table of media types and extensions.
//! - [`kind::detect_kind`] finds a [`kind::ContentKind`] from the first bytes of a file.
//! - [`names`] has the media types that document conversion distinguishes.
//! - [`lists`] holds the extensions that a specification lists separately, each with its section.
//!
//! Every function takes values and returns values. No function opens a file. The type in a name or a header is an
//! unverified claim; only the content shows the type of a file.
//!
//! ```
//! use dray_media_type::{essence, kind, type_of_name, usual_extension};
//!
//! assert_eq!(essence("Text/HTML; charset=utf-8"), "text/html");
//! assert_eq!(type_of_name("notes/a.MD"), Some("text/markdown"));
//! assert_eq!(usual_extension("image/jpeg"), Some("jpg"));
//! let found = kind::detect_kind(b"%PDF-1.7\n", "invoice.png", 9);
//! assert_eq!(found.media_type, "application/pdf");
//! assert!(found.disagrees);
//! ```

mod extension;
pub mod kind;
pub mod lists;
pub mod names;
mod table;
mod value;

pub use extension::{extension_of, extension_start};
pub use table::{text_type, type_of_extension, type_of_name, usual_extension};
pub use value::{essence, matches_pattern, parameter};
