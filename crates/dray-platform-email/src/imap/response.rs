//! Responses of a server: results of commands, refusals, and unsolicited data.

use dray_platform::{ErrorKind, PlatformError};

use super::value::{ImapValue, ResponseChunk, parse_values};

/// A response that ends no command: data, or a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UntaggedResponse {
    /// `OK`, `BYE`, `SEARCH`, or the number before `FETCH` and `EXISTS`.
    pub(crate) values: Vec<ImapValue>,
    /// The complete first line, because texts for people have no grammar.
    pub(crate) line: String,
}

/// A response line of an IMAP server (RFC 3501, section 7).
#[derive(Debug)]
pub(super) enum ServerResponse {
    Untagged(UntaggedResponse),
    /// The server waits for the rest of the command.
    Continue,
    /// The end of a command: its tag, and the rest of the line.
    Done(String, String),
}

/// Data of one mail: names and values in turn.
#[derive(Clone, Debug)]
pub(crate) struct FetchedMail(pub(super) Vec<ImapValue>);

impl FetchedMail {
    /// The value after a name.
    pub(crate) fn find(&self, name: &str) -> Option<&ImapValue> {
        let mut pairs = self.0.chunks_exact(2);
        pairs.find_map(|pair| match pair {
            [field, value] if field.bytes()?.eq_ignore_ascii_case(name.as_bytes()) => Some(value),
            _ => None,
        })
    }

    /// The bytes of a section: `BODY[1]`, followed by an origin such as `<0>`. `None` for `NIL`.
    pub(crate) fn body(&self, section: &str) -> Option<&[u8]> {
        let name = format!("BODY[{section}]");
        let mut pairs = self.0.chunks_exact(2);
        pairs.find_map(|pair| match pair {
            [field, value] => {
                let field = field.text().to_ascii_uppercase();
                let is_it = field == name || field.starts_with(&format!("{name}<"));
                is_it.then(|| value.bytes()).flatten()
            }
            _ => None,
        })
    }
}

impl UntaggedResponse {
    /// The first word, in upper case.
    pub(crate) fn word(&self) -> String {
        let first = self.values.first().map(ImapValue::text);
        first.unwrap_or_default().to_ascii_uppercase()
    }
}

pub(super) fn parse_response(chunks: &[ResponseChunk]) -> Result<ServerResponse, PlatformError> {
    let first = chunks.first().ok_or_else(unexpected_response)?;
    let line = String::from_utf8_lossy(&first.line).into_owned();
    if line.starts_with('+') {
        return Ok(ServerResponse::Continue);
    }
    let (tag, rest) = line.split_once(' ').ok_or_else(unexpected_response)?;
    if tag != "*" {
        return Ok(ServerResponse::Done(tag.to_owned(), rest.to_owned()));
    }
    let word = rest
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    // Text for people has no grammar, so it is not parsed as values.
    if matches!(word.as_str(), "OK" | "NO" | "BAD" | "BYE" | "PREAUTH") {
        return Ok(ServerResponse::Untagged(UntaggedResponse {
            values: vec![ImapValue::Atom(word.into_bytes())],
            line,
        }));
    }
    let mut chunks = chunks.to_vec();
    if let Some(first) = chunks.first_mut() {
        // `* `, which was checked above.
        first.line.drain(..2);
    }
    let values = parse_values(&chunks).ok_or_else(unexpected_response)?;
    Ok(ServerResponse::Untagged(UntaggedResponse { values, line }))
}

/// The error for a refusal, by its response code (RFC 5530). The server's text may contain names, so it is only logged.
pub(super) fn refusal_error(line: &str) -> PlatformError {
    let upper = line.to_ascii_uppercase();
    let has = |code: &str| upper.contains(&format!("[{code}"));
    let kind = if has("AUTHENTICATIONFAILED") || has("AUTHORIZATIONFAILED") || has("EXPIRED") {
        ErrorKind::Auth
    } else if has("UNAVAILABLE") || has("INUSE") || has("LIMIT") || has("SERVERBUG") {
        ErrorKind::Transient
    } else if has("NONEXISTENT") || has("EXPUNGEISSUED") {
        ErrorKind::NotFound
    } else {
        // Without a code, `NO` and `BAD` have no machine-readable reason.
        ErrorKind::Unknown
    };
    let text: String = line
        .chars()
        .filter(|character| !character.is_control())
        .take(200)
        .collect();
    PlatformError::new(kind, text)
}

/// The error for data that is not IMAP, or not expected at this point.
pub(super) fn unexpected_response() -> PlatformError {
    PlatformError::new(ErrorKind::Unknown, "could not parse the response")
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
            assert_eq!(refusal_error(line).kind(), kind, "{line}");
        }
        assert!(!refusal_error("NO a\r\nb").context().contains('\n'));
    }

    #[test]
    fn text_for_people_is_not_parsed() {
        let chunk = |line: &str| ResponseChunk {
            line: line.as_bytes().to_vec(),
            literal: None,
        };
        let response = parse_response(&[chunk("* OK [UIDVALIDITY 7] (it's \"fine")]).unwrap();
        assert!(matches!(response, ServerResponse::Untagged(untagged) if untagged.word() == "OK"));
        assert!(matches!(
            parse_response(&[chunk("+ go on")]),
            Ok(ServerResponse::Continue)
        ));
        assert!(
            matches!(parse_response(&[chunk("d1 OK done")]), Ok(ServerResponse::Done(tag, _)) if tag == "d1")
        );
        assert!(parse_response(&[chunk("* 1 FETCH (")]).is_err());
        assert!(parse_response(&[chunk("what")]).is_err());
    }
}
