//! Plain text, code, CSV, JSON, notebooks (read-attachment 7.1 to 7.3).

pub(crate) mod source;

use super::{Converter, Hint};

/// The converter of this family for a media type.
pub(super) fn converter(_hint: &Hint) -> Option<Converter> {
    None
}
