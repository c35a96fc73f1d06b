//! The numbers of the contract (agent-file-context 21), and those that this project chose.

use std::time::Duration;

/// Files of one message when the app sets none, or zero.
pub const DEFAULT_MAX_FILES: usize = 20;
/// Rounds of history that an app starts with; a round is a question and its answer.
pub const DEFAULT_HISTORY_ROUNDS: u32 = 6;
/// Largest file that is fetched, in bytes.
pub const MAX_FILE_BYTES: u64 = 1000 * 1024 * 1024;
/// Longest download of an external file.
pub const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(3);
/// Time for which parsed text may be kept after it was written.
pub const PARSED_TEXT_TTL: Duration = Duration::from_mins(20);
/// Time for which a URL that was signed for one run is valid.
pub const SIGNED_URL_TTL: Duration = Duration::from_hours(2);
/// Time for which links to images of own documents are valid.
pub const OWN_IMAGE_TTL: Duration = Duration::from_hours(90 * 24);
/// Time for which links to images of external documents are valid.
pub const EXTERNAL_IMAGE_TTL: Duration = Duration::from_hours(24);
/// Bytes of a body that a type probe reads.
pub const MAX_PROBE_BYTES: u64 = 8192;
/// Time for both requests of a type probe.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Most type probes that run concurrently.
pub const MAX_CONCURRENT_PROBES: usize = 5;
/// Characters that count as one token in estimates of sizes.
pub const CHARS_PER_TOKEN: usize = 3;
/// Least number of tokens from which the limits of tool results are computed.
pub const MIN_CONTEXT_TOKENS: usize = 4096;
/// Characters of text of all files of one reading call together.
pub const DEFAULT_READ_BUDGET_CHARS: usize = 60_000;
/// Smallest budget that a caller may request, in characters.
pub const MIN_READ_BUDGET: usize = 256;
/// Characters of the beginning and of the end of a file that the record of a node contains.
pub const MAX_PREVIEW_CHARS: usize = 1000;
/// Ids that one reading call may name. More are refused, not read.
pub const MAX_READ_IDS: usize = 200;
/// Most ids that the response to an unknown id lists.
pub const MAX_LISTED_IDS: usize = 50;
/// Most bytes of a cleaned file name, which is the limit of most file systems for one name.
pub const MAX_NAME_BYTES: usize = 255;
/// Most characters of the name of a file that was left out.
pub const MAX_LEFT_OUT_NAME_CHARS: usize = 200;
/// Depth to which arguments are searched for ids. Deeper values are not changed.
pub const MAX_ARGUMENT_DEPTH: usize = 128;

/// The effective limit: zero counts as unset and means [`DEFAULT_MAX_FILES`].
pub fn max_files(setting: usize) -> usize {
    if setting == 0 {
        DEFAULT_MAX_FILES
    } else {
        setting
    }
}

/// Characters of a tool result that stay untouched: a fifth of the model's context, at least
/// [`MIN_CONTEXT_TOKENS`] tokens, but never more than the context.
pub fn max_unchanged_chars(context_tokens: usize) -> usize {
    let fifth = context_tokens / 5;
    // The context is applied last, because it may be smaller than the floor (12.5).
    fifth.max(MIN_CONTEXT_TOKENS).min(context_tokens) * CHARS_PER_TOKEN
}

/// Characters of a tool result above which it has to be made shorter: half of the context, with the same bounds.
pub fn compression_threshold_chars(context_tokens: usize) -> usize {
    let half = context_tokens / 2;
    // The context is applied last here as well (12.5).
    half.max(MIN_CONTEXT_TOKENS).min(context_tokens) * CHARS_PER_TOKEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_files_means_twenty() {
        assert_eq!(max_files(0), 20);
        assert_eq!(max_files(3), 3);
    }

    #[test]
    fn limits_of_results_have_a_floor_and_never_exceed_the_context() {
        assert_eq!(max_unchanged_chars(100_000), 60_000);
        assert_eq!(compression_threshold_chars(100_000), 150_000);
        assert_eq!(max_unchanged_chars(8_192), MIN_CONTEXT_TOKENS * 3);
        assert_eq!(compression_threshold_chars(1_000), 3_000);
    }
}
