//! Parses references to files in an agent's answer: `MEDIA:` tags and directives (platform-delivery 3, R-4).
//!
//! The syntax is the one that agents were trained on, with corrections. Text may follow a path, and the longest path
//! that *exists* is used. A path that does not exist is reported. Files of any extension may be sent. Pass only an
//! assistant's own final text to this module: tags in tool output or in quoted text of a user must not count, and only
//! the caller can distinguish these.
//!
//! This module does not access a file system. A caller that cannot immediately check whether a path exists first looks up
//! the [`tag_paths`], and then calls [`extract_with`]. The time is linear in the text: every byte is examined a constant
//! number of times, and a tag has at most [`MAX_CANDIDATES`] candidates.
//!
//! ```
//! use dray_presentation::media;
//!
//! let answer = "Here it is: MEDIA:/tmp/my report.pdf\nEnjoy!";
//! let report = "/tmp/my report.pdf";
//! let found = media::extract_with(answer, |path| (path == report).then(|| path.to_owned()));
//! assert_eq!(found.files, ["/tmp/my report.pdf"]);
//! assert_eq!(found.text, "Here it is: \nEnjoy!");
//! ```

use std::collections::BTreeSet;
use std::ops::Range;

mod directive;
mod grammar;
mod hold;
mod mask;
mod prose;
mod tag;
#[cfg(test)]
mod tests;
mod tidy;

pub use directive::MediaDirectives;
pub use hold::HoldBack;
pub use prose::{RemoteImage, bare_paths, cut_spans, mentioned_paths, remote_images};
pub use tag::{MAX_CANDIDATES, MediaTag, TagCandidate};

use crate::name;

/// Most tags of one message. Further ones are left in the text.
pub const MAX_TAGS: usize = 256;

/// The files and the remaining text of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaExtraction {
    /// Files to deliver, in order, each once.
    pub files: Vec<String>,
    /// The remaining text; empty if no text message is to be sent.
    pub text: String,
    /// Names, without directories, of tagged files that do not exist; for the failure notice.
    pub notices: Vec<String>,
    /// The options for all files of the message.
    pub directives: MediaDirectives,
}

/// Like [`extract_with`], for paths that are written in full.
#[cfg(test)]
fn extract_media(text: &str, mut exists: impl FnMut(&str) -> bool) -> MediaExtraction {
    extract_with(text, |path| exists(path).then(|| path.to_owned()))
}

/// Removes the tags from an answer. `resolve` returns the full path (`~` expanded) of a path that is a file that may be
/// sent, so that two spellings of one file count as one.
pub fn extract_with(text: &str, resolve: impl FnMut(&str) -> Option<String>) -> MediaExtraction {
    let mut whole = HoldBack::new();
    whole.feed(text);
    whole.finish(resolve)
}

/// Finds the tags of an answer without checking paths. Spans are byte ranges of `text`.
#[cfg(test)]
fn scan_tags(text: &str) -> (Vec<MediaTag>, MediaDirectives) {
    let mut whole = HoldBack::new();
    whole.feed(text);
    whole.tags(true)
}

/// Every path to which the tags of an answer may refer, sorted: the paths to look up before [`extract_with`].
pub fn tag_paths(text: &str) -> Vec<String> {
    let mut whole = HoldBack::new();
    whole.feed(text);
    whole.undecided_at_end()
}

/// The files and directives that were found so far.
#[derive(Clone, Debug, Default)]
struct FoundMedia {
    files: Vec<String>,
    seen: BTreeSet<String>,
    notices: Vec<String>,
    directives: MediaDirectives,
    /// Tags decided so far, at most [`MAX_TAGS`].
    tags: usize,
    /// Bytes examined so far. Tests check with it that the work is linear.
    steps: usize,
}

impl FoundMedia {
    /// Resolves one tag. Returns the span to cut from the text.
    fn decide(
        &mut self,
        tag: &MediaTag,
        mut resolve: impl FnMut(&str) -> Option<String>,
    ) -> Option<Range<usize>> {
        // Each candidate may need a round trip to a sandbox, so the number of tags is limited.
        if self.tags >= MAX_TAGS {
            return None;
        }
        self.tags += 1;
        let existing = tag
            .candidates
            .iter()
            .find_map(|candidate| Some((candidate, resolve(&candidate.path)?)));
        if let Some((candidate, file)) = existing {
            if self.seen.insert(file.clone()) {
                self.files.push(file);
            }
            return Some(candidate.span.clone());
        }
        // Inline code without an existing file explains the syntax, so it is not changed.
        if tag.code {
            return None;
        }
        let fallback = tag.fallback.and_then(|index| tag.candidates.get(index));
        // The candidate of one word, because more words are most likely prose.
        let word = || {
            tag.candidates
                .iter()
                .find(|candidate| !candidate.path.contains(char::is_whitespace))
        };
        let named = fallback.or_else(word).or(tag.candidates.last())?;
        let name = name::shown_name(&named.path);
        if !self.notices.contains(&name) {
            self.notices.push(name);
        }
        fallback.map(|candidate| candidate.span.clone())
    }
}
