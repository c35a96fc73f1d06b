//! The data formats of IMAP (RFC 3501, 4 and 9): atoms, strings, lists.

/// Deepest nesting of lists; it bounds the memory that a few bytes of parentheses can take.
const MAX_DEPTH: usize = 64;

/// One value of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImapValue {
    /// The atom `NIL`: no value, in contrast to an empty string.
    Nil,
    /// An atom or a number: a value without quotes.
    Atom(Vec<u8>),
    /// A quoted string or a literal.
    Text(Vec<u8>),
    /// A list in parentheses.
    List(Vec<ImapValue>),
}

impl ImapValue {
    /// The bytes of an atom or a string.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Atom(bytes) | Self::Text(bytes) => Some(bytes),
            Self::Nil | Self::List(_) => None,
        }
    }

    /// Like [`Self::bytes`], lossily decoded; empty for a list and for `NIL`.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes().unwrap_or_default()).into_owned()
    }

    pub(crate) fn number(&self) -> Option<u64> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        text.parse().ok()
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(values) => Some(values),
            _ => None,
        }
    }
}

/// A chunk of a response: a line, and the literal that follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseChunk {
    /// The line without its end and without the announcement of the literal.
    pub(crate) line: Vec<u8>,
    pub(crate) literal: Option<Vec<u8>>,
}

/// Length of the literal that a line announces, and where the announcement begins.
pub(crate) fn announced_literal(line: &[u8]) -> Option<(u64, usize)> {
    let inner = line.strip_suffix(b"}")?;
    let start = inner.iter().rposition(|byte| *byte == b'{')?;
    let digits = inner.get(start + 1..)?;
    // A literal that needs no consent (RFC 7888); servers do not send it, but supporting it is simple.
    let digits = digits.strip_suffix(b"+").unwrap_or(digits);
    let length = std::str::from_utf8(digits).ok()?;
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    // `~{` announces a binary literal.
    let start = start - usize::from(start > 0 && line.get(start - 1) == Some(&b'~'));
    is_number.then(|| Some((length.parse().ok()?, start)))?
}

/// All values of a response; `None` for unbalanced or too deep parentheses, and open quotes.
pub(crate) fn parse_values(chunks: &[ResponseChunk]) -> Option<Vec<ImapValue>> {
    let mut stack = vec![Vec::new()];
    for chunk in chunks {
        parse_line(&chunk.line, &mut stack)?;
        if let Some(literal) = &chunk.literal {
            stack.last_mut()?.push(ImapValue::Text(literal.clone()));
        }
    }
    // A remaining entry on the stack would be an open list.
    let all = stack.pop()?;
    stack.is_empty().then_some(all)
}

fn parse_line(line: &[u8], stack: &mut Vec<Vec<ImapValue>>) -> Option<()> {
    let mut rest = line;
    while let Some((first, after)) = rest.split_first() {
        match first {
            b' ' => rest = after,
            b'(' => {
                if stack.len() > MAX_DEPTH {
                    return None;
                }
                stack.push(Vec::new());
                rest = after;
            }
            b')' => {
                let list = stack.pop()?;
                stack.last_mut()?.push(ImapValue::List(list));
                rest = after;
            }
            b'"' => {
                let (text, after) = parse_quoted(after)?;
                stack.last_mut()?.push(ImapValue::Text(text));
                rest = after;
            }
            _ => {
                let (atom, after) = split_atom(rest);
                let value = if atom.eq_ignore_ascii_case(b"NIL") {
                    ImapValue::Nil
                } else {
                    ImapValue::Atom(atom.to_vec())
                };
                stack.last_mut()?.push(value);
                rest = after;
            }
        }
    }
    Some(())
}

/// Splits off an atom, including a part in brackets: `BODY[HEADER.FIELDS (DATE)]` is one.
fn split_atom(text: &[u8]) -> (&[u8], &[u8]) {
    let mut depth = 0_u32;
    let end = text.iter().position(|byte| match byte {
        b'[' => {
            depth += 1;
            false
        }
        b']' => {
            depth = depth.saturating_sub(1);
            false
        }
        b' ' | b'(' | b')' | b'"' => depth == 0,
        _ => false,
    });
    text.split_at(end.unwrap_or(text.len()))
}

fn parse_quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut unquoted = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((unquoted, text.get(index + 1..)?)),
            b'\\' => unquoted.push(*bytes.next()?.1),
            other => unquoted.push(*other),
        }
    }
    None
}

/// A string in the form for a command; `None` unless it is printable ASCII, because it would then need a literal.
pub(crate) fn quote_string(text: &str) -> Option<String> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    is_plain.then(|| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<ImapValue>> {
        let chunk = ResponseChunk {
            line: line.as_bytes().to_vec(),
            literal: None,
        };
        parse_values(&[chunk])
    }

    #[test]
    fn values_have_their_types() {
        let values =
            read(r#"12 FETCH (UID 5 BODY[HEADER.FIELDS (A B)]<0> NIL "a \"b\" \\" (x ("y")))"#)
                .unwrap();
        assert_eq!(values[0].number(), Some(12));
        assert_eq!(values[1].text(), "FETCH");
        let list = values[2].list().unwrap();
        assert_eq!(list[2].text(), "BODY[HEADER.FIELDS (A B)]<0>");
        assert_eq!(list[3], ImapValue::Nil);
        assert_eq!(list[4], ImapValue::Text(b"a \"b\" \\".to_vec()));
        assert_eq!(
            list[5].list().unwrap()[1],
            ImapValue::List(vec![ImapValue::Text(b"y".to_vec())])
        );
    }

    #[test]
    fn literals_are_read_where_they_are_announced() {
        let chunks = [
            ResponseChunk {
                line: b"1 FETCH (BODY[]".to_vec(),
                literal: Some(b") \"\r\n".to_vec()),
            },
            ResponseChunk {
                line: b" UID 7)".to_vec(),
                literal: None,
            },
        ];
        let values = parse_values(&chunks).unwrap();
        let list = values[2].list().unwrap();
        assert_eq!(list[1], ImapValue::Text(b") \"\r\n".to_vec()));
        assert_eq!(list[3].number(), Some(7));
        assert_eq!(announced_literal(b"* 1 FETCH (BODY[] {12}"), Some((12, 18)));
        assert_eq!(announced_literal(b"x ~{3}"), Some((3, 2)));
        for line in [
            &b"x"[..],
            b"{}",
            b"{x}",
            b"{1} ",
            b"{-1}",
            b"}",
            b"{99999999999999999999999}",
        ] {
            assert_eq!(
                announced_literal(line),
                None,
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }

    #[test]
    fn invalid_values_are_refused() {
        for invalid in ["(", ")", "(()", "\"a", "\"a\\", &"(".repeat(1000)] {
            assert_eq!(read(invalid), None, "{invalid}");
        }
        let deep = format!("{}{}", "(".repeat(60), ")".repeat(60));
        assert!(read(&deep).is_some());
    }

    #[test]
    fn strings_cannot_end_a_command() {
        assert_eq!(quote_string(r#"a"b\"#).as_deref(), Some(r#""a\"b\\""#));
        for invalid in ["a\r\nb LOGOUT", "é", "\0"] {
            assert_eq!(quote_string(invalid), None);
        }
    }
}
