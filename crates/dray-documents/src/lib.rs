//! Detects the type of a document from its content and converts it to Markdown, within limits.
//!
//! - [`classify`]: the type of a file, from its content.
//! - [`limits`]: the budget in which every loop counts its work, and the limits that stop a conversion.
//! - [`markdown`]: the writer that all formats share: blocks, inline text, tables, escapes, parts of a document.
//! - [`container`]: ZIP containers within bounds.
//! - [`encoding`]: bytes to text.
//! - [`formats`]: one module for each family of formats.
//!
//! Conversion takes an open file and returns text. It opens no paths or connections and starts no processes.
//! `dray-reading` runs it in a worker process, so that a library that loops or crashes affects one file only.
//!
//! ```
//! use dray_documents::classify::classify;
//! use dray_documents::formats::convert;
//! use dray_documents::limits::Limits;
//! use dray_documents::markdown::Selection;
//!
//! let mut file = std::io::Cursor::new(b"<html><h1>Prices</h1><p>Tea: 3</p></html>");
//! let class = classify(&mut file, "prices.txt")?;
//! assert_eq!(class.mime, "text/html");
//!
//! let converted = convert(&mut file, &class.hint(), Limits::default(), Selection::All);
//! assert_eq!(converted.markdown, "# Prices\n\nTea: 3\n");
//! # Ok::<(), std::io::Error>(())
//! ```

mod attachment;
pub mod classify;
mod compound;
pub mod container;
pub mod encoding;
pub mod formats;
mod hex;
pub mod limits;
pub mod markdown;
mod symbol_font;
