//! HTML and XML (read-attachment 7.4, 7.5).

use super::{Converter, Hint};

/// The converter of this family for a media type.
pub(super) fn converter(_hint: &Hint) -> Option<Converter> {
    None
}
