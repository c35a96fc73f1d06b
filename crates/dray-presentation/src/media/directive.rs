//! Directives: words in double brackets that apply to a complete message (platform-delivery 3.5).

use std::ops::Range;

/// The options of a message for all of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaDirectives {
    /// `[[audio_as_voice]]`: audio files are sent as voice messages. Other files are not affected.
    pub audio_as_voice: bool,
    /// `[[as_document]]`: all files are sent as documents, none as picture, video or audio.
    pub as_document: bool,
}

const VOICE_DIRECTIVE: &str = "[[audio_as_voice]]";
const DOCUMENT_DIRECTIVE: &str = "[[as_document]]";

impl MediaDirectives {
    /// Adds one directive.
    pub(super) fn note(&mut self, text: &str) {
        self.audio_as_voice |= text.eq_ignore_ascii_case(VOICE_DIRECTIVE);
        self.as_document |= text.eq_ignore_ascii_case(DOCUMENT_DIRECTIVE);
    }
}

/// Byte ranges of all directives in `text`, in order.
pub(super) fn directive_occurrences(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices('[').filter_map(|(offset, _)| {
        at_start(text.get(offset..)?).map(|length| offset..offset + length)
    })
}

/// The length of the directive that `text` begins with.
pub(super) fn at_start(text: &str) -> Option<usize> {
    let is_start = |word: &&str| {
        text.get(..word.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    [VOICE_DIRECTIVE, DOCUMENT_DIRECTIVE]
        .iter()
        .find(|word| is_start(word))
        .map(|word| word.len())
}

/// How many bytes at the end of `text` may become a directive.
pub(super) fn unfinished_directive_bytes(text: &str) -> usize {
    let longest = VOICE_DIRECTIVE.len() - 1;
    let starts = |tail: &str| {
        [VOICE_DIRECTIVE, DOCUMENT_DIRECTIVE].iter().any(|word| {
            tail.len() < word.len()
                && word
                    .get(..tail.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(tail))
        })
    };
    // Longest first, because a `[` inside a longer prefix must not shorten the text that is held back.
    (1..=longest.min(text.len()))
        .rev()
        .find(|length| text.get(text.len() - length..).is_some_and(starts))
        .unwrap_or(0)
}
