//! Limits the size of results, which a model has to read.
//!
//! Tokens are estimated as one for every three bytes of UTF-8. Tokenizers of current models take about four bytes of
//! English and three of code, so the estimate is too high rather than too low. A result carries its text twice, as text
//! for people and models and as structured content for programs; clients show one of them, and both count.

use dray_types::Fault;

use crate::failure;

/// Largest result unless the caller requests more, in tokens.
pub(crate) const DEFAULT_RESULT_TOKENS: u64 = 20_000;
/// Smallest limit that a caller may set; less leaves no room for the frame of a document.
pub(crate) const MIN_RESULT_TOKENS: u64 = 1_000;
/// Largest limit that a caller may set.
pub(crate) const MAX_RESULT_TOKENS: u64 = 100_000;
/// Bytes of UTF-8 that count as one token.
pub(crate) const BYTES_PER_TOKEN: u64 = 3;
/// Part of a result that is kept free for names, markers and the next call, in bytes per copy of the text.
const RESERVED_BYTES: u64 = 1_200;

/// Most bytes of document text in one result with this number of tokens.
///
/// # Errors
///
/// A limit that is out of range.
pub(crate) fn text_bytes(max_tokens: Option<u64>) -> Result<u64, Fault> {
    let tokens = max_tokens.unwrap_or(DEFAULT_RESULT_TOKENS);
    if !(MIN_RESULT_TOKENS..=MAX_RESULT_TOKENS).contains(&tokens) {
        return Err(failure::invalid(
            format!("`max_tokens` is {tokens}."),
            format!("Give a number from {MIN_RESULT_TOKENS} to {MAX_RESULT_TOKENS}."),
        ));
    }
    // A sixteenth for the escapes of JSON: line ends and quotation marks take two bytes there.
    let bytes_per_copy = tokens * BYTES_PER_TOKEN / 2;
    Ok((bytes_per_copy - bytes_per_copy / 16)
        .saturating_sub(RESERVED_BYTES)
        .max(256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_range_is_refused_with_the_range() {
        assert!(text_bytes(None).unwrap() > 20_000);
        for tokens in [0, 999, 100_001, u64::MAX] {
            let fault = text_bytes(Some(tokens)).unwrap_err();
            assert!(fault.advice.contains("1000 to 100000"), "{fault:?}");
        }
    }
}
