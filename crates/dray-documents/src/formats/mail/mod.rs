//! Mail: EML and MSG (read-attachment 7.10).

use super::{Converter, Hint};

/// The converter of this family for a media type.
pub(super) fn converter(_hint: &Hint) -> Option<Converter> {
    None
}
