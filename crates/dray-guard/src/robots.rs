//! Reads robots.txt and decides by it (RFC 9309).
//!
//! This module does no I/O: the fetcher requests the file, and decides about a host without one. The server may be
//! hostile, so the size of the file, the number of its rules and the time of a decision are bounded. Unknown lines are
//! skipped, as the RFC requires.
//!
//! ```
//! use dray_guard::robots::RobotsFile;
//!
//! let text = "User-agent: dray\nDisallow: /private/\nAllow: /private/public\n";
//! let file = RobotsFile::parse(text.as_bytes(), "dray");
//! assert_eq!(file.decide("/private/a.csv").refused_by, Some(2));
//! assert_eq!(file.decide("/private/public/a.csv").refused_by, None);
//! ```

use std::fmt::Write as _;

/// Most bytes that are read of a file; further bytes are ignored (RFC 9309, section 2.5).
pub const MAX_ROBOTS_BYTES: usize = 500 * 1024;
/// Most rules that are stored for one product. A decision compares the path with each of them.
const MAX_RULES: usize = 10_000;

/// How a fetch treats the robots.txt of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RobotsMode {
    /// The robots.txt is not requested.
    #[default]
    Ignore,
    /// The robots.txt is requested. A refusal is recorded, and the fetch continues.
    Report,
    /// The robots.txt is requested. A refusal ends the fetch.
    Obey,
}

impl RobotsMode {
    /// The mode with this name in the configuration and in policy files.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ignore" => Some(Self::Ignore),
            "report" => Some(Self::Report),
            "obey" => Some(Self::Obey),
            _ => None,
        }
    }
}

/// The rules of a file for one product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RobotsFile {
    rules: Vec<RobotsRule>,
}

/// The decision about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RobotsDecision {
    /// Line of the rule that refuses the path, from 1; `None` for a path that may be requested.
    pub refused_by: Option<u32>,
    /// Line of the rule that decided; `None` where none matches.
    pub line: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RobotsRule {
    line: u32,
    allows: bool,
    pattern: RobotsPattern,
}

/// A normalised pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RobotsPattern {
    text: String,
    /// Whether the path must end where the pattern does.
    is_anchored: bool,
}

/// A line that is part of a group.
enum RobotsLine<'a> {
    UserAgent(&'a [u8]),
    Rule { allows: bool, path: &'a [u8] },
}

impl RobotsFile {
    /// Reads the rules for the product `token`. They are those of all groups that name it, in upper or lower case;
    /// without such a group, those of the groups for `*`.
    pub fn parse(bytes: &[u8], token: &str) -> Self {
        // One byte more than the limit shows whether the last line is complete.
        let bytes = bytes.get(..=MAX_ROBOTS_BYTES).map_or(bytes, whole_lines);
        // Some editors write a byte order mark, which is not part of the first line.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let (mut own, mut general) = (Vec::new(), Vec::new());
        let mut has_own_group = false;
        let mut group = GroupHead::default();
        for (index, line) in split_lines(bytes).enumerate() {
            match read_line(line) {
                Some(RobotsLine::UserAgent(name)) => {
                    // After a rule, a name starts another group.
                    if group.has_rules {
                        group = GroupHead::default();
                    }
                    group.is_general |= is_any_product(name);
                    group.is_own |= is_product(name, token);
                    has_own_group |= group.is_own;
                }
                Some(RobotsLine::Rule { allows, path }) => {
                    group.has_rules = true;
                    let line = u32::try_from(index + 1).unwrap_or(u32::MAX);
                    let rule = RobotsRule::new(line, allows, path);
                    let Some(rule) = rule else { continue };
                    if group.is_own && own.len() < MAX_RULES {
                        own.push(rule.clone());
                    }
                    if group.is_general && general.len() < MAX_RULES {
                        general.push(rule);
                    }
                }
                None => {}
            }
        }
        Self {
            rules: if has_own_group { own } else { general },
        }
    }

    /// Decides about a path with its query. The rule with the longest pattern decides; of equally long patterns, a rule
    /// that allows.
    pub fn decide(&self, path_and_query: &str) -> RobotsDecision {
        // The file itself may always be requested (RFC 9309, section 2.2.2).
        let is_robots = path_and_query.split('?').next() == Some("/robots.txt");
        let path = normalize(path_and_query.as_bytes(), TextKind::Path);
        let rules = self.rules.iter().filter(|rule| rule.pattern.matches(&path));
        let decisive = rules
            .filter(|_| !is_robots)
            .max_by_key(|rule| (rule.pattern.len(), rule.allows));
        RobotsDecision {
            refused_by: decisive.filter(|rule| !rule.allows).map(|rule| rule.line),
            line: decisive.map(|rule| rule.line),
        }
    }

    /// Approximate size in memory, in bytes.
    pub fn size(&self) -> usize {
        let sizes = self.rules.iter().map(|rule| rule.pattern.text.len());
        sizes.sum::<usize>() + self.rules.len() * size_of::<RobotsRule>()
    }
}

/// Whether the names of the current group include this product or `*`, and whether a rule has followed them.
#[derive(Clone, Copy, Default)]
struct GroupHead {
    is_own: bool,
    is_general: bool,
    has_rules: bool,
}

/// The product token at the start of a `User-Agent`; empty without one (RFC 9309, section 2.2.1).
pub fn product_token(user_agent: &str) -> &str {
    let is_token =
        |character: char| character.is_ascii_alphabetic() || matches!(character, '-' | '_');
    let end = user_agent.find(|character| !is_token(character));
    user_agent
        .get(..end.unwrap_or(user_agent.len()))
        .unwrap_or_default()
}

/// The complete lines of a truncated file. A truncated rule would refuse more than the rule: `/a` refuses more than
/// `/a$`.
pub fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| matches!(byte, b'\r' | b'\n'));
    bytes.get(..end.unwrap_or_default()).unwrap_or_default()
}

/// Lines end with CR, LF or both.
fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            rest = None;
            return Some(bytes);
        };
        let (line, after) = bytes.split_at(end);
        let after = after
            .strip_prefix(b"\r\n")
            .or_else(|| after.get(1..))
            .unwrap_or_default();
        rest = Some(after);
        Some(line)
    })
}

fn read_line(line: &[u8]) -> Option<RobotsLine<'_>> {
    let line = line.split(|byte| *byte == b'#').next()?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (key, value) = line.split_at(colon);
    let value = value.get(1..)?.trim_ascii();
    let rule = |allows| RobotsLine::Rule {
        allows,
        path: value,
    };
    match key.trim_ascii().to_ascii_lowercase().as_slice() {
        b"user-agent" => Some(RobotsLine::UserAgent(value)),
        b"allow" => Some(rule(true)),
        b"disallow" => Some(rule(false)),
        // `Sitemap` and all other lines are part of no group.
        _ => None,
    }
}

/// `*`, alone or before a blank.
fn is_any_product(name: &[u8]) -> bool {
    name.strip_prefix(b"*")
        .is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
}

/// Whether a line names the product; a version after the name is ignored.
fn is_product(name: &[u8], token: &str) -> bool {
    let line_token = std::str::from_utf8(name).map(product_token);
    !token.is_empty() && line_token.is_ok_and(|line_token| line_token.eq_ignore_ascii_case(token))
}

impl RobotsRule {
    /// `None` for an empty path, which matches nothing.
    fn new(line: u32, allows: bool, path: &[u8]) -> Option<Self> {
        let (path, is_anchored) = match path.strip_suffix(b"$") {
            Some(path) => (path, true),
            None => (path, false),
        };
        if path.is_empty() {
            return None;
        }
        Some(Self {
            line,
            allows,
            pattern: RobotsPattern {
                text: normalize(path, TextKind::Pattern),
                is_anchored,
            },
        })
    }
}

impl RobotsPattern {
    /// Length by which patterns are compared.
    fn len(&self) -> usize {
        self.text.len() + usize::from(self.is_anchored)
    }

    /// Whether the pattern matches the start of a normalised path, or with an anchor the whole path. The time grows
    /// linearly with the length of both, for any number of wildcards: each part is taken at the first position where it
    /// occurs.
    fn matches(&self, path: &str) -> bool {
        let mut parts = self.text.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = path.strip_prefix(first) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return !self.is_anchored || rest.is_empty();
        };
        let query_bytes = path.len() - path.find('?').unwrap_or(path.len());
        // Two wildcards in a row mean the same as one.
        for part in parts.filter(|part| !part.is_empty()) {
            match split_after(rest, part, query_bytes) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        let has_last = |text: &str, last: &str| {
            if self.is_anchored {
                text.ends_with(last)
            } else {
                text.contains(last)
            }
        };
        let query = query_of(rest, query_bytes);
        has_last(rest, last) || query_form(last).is_some_and(|last| has_last(query, &last))
    }
}

/// Returns the text after the first occurrence of `part` in `rest`, which is the end of a path.
fn split_after<'a>(rest: &'a str, part: &str, query_bytes: usize) -> Option<&'a str> {
    if let Some((_, after)) = rest.split_once(part) {
        return Some(after);
    }
    let (_, after) = query_of(rest, query_bytes).split_once(query_form(part)?.as_str())?;
    Some(after)
}

/// The part of `rest` that lies in the query. The query is the last `query_bytes` bytes of the path.
fn query_of(rest: &str, query_bytes: usize) -> &str {
    let start = rest.len().saturating_sub(query_bytes);
    rest.get(start..).unwrap_or_default()
}

/// The form of a part of a pattern in a query, if it is another one. A part between a wildcard and the first `?` may be
/// in the path or in the query.
fn query_form(part: &str) -> Option<String> {
    let decoded = part.replace("%3A", ":").replace("%2F", "/");
    (decoded != part).then_some(decoded)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Path,
    Pattern,
}

/// Converts paths and patterns into the form in which they are compared (RFC 9309, section 2.2.2). Unreserved
/// characters are decoded. All other encoded characters stay encoded, in capitals. In a path `*` and `$` are encoded,
/// because they have a meaning in patterns. In a query `:` and `/` are equal to their encoded forms, as in the example
/// of the RFC; [`query_form`] does the same for a pattern whose wildcard stands for the `?`.
fn normalize(text: &[u8], kind: TextKind) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut in_query = false;
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let encoded = match (byte, after) {
            (b'%', [high, low, ..]) => parse_hex(*high, *low),
            _ => None,
        };
        if let Some(octet) = encoded {
            rest = after.get(2..).unwrap_or_default();
            let is_unreserved = octet.is_ascii_alphanumeric() || b"-._~".contains(&octet);
            if is_unreserved || (in_query && matches!(octet, b':' | b'/')) {
                normal.push(char::from(octet));
            } else {
                push_encoded(&mut normal, octet);
            }
        } else {
            rest = after;
            in_query |= *byte == b'?';
            let is_special = *byte == b'$' || (*byte == b'*' && kind == TextKind::Path);
            if is_special || !byte.is_ascii_graphic() {
                push_encoded(&mut normal, *byte);
            } else {
                normal.push(char::from(*byte));
            }
        }
    }
    normal
}

fn push_encoded(text: &mut String, octet: u8) {
    // Writing to a string cannot fail.
    let _ = write!(text, "%{octet:02X}");
}

fn parse_hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests;
