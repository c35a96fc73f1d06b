//! What a server says, understood: answers, refusals, and unsolicited data.

use dray_platform::{Error, ErrorKind};

use super::value::{Piece, Value, values};

/// What a server says without being asked, or on the way to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Untagged {
    /// `OK`, `BYE`, `SEARCH`, or the number before `FETCH` and `EXISTS`.
    pub(crate) values: Vec<Value>,
    /// The whole first line, for what is meant for people.
    pub(crate) line: String,
}

/// One thing that a server says.
#[derive(Debug)]
pub(super) enum Said {
    Untagged(Untagged),
    /// It waits for more of the command.
    Continue,
    /// The end of a command: its tag, and the rest of the line.
    Done(String, String),
}

/// Data of one mail.
#[derive(Clone, Debug)]
pub(crate) struct Fetched(pub(super) Vec<Value>);

impl Fetched {
    /// The value after a name.
    pub(crate) fn find(&self, name: &str) -> Option<&Value> {
        let mut pairs = self.0.chunks_exact(2);
        pairs.find_map(|pair| match pair {
            [found, value] if found.bytes()?.eq_ignore_ascii_case(name.as_bytes()) => Some(value),
            _ => None,
        })
    }

    /// The bytes of a section: `BODY[1]`, with any origin behind it. `NIL` is none.
    pub(crate) fn body(&self, section: &str) -> Option<&[u8]> {
        let name = format!("BODY[{section}]");
        let mut pairs = self.0.chunks_exact(2);
        pairs.find_map(|pair| match pair {
            [found, value] => {
                let found = found.text().to_ascii_uppercase();
                let is_it = found == name || found.starts_with(&format!("{name}<"));
                is_it.then(|| value.bytes()).flatten()
            }
            _ => None,
        })
    }
}

impl Untagged {
    /// The first word, in upper case.
    pub(crate) fn word(&self) -> String {
        let first = self.values.first().map(Value::text);
        first.unwrap_or_default().to_ascii_uppercase()
    }
}

pub(super) fn understood(pieces: &[Piece]) -> Result<Said, Error> {
    let first = pieces.first().ok_or_else(strange)?;
    let line = String::from_utf8_lossy(&first.line).into_owned();
    if line.starts_with('+') {
        return Ok(Said::Continue);
    }
    let (tag, rest) = line.split_once(' ').ok_or_else(strange)?;
    if tag != "*" {
        return Ok(Said::Done(tag.to_owned(), rest.to_owned()));
    }
    let word = rest
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    // What is meant for people has no grammar.
    if matches!(word.as_str(), "OK" | "NO" | "BAD" | "BYE" | "PREAUTH") {
        return Ok(Said::Untagged(Untagged {
            values: vec![Value::Atom(word.into_bytes())],
            line,
        }));
    }
    let mut pieces = pieces.to_vec();
    if let Some(first) = pieces.first_mut() {
        first.line.drain(..2);
    }
    let values = values(&pieces).ok_or_else(strange)?;
    Ok(Said::Untagged(Untagged { values, line }))
}

/// The error that a refusal stands for. A server's words may hold names: they are for the log.
pub(super) fn refused(line: &str) -> Error {
    let upper = line.to_ascii_uppercase();
    let has = |code: &str| upper.contains(&format!("[{code}"));
    let kind = if has("AUTHENTICATIONFAILED") || has("AUTHORIZATIONFAILED") || has("EXPIRED") {
        ErrorKind::Auth
    } else if has("UNAVAILABLE") || has("INUSE") || has("LIMIT") || has("SERVERBUG") {
        ErrorKind::Transient
    } else if has("NONEXISTENT") || has("EXPUNGEISSUED") {
        ErrorKind::NotFound
    } else {
        ErrorKind::Unknown
    };
    let shown: String = line
        .chars()
        .filter(|one| !one.is_control())
        .take(200)
        .collect();
    Error::new(kind, shown)
}

/// What is not of the wire.
pub(super) fn strange() -> Error {
    Error::new(ErrorKind::Unknown, "the answer cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_kinds() {
        for (line, kind) in [
            (
                "NO [AUTHENTICATIONFAILED] Authentication failed.",
                ErrorKind::Auth,
            ),
            ("NO [UNAVAILABLE] later", ErrorKind::Transient),
            ("NO [NONEXISTENT] no such mailbox", ErrorKind::NotFound),
            ("BAD what", ErrorKind::Unknown),
        ] {
            assert_eq!(refused(line).kind(), kind, "{line}");
        }
        assert!(!refused("NO a\r\nb").context().contains('\n'));
    }

    #[test]
    fn words_for_people_have_no_grammar() {
        let piece = |line: &str| Piece {
            line: line.as_bytes().to_vec(),
            literal: None,
        };
        let said = understood(&[piece("* OK [UIDVALIDITY 7] (it's \"fine")]).unwrap();
        assert!(matches!(said, Said::Untagged(told) if told.word() == "OK"));
        assert!(matches!(
            understood(&[piece("+ go on")]),
            Ok(Said::Continue)
        ));
        assert!(
            matches!(understood(&[piece("d1 OK done")]), Ok(Said::Done(tag, _)) if tag == "d1")
        );
        assert!(understood(&[piece("* 1 FETCH (")]).is_err());
        assert!(understood(&[piece("what")]).is_err());
    }
}
