//! HTML that a mail program wrapped into RTF (MS-OXRTFEX): the tags are in groups of their own, the text between them.

use super::codepage::CodePage;
use super::token::{Token, Tokens};

/// Deepest nesting of groups of which something is kept.
const MAX_DEPTH: usize = 256;
/// Most bytes at the start of the text in which its head is searched.
const MAX_HEAD_BYTES: usize = 1024;

/// The state that a group inherits and that its end restores.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Tags, and text between them.
    is_kept: bool,
    /// Whether it is a tag: its content is HTML.
    is_tag: bool,
    /// Formatting for readers of RTF, which replaces tags.
    is_rtf_only: bool,
    /// Characters after `\u` that only readers without Unicode show.
    fallback: usize,
    page: CodePage,
}

/// The HTML in an RTF text; `None` if the RTF was not made from HTML.
pub(crate) fn wrapped_html(bytes: &[u8]) -> Option<String> {
    let head = bytes.get(..MAX_HEAD_BYTES).unwrap_or(bytes);
    let is_wrapped = head.windows(9).any(|word| word == b"\\fromhtml");
    is_wrapped.then(|| Unwrapper::new().read(bytes))
}

struct Unwrapper {
    html: String,
    groups: Vec<Group>,
    now: Group,
    /// Bytes in the current code page that are not yet decoded.
    bytes: Vec<u8>,
    units: Vec<u16>,
    /// Characters that are still to be skipped after `\u`.
    skip: usize,
}

impl Unwrapper {
    fn new() -> Self {
        Self {
            html: String::new(),
            groups: Vec::new(),
            now: Group {
                is_kept: true,
                is_tag: false,
                is_rtf_only: false,
                fallback: 1,
                page: CodePage::of_number(1252),
            },
            bytes: Vec::new(),
            units: Vec::new(),
            skip: 0,
        }
    }

    fn read(mut self, bytes: &[u8]) -> String {
        let mut tokens = Tokens::new(bytes);
        let (mut fresh, mut starred) = (false, false);
        while let Some(token) = tokens.next() {
            let (is_first, is_starred) = (std::mem::take(&mut fresh), std::mem::take(&mut starred));
            match token {
                Token::Open => {
                    self.flush();
                    if self.groups.len() < MAX_DEPTH {
                        self.groups.push(self.now);
                    }
                    fresh = true;
                }
                Token::Close => {
                    self.flush();
                    match self.groups.pop() {
                        Some(before) => self.now = before,
                        None => break,
                    }
                    if self.groups.is_empty() {
                        break;
                    }
                }
                // Only the first word of a group can be starred.
                Token::Symbol(b'*') if is_first => (fresh, starred) = (true, true),
                Token::Word("bin", number) => {
                    tokens.pass(usize::try_from(number.unwrap_or(0)).unwrap_or(0));
                }
                Token::Word(word, number) => self.word(word, number, is_starred),
                Token::Symbol(symbol) => self.symbol(symbol),
                Token::Byte(byte) => self.push(&[byte]),
                Token::Text(text) => self.push(text),
            }
        }
        self.flush();
        self.html
    }

    /// Whether the next content is HTML or its text.
    fn is_shown(&self) -> bool {
        self.now.is_kept && !self.now.is_rtf_only
    }

    fn push(&mut self, text: &[u8]) {
        let skipped = self.skip.min(text.len());
        self.skip -= skipped;
        let text = text.get(skipped..).unwrap_or_default();
        if self.is_shown() && !text.is_empty() {
            self.flush_units();
            self.bytes.extend_from_slice(text);
        }
    }

    fn flush(&mut self) {
        self.flush_units();
        let bytes = std::mem::take(&mut self.bytes);
        self.html.push_str(&self.now.page.decode(&bytes));
        self.skip = 0;
    }

    fn flush_units(&mut self) {
        let units = std::mem::take(&mut self.units);
        self.html.push_str(&String::from_utf16_lossy(&units));
    }

    fn word(&mut self, word: &str, number: Option<i32>, starred: bool) {
        if word == "u" {
            self.unicode(number);
            return;
        }
        self.flush();
        match word {
            "htmltag" if starred => self.now.is_tag = true,
            // Between `\htmlrtf` and `\htmlrtf0` is the replacement of the tags for other readers (MS-OXRTFEX
            // 2.1.3.1.3).
            "htmlrtf" => self.now.is_rtf_only = number != Some(0),
            "fonttbl" | "colortbl" | "stylesheet" | "info" | "pict" => self.now.is_kept = false,
            _ if starred => self.now.is_kept = false,
            "ansicpg" => {
                let page = number.and_then(|number| u32::try_from(number).ok());
                self.now.page = CodePage::of_number(page.unwrap_or(1252));
            }
            "uc" => self.now.fallback = number.and_then(|it| usize::try_from(it).ok()).unwrap_or(1),
            "par" | "line" => self.text("\n"),
            "tab" => self.text("\t"),
            "lquote" => self.text("&lsquo;"),
            "rquote" => self.text("&rsquo;"),
            "ldblquote" => self.text("&ldquo;"),
            "rdblquote" => self.text("&rdquo;"),
            "bullet" => self.text("&bull;"),
            "endash" => self.text("&ndash;"),
            "emdash" => self.text("&mdash;"),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.is_shown() {
            self.html.push_str(text);
        }
    }

    /// A UTF-16 unit, which is before its fallback.
    fn unicode(&mut self, number: Option<i32>) {
        // Units stay apart from bytes, so that both halves of a pair meet.
        if !self.bytes.is_empty() {
            self.flush();
        }
        self.skip = self.now.fallback;
        // Units beyond 32767 are written as negative numbers.
        let unit = number.map_or(0, |number| number & 0xFFFF);
        if let (true, Ok(unit)) = (self.is_shown(), u16::try_from(unit)) {
            self.units.push(unit);
        }
    }

    fn symbol(&mut self, symbol: u8) {
        match symbol {
            b'{' | b'}' | b'\\' => self.push(&[symbol]),
            b'~' if !self.now.is_tag => self.text("&nbsp;"),
            b'_' if !self.now.is_tag => self.text("&shy;"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped_html;

    #[test]
    fn tags_and_text_are_kept_and_formatting_is_not() {
        // After MS-OXRTFEX 3.1.
        let rtf = b"{\\rtf1\\ansi\\ansicpg1251\\fromhtml1 \\deff0{\\fonttbl{\\f0\\fswiss Arial;}}\r\n\
            {\\*\\generator Mail;}{\\*\\htmltag64 <p>}\\htmlrtf {\\htmlrtf0 {\\*\\htmltag84 <a href=\"https://a.example/?x=\\{1\\}\">}\
            \\htmlrtf {\\field{\\*\\fldinst HYPERLINK x}{\\fldrslt \\htmlrtf0 \\'cf\\u1088?\\u-10179?\\u-8704? here\\htmlrtf }}\\htmlrtf0\
            {\\*\\htmltag92 </a>}\\htmlrtf\\par}\\htmlrtf0 {\\*\\htmltag72 </p>}}trailing";
        assert_eq!(
            wrapped_html(rtf).unwrap(),
            "<p><a href=\"https://a.example/?x={1}\">Пр😀 here</a></p>"
        );
        assert_eq!(wrapped_html(b"{\\rtf1\\fromtext plain}"), None);
    }

    #[test]
    fn broken_groups_end_with_what_there_is() {
        assert_eq!(
            wrapped_html(b"{\\rtf1\\fromhtml1 a{\\*\\htmltag <b>").unwrap(),
            "a<b>"
        );
        assert_eq!(wrapped_html(b"}{\\fromhtml1").unwrap(), "");
        let deep = [b"{\\rtf1\\fromhtml1 ".as_slice(), &b"{".repeat(10_000)].concat();
        assert_eq!(wrapped_html(&deep).unwrap(), "");
    }
}
