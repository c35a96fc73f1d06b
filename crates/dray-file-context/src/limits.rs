//! The numbers of the contract (agent-file-context 21), and those that this project chose.

use std::time::Duration;

/// Files of one message when the app sets none, or zero.
pub(crate) const DEFAULT_MAX_FILES: usize = 20;
/// Lifetime of a link to a stored file, unless the caller chooses another one.
pub const SIGNED_URL_TTL: Duration = Duration::from_hours(2);
/// Characters of text of all files of one reading call together.
pub const DEFAULT_READ_BUDGET_CHARS: usize = 60_000;
/// Smallest budget that a caller may request, in characters.
pub(crate) const MIN_READ_BUDGET: usize = 256;
/// Ids that one reading call may name. More are refused, not read.
pub(crate) const MAX_READ_IDS: usize = 200;
/// Most ids that the response to an unknown id lists.
pub(crate) const MAX_LISTED_IDS: usize = 50;
/// Most bytes of a cleaned file name, which is the limit of most file systems for one name.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Most characters of the name of a file that was left out.
pub(crate) const MAX_LEFT_OUT_NAME_CHARS: usize = 200;
/// Depth to which arguments are searched for ids. Deeper values are not changed.
pub(crate) const MAX_ARGUMENT_DEPTH: usize = 128;

/// The effective limit: zero counts as unset and means [`DEFAULT_MAX_FILES`].
pub(crate) fn max_files(setting: usize) -> usize {
    if setting == 0 {
        DEFAULT_MAX_FILES
    } else {
        setting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_files_means_twenty() {
        assert_eq!(max_files(0), 20);
        assert_eq!(max_files(3), 3);
    }
}
