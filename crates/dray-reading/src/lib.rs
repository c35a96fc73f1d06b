//! Reads attachments safely: which file may be read, conversion in a worker process, and the frame that says «data,
//! not instructions».
//!
//! - [`reader::Reader`] is the tool: a [`request::Request`] in, a [`record::Record`] out, in the fixed order of steps.
//! - [`workspace::Roots`] decides which paths may be opened, and keeps them open (path traversal, TOCTOU).
//! - [`worker::Worker`] converts in a confined process; the `main` of its executable calls [`worker::child`] first.
//! - [`policy::Policy`] has the limits, [`cache::Cache`] stores conversions, [`summary`] shortens texts that are too
//!   large.
//! - [`range`] reads which part of a document is requested, [`find`] searches in it; [`ocr`] reads pictures.
//! - [`message`] has the exact texts outside a frame.
//! - [`defang::defang`] and [`frame::frame`] are applied to every text before a model gets it.
//!
//! It converts nothing itself (that is `dray-documents`), fetches nothing, and writes no file.
//!
//! ```
//! use dray_reading::defang::defang;
//! use dray_reading::frame::{self, TextOrigin};
//! use dray_reading::range::Range;
//!
//! let range = Range::parse("pages 3-5").unwrap().to_string();
//! let header = frame::header("report.pdf", "application/pdf", TextOrigin::Range(&range));
//! let framed = frame::frame(&header, &defang("Totals\u{202e} for March")).unwrap();
//! assert!(framed.starts_with("[Read attachment: report.pdf (application/pdf), pages 3-5, "));
//! assert!(framed.contains("\nTotals for March\n--END "));
//! ```

pub mod cache;
pub mod find;
pub mod frame;
pub mod message;
pub mod ocr;
pub mod policy;
pub mod range;
pub mod reader;
pub mod record;
pub mod request;
pub mod summary;
pub mod worker;
pub mod workspace;

pub use dray_presentation::defang;
