//! Code that the HTTP servers of services share: conditions and byte ranges (RFC 9110).

mod ranges;

pub use ranges::{ByteRange, RangeNotSatisfiable, byte_range, field_has_etag, text_field};
