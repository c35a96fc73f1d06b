//! Plain text, code, CSV and TSV, JSON and its kin, notebooks (read-attachment 7.1 to 7.3).

use super::{Converter, Hint};

/// The converter of this family for a media type.
pub(super) fn converter(_hint: &Hint) -> Option<Converter> {
    None
}
