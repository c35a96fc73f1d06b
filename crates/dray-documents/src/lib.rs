//! Documents to Markdown: what a file is by its bytes, and what it says, within limits.
//!
//! - [`classify`]: what a file is, by its bytes.
//! - [`limits`]: the budget that every loop counts into, and what stops a conversion.
//! - [`markdown`]: the writer that all formats share: blocks, inline text, tables, escapes, parts of a document.
//! - [`container`]: ZIP containers within bounds.
//! - [`encoding`]: bytes to text.
//! - [`formats`]: one module for each family of formats.
//!
//! Conversion takes an open file and gives text. It opens no path, no connection and no process; a file that
//! drives a library mad is contained by running it in a worker process, which `dray-reading` does.

pub mod classify;
mod compound;
pub mod container;
pub mod encoding;
pub mod formats;
mod hex;
pub mod limits;
pub mod markdown;
