//! Code that the HTTP servers of services share: conditions and byte ranges (RFC 9110), and names of downloads.

mod disposition;
mod ranges;

pub use disposition::{download_disposition, inline_disposition};
pub use ranges::{ByteRange, RangeNotSatisfiable, byte_range, has_etag, text_field};
