//! Addresses and message ids, checked so that none can end a line, a header or a command.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_platform::{ErrorKind, PlatformError};

/// Longest local part, in bytes (RFC 5321, section 4.5.3.1).
const MAX_LOCAL_PART_BYTES: usize = 64;
/// Longest address, in bytes (RFC 5321, section 4.5.3.1).
const MAX_ADDRESS_BYTES: usize = 254;
/// Longest message id that is written into a reply, in bytes: a header line may have 998 (RFC 5322, 2.1.1).
const MAX_MESSAGE_ID_BYTES: usize = 500;
/// Bytes in one encoded word: with its frame it stays below the 75 characters of RFC 2047, section 2.
const MAX_ENCODED_WORD_BYTES: usize = 42;

/// Returns the address of a recipient if it is valid in a command without escapes.
pub(crate) fn checked_address(text: &str) -> Result<&str, PlatformError> {
    if is_address(text) {
        Ok(text)
    } else {
        Err(PlatformError::new(
            ErrorKind::NotFound,
            "not a mail address",
        ))
    }
}

fn is_address(text: &str) -> bool {
    // Quoted local parts are valid but not supported, because they may contain spaces and angle brackets.
    let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // The text is split at the first `@`; a second one is not allowed in a label, so it fails below.
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    text.len() <= MAX_ADDRESS_BYTES
        && local.len() <= MAX_LOCAL_PART_BYTES
        && local
            .split('.')
            .all(|atom| !atom.is_empty() && atom.bytes().all(is_atom))
        && domain.split('.').all(is_label)
}

/// The id of a message to reply to, in its angle brackets.
pub(crate) fn message_id(text: &str) -> Result<String, PlatformError> {
    let bare = text.trim().trim_start_matches('<').trim_end_matches('>');
    let is_id = bare.contains('@')
        && bare.len() <= MAX_MESSAGE_ID_BYTES
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'<' && byte != b'>');
    if is_id {
        Ok(format!("<{bare}>"))
    } else {
        Err(PlatformError::new(ErrorKind::NoThread, "not a message id"))
    }
}

/// The sender, in the two forms in which mail needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MailSender {
    /// The bare address, for the envelope.
    pub(crate) address: String,
    /// The value of `From`: the address, with the name before it, if any.
    pub(crate) header: String,
}

impl MailSender {
    /// Reads `bot@example.org` or `Name <bot@example.org>`.
    pub(crate) fn parse(text: &str) -> Result<Self, PlatformError> {
        let invalid_sender =
            || PlatformError::new(ErrorKind::BadFormat, "from is not a mail address");
        let text = text.trim();
        let (name, address) = match text
            .strip_suffix('>')
            .and_then(|text| text.rsplit_once('<'))
        {
            Some((name, address)) => (name.trim().trim_matches('"'), address),
            None => ("", text),
        };
        // A control character could end the header and begin another one.
        if !is_address(address) || name.chars().any(char::is_control) {
            return Err(invalid_sender());
        }
        let header = if name.is_empty() {
            address.to_owned()
        } else {
            format!("{} <{address}>", display_phrase(name))
        };
        Ok(Self {
            address: address.to_owned(),
            header,
        })
    }

    /// The domain of its address.
    pub(crate) fn domain(&self) -> &str {
        self.address
            .split_once('@')
            .map_or("localhost", |(_, domain)| domain)
    }
}

/// Text for a header: as it is, or as encoded words (RFC 2047), one on each line.
pub(crate) fn header_words(text: &str) -> String {
    // Short enough for one line of 78 characters with any name of a field.
    if text.len() <= 60
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        // Text that looks like an encoded word would be decoded by mail readers.
        && !text.contains("=?")
    {
        return text.to_owned();
    }
    // A word is cut between characters: each encoded word is decoded by itself (RFC 2047, 5).
    let mut words = vec![String::new()];
    for character in text.chars() {
        match words.last_mut() {
            Some(last) if last.len() + character.len_utf8() <= MAX_ENCODED_WORD_BYTES => {
                last.push(character);
            }
            _ => words.push(character.to_string()),
        }
    }
    let encoded: Vec<String> = words
        .iter()
        .map(|word| format!("=?utf-8?B?{}?=", STANDARD.encode(word)))
        .collect();
    encoded.join("\r\n ")
}

/// A name before an address: as an atom, quoted, or encoded.
fn display_phrase(name: &str) -> String {
    if name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b' ')
    {
        return name.to_owned();
    }
    if name.is_ascii() {
        return format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
    }
    header_words(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_could_break_a_command_are_refused() {
        for valid_address in ["a@example.org", "a.b+c@localhost", "o'neil@x-y.example"] {
            assert!(checked_address(valid_address).is_ok(), "{valid_address}");
        }
        for invalid_address in [
            "",
            "a",
            "@example.org",
            "a@",
            "a@b@c",
            "a..b@example.org",
            ".a@example.org",
            "a@example..org",
            "a@-example.org",
            "a b@example.org",
            "a@example.org> SIZE=1",
            "a@example.org\r\nDATA",
            "a@example.org,b@example.org",
            "\"a\"@example.org",
            "<a@example.org>",
            "é@example.org",
            &format!("{}@example.org", "a".repeat(65)),
            &format!("a@{}", "b.".repeat(130)),
        ] {
            let error = checked_address(invalid_address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{invalid_address}");
        }
    }

    #[test]
    fn message_ids_get_brackets_and_no_other_change() {
        assert_eq!(message_id("<a@b>").unwrap(), "<a@b>");
        assert_eq!(message_id("a@b").unwrap(), "<a@b>");
        for invalid_reference in [
            "",
            "a",
            "<a@b> <c@d>",
            "a@b\r\nBcc: x@y",
            "a@b>\u{a0}c",
            "é@b",
        ] {
            let error = message_id(invalid_reference).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoThread, "{invalid_reference}");
        }
    }

    #[test]
    fn senders_have_names_that_headers_can_hold() {
        let check = |text: &str, header: &str| {
            let sender = MailSender::parse(text).unwrap();
            assert_eq!(
                (sender.header.as_str(), sender.address.as_str()),
                (header, "bot@example.org")
            );
            assert_eq!(sender.domain(), "example.org");
        };
        check("bot@example.org", "bot@example.org");
        check("A Bot <bot@example.org>", "A Bot <bot@example.org>");
        check("\"B, C\" <bot@example.org>", "\"B, C\" <bot@example.org>");
        check(
            "Бот <bot@example.org>",
            "=?utf-8?B?0JHQvtGC?= <bot@example.org>",
        );
        for invalid_from in ["", "bot", "Bot <bot>", "A\r\nB <bot@example.org>"] {
            assert!(MailSender::parse(invalid_from).is_err(), "{invalid_from}");
        }
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        let encoded = header_words(&"é".repeat(50));
        for line in encoded.split("\r\n ") {
            assert!(line.len() <= 75, "{line}");
            let inner = line.strip_prefix("=?utf-8?B?").unwrap();
            let bytes = STANDARD.decode(inner.strip_suffix("?=").unwrap()).unwrap();
            assert!(String::from_utf8(bytes).is_ok());
        }
        assert_ne!(header_words("=?utf-8?B?eA==?="), "=?utf-8?B?eA==?=");
    }
}
