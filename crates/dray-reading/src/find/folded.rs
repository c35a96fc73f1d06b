//! A text as a search compares it: lower case, single spaces, with or without the marks of Markdown.

use std::ops::Range;

/// Longest mark of a footnote, in bytes.
const MAX_FOOTNOTE_BYTES: usize = 24;
/// Longest target of a link, in bytes, with its brackets.
const MAX_TARGET_BYTES: usize = 9000;

/// A folded text, and where it comes from.
#[derive(Debug, Default)]
pub(super) struct FoldedText {
    text: String,
    /// Runs of the source: the offset of the first byte in the folded text, and in the source.
    runs: Vec<(usize, usize)>,
}

impl FoldedText {
    /// A part of a source as it is written, marks included.
    pub(super) fn verbatim(source: &str, part: &Range<usize>) -> Self {
        let mut folded = Self::default();
        let text = source.get(part.clone()).unwrap_or_default();
        for (at, character) in text.char_indices() {
            folded.push(character, part.start + at);
        }
        folded
    }

    /// A part of a source as people read it: without emphasis, code ticks, escapes, targets of links, and marks of
    /// footnotes and quotes, and with a space for `<br>`.
    pub(super) fn plain(source: &str, part: &Range<usize>) -> Self {
        let text = source.get(part.clone()).unwrap_or_default();
        PlainText {
            text,
            start: part.start,
            links: find_links(text),
            code: 0,
            is_line_start: true,
            folded: Self::default(),
        }
        .fold()
    }

    /// The places of a folded query, in the source.
    pub(super) fn hits(&self, query: &str, source: &str) -> Vec<Range<usize>> {
        let last_length = query.chars().next_back().map_or(0, char::len_utf8);
        let character_at = |at: usize| source.floor_char_boundary(self.source_offset(at));
        self.text
            .match_indices(query)
            .map(|(at, _)| {
                let last = character_at(at + query.len() - last_length);
                let last_character = source.get(last..).and_then(|rest| rest.chars().next());
                character_at(at)..last + last_character.map_or(0, char::len_utf8)
            })
            .collect()
    }

    fn push(&mut self, character: char, offset: usize) {
        let is_space = character.is_whitespace();
        if is_space && (self.text.is_empty() || self.text.ends_with(' ')) {
            return;
        }
        let at = self.text.len();
        let is_next = |run: &(usize, usize)| run.1 + (at - run.0) == offset;
        if !self.runs.last().is_some_and(is_next) {
            self.runs.push((at, offset));
        }
        if is_space {
            self.text.push(' ');
        } else {
            self.text.extend(lower_case(character));
        }
    }

    fn source_offset(&self, at: usize) -> usize {
        let later = self.runs.partition_point(|run| run.0 <= at);
        let run = later.checked_sub(1).and_then(|index| self.runs.get(index));
        run.map_or(0, |run| run.1 + (at - run.0))
    }
}

/// The lower case of a character, regardless of its place in a word: a sigma at the end has another form. A raised
/// character is found as the plain one, because few people can type it.
pub(super) fn lower_case(character: char) -> impl Iterator<Item = char> {
    match character {
        'ς' => 'σ',
        '⁰' => '0',
        '¹' => '1',
        '²' => '2',
        '³' => '3',
        '⁴' => '4',
        '⁵' => '5',
        '⁶' => '6',
        '⁷' => '7',
        '⁸' => '8',
        '⁹' => '9',
        '⁺' => '+',
        '⁻' => '-',
        '⁽' => '(',
        '⁾' => ')',
        'ⁿ' => 'n',
        other => other,
    }
    .to_lowercase()
}

/// A link in a text: its opening bracket, and the range from its closing bracket to the end of its target.
struct Link {
    open: usize,
    target: Range<usize>,
}

/// The links of a text, in the order of their closing brackets.
fn find_links(text: &str) -> Vec<Link> {
    let bytes = text.as_bytes();
    let mut links = Vec::new();
    let mut open_brackets = Vec::new();
    let mut parenthesis = NextByte::new(bytes, b')');
    let mut line_end = NextByte::new(bytes, b'\n');
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' => open_brackets.push(at),
            b']' => {
                if let Some(open) = open_brackets.pop()
                    && bytes.get(at + 1) == Some(&b'(')
                {
                    let end = parenthesis.at_or_after(at + 2);
                    if end < line_end.at_or_after(at + 2) && end - at < MAX_TARGET_BYTES {
                        let after = end + 1;
                        let target = at..after;
                        links.push(Link { open, target });
                    }
                }
            }
            _ => {}
        }
        at += 1;
    }
    links
}

/// Finds the next place of one byte, for positions that only grow, so that all calls together read the text once.
struct NextByte<'a> {
    bytes: &'a [u8],
    byte: u8,
    found: Option<usize>,
}

impl<'a> NextByte<'a> {
    fn new(bytes: &'a [u8], byte: u8) -> Self {
        Self {
            bytes,
            byte,
            found: None,
        }
    }

    /// The place of the byte, or the length of the text.
    fn at_or_after(&mut self, start: usize) -> usize {
        if let Some(found) = self.found
            && found >= start
        {
            return found;
        }
        let rest = self.bytes.get(start..).unwrap_or_default();
        let ahead = rest.iter().position(|byte| *byte == self.byte);
        let found = ahead.map_or(self.bytes.len(), |ahead| start + ahead);
        self.found = Some(found);
        found
    }
}

/// Reads Markdown and folds what people see of it.
struct PlainText<'a> {
    text: &'a str,
    /// Offset of the text in the source.
    start: usize,
    links: Vec<Link>,
    /// Length of the backticks that opened the code around the current place; 0 outside of code.
    code: usize,
    /// Whether only marks of quotes were read in this line.
    is_line_start: bool,
    folded: FoldedText,
}

impl<'a> PlainText<'a> {
    fn fold(mut self) -> FoldedText {
        // Opening brackets and targets, as their offset and their end, in the order of the text.
        let mut marks: Vec<(usize, usize)> = Vec::new();
        for link in &self.links {
            marks.push((link.open, link.open + 1));
            marks.push((link.target.start, link.target.end));
        }
        marks.sort_unstable();
        let mut marks = marks.into_iter().peekable();
        let mut at = 0;
        while let Some(character) = self.rest(at).chars().next() {
            // A bracket within the target of another link is behind the current place.
            while marks.next_if(|(start, _)| *start < at).is_some() {}
            if let Some((_, end)) = marks.next_if(|(start, _)| *start == at) {
                at = end;
                continue;
            }
            let is_image = character == '!'
                && marks
                    .peek()
                    .is_some_and(|(start, end)| *start == at + 1 && *end == at + 2);
            let skipped = if is_image {
                1
            } else {
                self.mark_length(at, character)
            };
            if skipped == 0 {
                self.show(character, at);
                at += character.len_utf8();
                continue;
            }
            at += skipped;
            // The character after a backslash is never a mark.
            if character == '\\'
                && self.code == 0
                && let Some(escaped) = self.rest(at).chars().next()
            {
                self.show(escaped, at);
                at += escaped.len_utf8();
            }
        }
        self.folded
    }

    fn rest(&self, at: usize) -> &'a str {
        self.text.get(at..).unwrap_or_default()
    }

    fn show(&mut self, character: char, at: usize) {
        self.is_line_start = character == '\n' || (self.is_line_start && character == ' ');
        self.folded.push(character, self.start + at);
    }

    /// The length of the mark that begins here, after showing what stands for it; 0 for a character that people see.
    fn mark_length(&mut self, at: usize, character: char) -> usize {
        let rest = self.rest(at);
        if character == '`' {
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            if self.code == 0 || self.code == ticks {
                self.code = ticks - self.code;
            } else {
                for tick in 0..ticks {
                    self.show('`', at + tick);
                }
            }
            return ticks;
        }
        if self.code > 0 {
            return 0;
        }
        let before = self
            .text
            .get(..at)
            .and_then(|text| text.chars().next_back());
        let after = rest.chars().nth(1);
        let is_blank = |neighbor: Option<char>| neighbor.is_none_or(char::is_whitespace);
        let is_word = |neighbor: Option<char>| neighbor.is_some_and(char::is_alphanumeric);
        let is_mark = match character {
            '\\' => after.is_some_and(|next| next.is_ascii_punctuation() || next == '\n'),
            '*' => !(is_blank(before) && is_blank(after)),
            '_' => !(is_word(before) && is_word(after) || is_blank(before) && is_blank(after)),
            '~' => before == Some('~') || after == Some('~'),
            '>' => self.is_line_start,
            '[' if after == Some('^') => {
                let end = rest.bytes().take(MAX_FOOTNOTE_BYTES);
                return end
                    .take_while(|byte| *byte != b'\n')
                    .position(|byte| byte == b']')
                    .map_or(0, |end| end + 1);
            }
            '<' if rest.starts_with("<br>") => {
                self.show(' ', at);
                return "<br>".len();
            }
            _ => false,
        };
        usize::from(is_mark)
    }
}
