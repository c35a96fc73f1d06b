//! HTML that a mail program wrapped into RTF (MS-OXRTFEX): each tag is in its own group, the text is between the tags.

use super::codepage::CodePage;
use super::token::{Token, Tokens};

/// Deepest nesting of groups whose state is stored.
const MAX_DEPTH: usize = 256;
/// Most bytes at the start of the RTF in which `\fromhtml` is searched.
const MAX_HEAD_BYTES: usize = 1024;

/// The state that a group inherits and that its end restores.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Whether the content is a tag or text between tags.
    is_kept: bool,
    /// Whether the content is a tag, written as HTML.
    is_tag: bool,
    /// Whether the content replaces tags for readers of RTF.
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
    /// The state of the innermost group.
    state: Group,
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
            state: Group {
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
        let (mut at_group_start, mut has_star) = (false, false);
        while let Some(token) = tokens.next() {
            let (is_first, is_starred) = (
                std::mem::take(&mut at_group_start),
                std::mem::take(&mut has_star),
            );
            match token {
                Token::Open => {
                    self.flush();
                    if self.groups.len() < MAX_DEPTH {
                        self.groups.push(self.state);
                    }
                    at_group_start = true;
                }
                Token::Close => {
                    self.flush();
                    match self.groups.pop() {
                        Some(outer) => self.state = outer,
                        None => break,
                    }
                    if self.groups.is_empty() {
                        break;
                    }
                }
                // Only the first word of a group can be starred.
                Token::Symbol(b'*') if is_first => (at_group_start, has_star) = (true, true),
                Token::Word("bin", number) => {
                    tokens.skip_bytes(usize::try_from(number.unwrap_or(0)).unwrap_or(0));
                }
                Token::Word(word, number) => self.handle_word(word, number, is_starred),
                Token::Symbol(symbol) => self.handle_symbol(symbol),
                Token::Byte(byte) => self.push(&[byte]),
                Token::Text(text) => self.push(text),
            }
        }
        self.flush();
        self.html
    }

    /// Whether the next content is HTML or its text.
    fn is_shown(&self) -> bool {
        self.state.is_kept && !self.state.is_rtf_only
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
        self.html.push_str(&self.state.page.decode(&bytes));
        self.skip = 0;
    }

    fn flush_units(&mut self) {
        let units = std::mem::take(&mut self.units);
        self.html.push_str(&String::from_utf16_lossy(&units));
    }

    fn handle_word(&mut self, word: &str, number: Option<i32>, starred: bool) {
        if word == "u" {
            self.handle_unicode(number);
            return;
        }
        self.flush();
        match word {
            "htmltag" if starred => self.state.is_tag = true,
            // Between `\htmlrtf` and `\htmlrtf0` is the replacement of the tags for other readers (MS-OXRTFEX
            // 2.1.3.1.3).
            "htmlrtf" => self.state.is_rtf_only = number != Some(0),
            "fonttbl" | "colortbl" | "stylesheet" | "info" | "pict" => self.state.is_kept = false,
            _ if starred => self.state.is_kept = false,
            "ansicpg" => {
                let page = number.and_then(|number| u32::try_from(number).ok());
                self.state.page = CodePage::of_number(page.unwrap_or(1252));
            }
            "uc" => {
                self.state.fallback = number
                    .and_then(|count| usize::try_from(count).ok())
                    .unwrap_or(1);
            }
            "par" | "line" => self.push_text("\n"),
            "tab" => self.push_text("\t"),
            "lquote" => self.push_text("&lsquo;"),
            "rquote" => self.push_text("&rsquo;"),
            "ldblquote" => self.push_text("&ldquo;"),
            "rdblquote" => self.push_text("&rdquo;"),
            "bullet" => self.push_text("&bull;"),
            "endash" => self.push_text("&ndash;"),
            "emdash" => self.push_text("&mdash;"),
            _ => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        if self.is_shown() {
            self.html.push_str(text);
        }
    }

    /// Handles `\u`: a UTF-16 code unit, followed by its fallback.
    fn handle_unicode(&mut self, number: Option<i32>) {
        // Units are decoded apart from bytes, so that the two halves of a surrogate pair are decoded together.
        if !self.bytes.is_empty() {
            self.flush();
        }
        self.skip = self.state.fallback;
        // Units beyond 32767 are written as negative numbers.
        let unit = number.map_or(0, |number| number & 0xFFFF);
        if let (true, Ok(unit)) = (self.is_shown(), u16::try_from(unit)) {
            self.units.push(unit);
        }
    }

    fn handle_symbol(&mut self, symbol: u8) {
        match symbol {
            b'{' | b'}' | b'\\' => self.push(&[symbol]),
            b'~' if !self.state.is_tag => self.push_text("&nbsp;"),
            b'_' if !self.state.is_tag => self.push_text("&shy;"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped_html;

    #[test]
    fn tags_and_text_are_kept_and_formatting_is_not() {
        // The example is adapted from MS-OXRTFEX 3.1.
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
    fn text_before_a_broken_group_is_kept() {
        assert_eq!(
            wrapped_html(b"{\\rtf1\\fromhtml1 a{\\*\\htmltag <b>").unwrap(),
            "a<b>"
        );
        assert_eq!(wrapped_html(b"}{\\fromhtml1").unwrap(), "");
        let deep = [b"{\\rtf1\\fromhtml1 ".as_slice(), &b"{".repeat(10_000)].concat();
        assert_eq!(wrapped_html(&deep).unwrap(), "");
    }
}
