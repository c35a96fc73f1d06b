//! Files that are mentioned without a tag: bare paths in prose, and pictures on other servers (platform-delivery 3.6).

use std::ops::Range;

use super::grammar::{has_known_extension, is_boundary, path_start};
use super::mask::LineMasks;
use super::tidy::WhitespaceTidier;

/// Most bytes of a path, and of an address.
const MAX_LENGTH_BYTES: usize = 4096;

/// Most paths or pictures of one message.
const MAX_MENTIONS: usize = 64;

/// Extensions of pictures in addresses.
const PICTURE_EXTENSIONS: [&str; 5] = [".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Hosts whose addresses are pictures even without the extension of a picture.
const PICTURE_HOSTS: [&str; 3] = ["fal.media", "fal-cdn", "replicate.delivery"];

/// A picture on another server that an answer refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteImage {
    /// URL of the picture, not checked yet.
    pub url: String,
    /// Alternative text; may be empty.
    pub alt: String,
    /// The range of the mention in the text, which is cut when the picture was sent.
    pub span: Range<usize>,
}

/// Local paths in prose: they begin at a word boundary, end with a known extension, are outside of code, and exist.
/// Each appears once, in order.
///
/// Pass the text that [`super::extract_with`] returns for a final answer that was not streamed. A streamed answer must
/// not be scanned a second time, because that would send a path that the agent only mentioned. `exists` is called for
/// the [`mentioned_paths`], at most once for each.
pub fn bare_paths(text: &str, mut exists: impl FnMut(&str) -> bool) -> Vec<String> {
    let mut paths = mentioned_paths(text);
    paths.retain(|path| exists(path));
    paths
}

/// The paths that [`bare_paths`] checks, each once, in order, at most 64: for callers that first have to look up which
/// of them exist.
pub fn mentioned_paths(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, segment) in unmasked_text(text) {
        let mut before = None;
        let mut skip = 0;
        for (offset, character) in segment.char_indices() {
            let last = before.replace(character);
            if offset < skip || !starts_path(last, segment.get(offset..).unwrap_or_default()) {
                continue;
            }
            let length = path_length(segment.get(offset..).unwrap_or_default());
            skip = offset + length;
            let Some(path) = segment
                .get(offset..skip)
                .filter(|path| has_known_extension(path))
            else {
                continue;
            };
            // Paths that do not exist count too, because each lookup may be a round trip to a sandbox.
            if found.len() >= MAX_MENTIONS {
                return found;
            }
            if !found.iter().any(|known| known == path) {
                found.push(path.to_owned());
            }
        }
    }
    found
}

/// Remote pictures: `![alt](http…)` whose address looks like a picture, and `<img src="http…">`,
/// both outside of code.
pub fn remote_images(text: &str) -> Vec<RemoteImage> {
    let mut found = Vec::new();
    for (start, segment) in unmasked_text(text) {
        let mut skip = 0;
        for (offset, _) in segment.match_indices(['!', '<']) {
            // Mentions inside a found one are skipped, so that nothing counts twice and the time does not grow with
            // nesting.
            if offset < skip || found.len() >= MAX_MENTIONS {
                continue;
            }
            let window = segment
                .get(offset..segment.floor_char_boundary(offset.saturating_add(MAX_LENGTH_BYTES)))
                .unwrap_or_default();
            let image = if window.starts_with('!') {
                parse_markdown_image(window)
            } else {
                parse_img_element(window)
            };
            if let Some((url, alt, length)) = image {
                skip = offset + length;
                found.push(RemoteImage {
                    url: url.to_owned(),
                    alt: alt.to_owned(),
                    span: start + offset..start + skip,
                });
            }
        }
    }
    found
}

/// Cuts the spans of [`remote_images`] out of a text: in order, each within one line. White space is reduced as after
/// the removal of tags (platform-delivery 3.6).
pub fn cut_spans(text: &str, spans: &[Range<usize>]) -> String {
    let (mut masks, mut tidy) = (LineMasks::default(), WhitespaceTidier::default());
    let mut spans = spans.iter().peekable();
    let (mut shown, mut start) = (String::new(), 0);
    for line in text.split_inclusive('\n') {
        masks.mask_line(line);
        let fenced = masks.in_fence();
        let end = start + line.len();
        let mut offset = start;
        while let Some(span) = spans.next_if(|span| span.start < end) {
            let before = text.get(offset..span.start).unwrap_or_default();
            tidy.push(before, fenced, &mut shown);
            offset = offset.max(span.end);
        }
        let rest = text.get(offset..end).unwrap_or_default();
        tidy.push(rest, fenced, &mut shown);
        start = end;
    }
    shown
}

/// The parts of a text that are not masked, with their start. Each is within one line.
fn unmasked_text(text: &str) -> Vec<(usize, &str)> {
    let (mut masks, mut start, mut segments) = (LineMasks::default(), 0, Vec::new());
    for line in text.split_inclusive('\n') {
        let mask = masks.mask_line(line);
        if !mask.whole {
            // Code and strings may overlap, so spans are sorted by their start, and `get` returns `None` for a reversed
            // range.
            let mut spans = [mask.code, mask.strings].concat();
            spans.sort_unstable_by_key(|span| span.start);
            let mut offset = 0;
            for span in spans {
                segments.extend(
                    line.get(offset..span.start)
                        .map(|segment| (start + offset, segment)),
                );
                offset = offset.max(span.end);
            }
            segments.extend(line.get(offset..).map(|segment| (start + offset, segment)));
        }
        start += line.len();
    }
    segments
}

/// Whether a path begins here: not inside a word, an address or another path.
fn starts_path(before: Option<char>, rest: &str) -> bool {
    let inside = before.is_some_and(|last| {
        last.is_alphanumeric() || matches!(last, '/' | '\\' | ':' | '.' | '_' | '~')
    });
    !inside && path_start(rest).is_some()
}

/// The length of the path without spaces that `rest` begins with.
fn path_length(rest: &str) -> usize {
    let start = path_start(rest).unwrap_or_default();
    let window = rest
        .get(..rest.floor_char_boundary(MAX_LENGTH_BYTES))
        .unwrap_or_default();
    let mut ends = window
        .char_indices()
        .map(|(offset, _)| offset)
        .skip_while(|offset| *offset < start);
    ends.find(|offset| {
        is_boundary(
            rest.get(..*offset).unwrap_or_default(),
            rest.get(*offset..).unwrap_or_default(),
        )
    })
    .unwrap_or(window.len())
}

/// `![alt](url)` or `![alt](url "title")`: address, text and length.
fn parse_markdown_image(text: &str) -> Option<(&str, &str, usize)> {
    let inner = text.strip_prefix("![")?;
    // A bracket inside would begin another mention.
    let (alt, rest) = inner.split_at_checked(inner.find(['[', ']'])?)?;
    let target = rest
        .strip_prefix("](")
        .filter(|target| is_http(target.trim_start()))?;
    let (target, _) = target.split_once(')')?;
    let url = target.split_whitespace().next()?;
    let length = "![".len() + alt.len() + "](".len() + target.len() + ")".len();
    looks_like_picture(url).then_some((url, alt, length))
}

/// `<img … src="url" …>`: address, text and length.
fn parse_img_element(text: &str) -> Option<(&str, &str, usize)> {
    let (name, inner) = text.split_at_checked("<img".len())?;
    let (inner, end) = inner.split_at_checked(inner.find(['<', '>'])?)?;
    let is_image = name.eq_ignore_ascii_case("<img") && inner.starts_with(char::is_whitespace);
    if !is_image || !end.starts_with('>') {
        return None;
    }
    let url = attribute_value(inner, "src").filter(|url| is_http(url))?;
    let alt = attribute_value(inner, "alt").unwrap_or_default();
    Some((url, alt, name.len() + inner.len() + ">".len()))
}

/// The value of an attribute, quoted or not.
fn attribute_value<'text>(inner: &'text str, name: &str) -> Option<&'text str> {
    // ASCII lower case keeps every byte offset, so offsets in `lower` are valid in `inner`.
    let lower = inner.to_ascii_lowercase();
    let offset = lower
        .match_indices(name)
        .map(|(offset, _)| offset)
        .find(|offset| {
            let before = inner
                .get(..*offset)
                .and_then(|before| before.chars().next_back());
            before
                .is_some_and(|before| before.is_whitespace() || matches!(before, '"' | '\'' | '/'))
                && inner
                    .get(offset + name.len()..)
                    .is_some_and(|after| after.trim_start().starts_with('='))
        })?;
    let value = inner
        .get(offset + name.len()..)?
        .trim_start()
        .strip_prefix('=')?
        .trim_start();
    match value.chars().next()? {
        quote @ ('"' | '\'') => value.get(1..)?.split(quote).next(),
        _ => value.split_whitespace().next(),
    }
}

fn is_http(url: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        url.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && url.len() > scheme.len()
    })
}

/// Whether the path has the extension of a picture, or the host is in the list.
fn looks_like_picture(url: &str) -> bool {
    let lower = url.to_ascii_lowercase();
    let path = lower.split(['?', '#']).next().unwrap_or_default();
    let host = path
        .split("//")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_default();
    // This only guesses what is a picture. The egress policy decides whether the URL may be fetched (SSRF).
    PICTURE_EXTENSIONS
        .iter()
        .any(|extension| path.ends_with(extension))
        || PICTURE_HOSTS.iter().any(|known| host.contains(known))
}
