//! Patterns of paths, and the readings of a path by different servers.

use super::pattern::{matches_glob, matches_sequence};

/// Letters that some servers ignore at the end of a segment.
const IGNORED_AT_END: [char; 2] = ['.', ' '];

/// A pattern of paths: `*` stands for text within a segment, `**` for any number of whole segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    segments: Vec<String>,
    /// Segments in lower case, without a slash at the end.
    folded: Vec<String>,
    /// Whether a segment has parameters.
    has_parameters: bool,
}

impl PathPattern {
    /// Reads a pattern; it is written without percent-encoding.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let path = text.strip_prefix('/')?;
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        let is_valid = segments.iter().all(|segment| {
            (segment == "**" || !segment.contains("**"))
                && !matches!(segment.as_str(), "." | "..")
                && !segment.contains(['%', '?', '#', '\\'])
                && segment.chars().all(|letter| !letter.is_control())
        });
        let folded = without_last_slash(&text.to_lowercase()).to_owned();
        let folded = folded.strip_prefix('/').unwrap_or(&folded).split('/');
        is_valid.then(|| Self {
            folded: folded.map(str::to_owned).collect(),
            has_parameters: text.contains(';'),
            segments,
        })
    }

    /// Whether the path matches as it is written here.
    fn matches(&self, path: &str) -> bool {
        matches_segments(&self.segments, path)
    }
}

fn matches_segments(pattern: &[String], path: &str) -> bool {
    let segments: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    matches_sequence(
        pattern,
        &segments,
        |pattern| pattern == "**",
        |pattern, segment| matches_glob(pattern.as_bytes(), segment.as_bytes()),
    )
}

/// The patterns of the paths of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathList(Vec<PathPattern>);

impl FromIterator<PathPattern> for PathList {
    fn from_iter<T: IntoIterator<Item = PathPattern>>(patterns: T) -> Self {
        Self(patterns.into_iter().collect())
    }
}

impl PathList {
    /// Whether a rule that allows these paths allows `path`: both as it is written, and as read by a server that
    /// removes parameters from its segments. A pattern that has `;` itself is about the written path alone.
    pub(super) fn allows(&self, path: &ReadablePath) -> bool {
        let matches_plain = || {
            let plain = path.plain.as_ref();
            plain.is_none_or(|plain| self.0.iter().any(|pattern| pattern.matches(plain)))
        };
        self.0.iter().any(|pattern| {
            pattern.matches(&path.written) && (pattern.has_parameters || matches_plain())
        })
    }

    /// Whether a rule that denies these paths denies `path`: in any of its readings.
    pub(super) fn denies(&self, path: &ReadablePath) -> bool {
        self.0.iter().any(|pattern| {
            pattern.matches(&path.written) || matches_segments(&pattern.folded, &path.folded)
        })
    }
}

/// A path without percent-encoding, in the readings of different servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadablePath {
    written: String,
    /// The path without the parameters of segments, which Java servers remove (`/a;v=1/b` as `/a/b`; RFC 3986, section
    /// 3.3). `None` if it has no parameters.
    plain: Option<String>,
    /// The path as read by a server that ignores case, a dot or blank at the end of a segment (Windows), and a slash at
    /// the end.
    folded: String,
}

impl ReadablePath {
    /// Reads the path of a canonical URL. `None` when servers can read it in ways that no pattern covers: it has an
    /// encoded separator, a percent sign that would be decoded again, an empty or dot segment (even with parameters,
    /// such as `..;`, or with blanks, such as `..%20`), a control character, or bytes that are not UTF-8.
    pub fn of(path: &str) -> Option<Self> {
        let written = decode_path(path)?;
        let has_control = written.chars().any(char::is_control) || written.contains('\\');
        if has_control || !is_clear(&written) {
            return None;
        }
        let plain = written.contains(';').then(|| without_parameters(&written));
        if plain.as_ref().is_some_and(|plain| !is_clear(plain)) {
            return None;
        }
        let unparameterized = plain.as_ref().unwrap_or(&written);
        if unparameterized.split('/').any(is_dots_and_blanks) {
            return None;
        }
        let folded = fold_path(unparameterized);
        Some(Self {
            written,
            plain,
            folded,
        })
    }
}

/// Whether no segment is `.`, `..` or empty. The last one may be empty, because the path of a directory ends so.
fn is_clear(path: &str) -> bool {
    let Some(segments) = path.strip_prefix('/') else {
        return false;
    };
    let count = segments.split('/').count();
    segments.split('/').enumerate().all(|(index, segment)| {
        !matches!(segment, "." | "..") && (!segment.is_empty() || index + 1 == count)
    })
}

/// Whether a segment has only dots and blanks. A server that ignores some of them at the end of a segment reads `. ` or
/// `...` as a dot segment.
fn is_dots_and_blanks(segment: &str) -> bool {
    !segment.is_empty() && segment.trim_end_matches(IGNORED_AT_END).is_empty()
}

fn without_parameters(path: &str) -> String {
    let segments = path.split('/');
    let plain = segments.map(|segment| segment.split(';').next().unwrap_or_default());
    plain.collect::<Vec<_>>().join("/")
}

fn fold_path(path: &str) -> String {
    let lower = path.to_lowercase();
    let segments = lower.split('/');
    let folded = segments.map(|segment| segment.trim_end_matches(IGNORED_AT_END));
    without_last_slash(&folded.collect::<Vec<_>>().join("/")).to_owned()
}

fn without_last_slash(path: &str) -> &str {
    match path.strip_suffix('/') {
        None | Some("") => path,
        Some(rest) => rest,
    }
}

/// Decodes percent-encoding; `None` for an encoded `/`, `\` or `%`, and for bytes that are not UTF-8.
fn decode_path(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let [high, low, after @ ..] = tail else {
            return None;
        };
        let byte = (hex_digit(*high)? << 4) | hex_digit(*low)?;
        if matches!(byte, b'/' | b'\\' | b'%') {
            return None;
        }
        decoded.push(byte);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
