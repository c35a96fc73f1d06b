//! RTF tokens (RTF 1.9.1, «Contents of an RTF file»).

use crate::hex::parse_hex_byte;

/// Most letters of a control word; further letters are read as text.
const MAX_WORD_LETTERS: usize = 64;

/// A token of the file. Line ends between tokens are not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// `{`, the start of a group.
    Open,
    /// `}`, the end of a group.
    Close,
    /// `\word` with its number, if it has one.
    Word(&'a str, Option<i32>),
    /// `\` and a character that is not a letter.
    Symbol(u8),
    /// `\'hh`, a byte of the current code page.
    Byte(u8),
    /// Text up to the next token, as bytes of the current code page.
    Text(&'a [u8]),
}

/// An iterator over the tokens of a file. It never fails, and it ends for any input.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Reads from the start of a file.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Skips this many raw bytes, such as those after `\bin`.
    pub(super) fn skip_bytes(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (front, rest) = self
            .rest
            .split_at_checked(bytes)
            .unwrap_or((self.rest, &[]));
        self.rest = rest;
        front
    }

    /// Reads the token whose backslash was just read.
    fn control(&mut self) -> Token<'a> {
        let letters = self
            .rest
            .iter()
            .take(MAX_WORD_LETTERS)
            .take_while(|byte| byte.is_ascii_alphabetic())
            .count();
        if letters == 0 {
            let symbol = self.take(1).first().copied().unwrap_or(b' ');
            if symbol == b'\'' {
                let byte = self.rest.get(..2).and_then(parse_hex_byte);
                if let Some(byte) = byte {
                    self.take(2);
                    return Token::Byte(byte);
                }
            }
            return Token::Symbol(symbol);
        }
        let word = std::str::from_utf8(self.take(letters)).unwrap_or_default();
        let minus = usize::from(self.rest.first() == Some(&b'-'));
        let digits = self
            .rest
            .iter()
            .skip(minus)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let mut number = None;
        if digits > 0 {
            let text = std::str::from_utf8(self.take(minus + digits)).unwrap_or_default();
            number = Some(
                text.parse()
                    // A number outside the range of `i32` becomes the nearest limit of the range.
                    .unwrap_or(if minus > 0 { i32::MIN } else { i32::MAX }),
            );
        }
        // One space ends a control word and belongs to it.
        if self.rest.first() == Some(&b' ') {
            self.take(1);
        }
        Token::Word(word, number)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            match self.rest.first()? {
                b'{' => {
                    self.take(1);
                    return Some(Token::Open);
                }
                b'}' => {
                    self.take(1);
                    return Some(Token::Close);
                }
                b'\\' => {
                    self.take(1);
                    return Some(self.control());
                }
                // Line ends in the file are not text; `\par` and `\line` are.
                b'\r' | b'\n' | 0 => {
                    self.take(1);
                }
                _ => {
                    let end = self
                        .rest
                        .iter()
                        .position(|byte| matches!(byte, b'{' | b'}' | b'\\' | b'\r' | b'\n' | 0))
                        .unwrap_or(self.rest.len());
                    return Some(Token::Text(self.take(end)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Token, Tokens};

    #[test]
    fn words_symbols_bytes_and_text_are_different_tokens() {
        let tokens: Vec<_> =
            Tokens::new(b"{\\rtf1\\b0 x\r\n\\'e9\\'zz\\~\\u-10179?\\*}\\i99999999999").collect();
        assert_eq!(
            tokens,
            [
                Token::Open,
                Token::Word("rtf", Some(1)),
                Token::Word("b", Some(0)),
                Token::Text(b"x"),
                Token::Byte(0xE9),
                Token::Symbol(b'\''),
                Token::Text(b"zz"),
                Token::Symbol(b'~'),
                Token::Word("u", Some(-10179)),
                Token::Text(b"?"),
                Token::Symbol(b'*'),
                Token::Close,
                Token::Word("i", Some(i32::MAX)),
            ]
        );
    }

    #[test]
    fn a_backslash_at_the_end_and_a_very_long_word_are_read() {
        assert_eq!(
            Tokens::new(b"\\").collect::<Vec<_>>(),
            [Token::Symbol(b' ')]
        );
        let long = [b"\\".to_vec(), vec![b'a'; 1_000_000]].concat();
        assert_eq!(Tokens::new(&long).count(), 2);
    }
}
