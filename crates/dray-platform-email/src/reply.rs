//! Replies of a submission server, and the meaning of their codes (RFC 5321, 4.2; RFC 3463).

use std::time::Duration;

use dray_platform::{ErrorKind, PlatformError};

/// Longest text of a reply that is kept for the log, in characters.
const MAX_SHOWN_CHARACTERS: usize = 200;

/// Delay before a mail is offered again after 450 or 451, the replies of greylisting (RFC 6647): servers refuse an unknown
/// sender for one to five minutes, and each earlier offer may begin that time again.
const GREYLISTING_DELAY: Duration = Duration::from_mins(5);

/// A reply of one or more lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmtpReply {
    pub(crate) code: u16,
    /// The reply's lines without the code and the separator.
    pub(crate) lines: Vec<String>,
}

/// The command to which a reply belongs, because the same code means different things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmtpStage {
    /// Greeting, `EHLO` and `STARTTLS`.
    Hello,
    /// `AUTH` and the lines that follow it.
    Login,
    /// `MAIL FROM`, or the complete mail.
    Mail,
    /// `RCPT TO`: the only stage in which a refusal is about the address.
    Recipient,
}

impl SmtpReply {
    /// The enhanced code, such as `5.1.1`; may be empty.
    fn enhanced(&self) -> &str {
        let first = self.lines.first().map_or("", String::as_str);
        let word = first.split_whitespace().next().unwrap_or_default();
        let mut parts = word.split('.');
        let is_code = parts.clone().count() == 3
            && word.starts_with(['2', '4', '5'])
            && parts.all(|part| {
                (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
            });
        if is_code { word } else { "" }
    }

    /// Returns the reply if it has this code, or the corresponding error.
    pub(crate) fn expect(self, code: u16, stage: SmtpStage) -> Result<Self, PlatformError> {
        if self.code == code {
            Ok(self)
        } else {
            Err(self.refusal_error(stage))
        }
    }

    /// The error for a refusal. The server has not accepted the mail, so it is never ambiguous.
    pub(crate) fn refusal_error(&self, stage: SmtpStage) -> PlatformError {
        let enhanced = self.enhanced();
        let kind = match (self.code, enhanced) {
            // 4xx requests another attempt later; greylisting works like this.
            (400..=499, _) => ErrorKind::Transient,
            (530 | 534 | 535 | 538, _) => ErrorKind::Auth,
            (500..=599, _) if stage == SmtpStage::Login => ErrorKind::Auth,
            (_, "5.3.4" | "5.2.3") => ErrorKind::TooLarge,
            // Large providers refuse programs, and archives that contain programs, with this code.
            (552, "5.7.0") => ErrorKind::UnsupportedKind,
            (_, enhanced) if enhanced.starts_with("5.1.") => ErrorKind::NotFound,
            (_, enhanced) if enhanced.starts_with("5.7.") => ErrorKind::Forbidden,
            // 5.2.2 is a full mailbox, which a smaller file does not help.
            (552, enhanced) if enhanced != "5.2.2" => ErrorKind::TooLarge,
            (550 | 551 | 553, enhanced) if stage == SmtpStage::Recipient && enhanced != "5.2.2" => {
                ErrorKind::NotFound
            }
            (500 | 501 | 555, _) => ErrorKind::BadFormat,
            _ => ErrorKind::Unknown,
        };
        // The text is for the log: it may quote text of other people.
        let text: String = self.lines.join(" ");
        let printable: String = text
            .chars()
            .filter(|character| !character.is_control())
            .take(MAX_SHOWN_CHARACTERS)
            .collect();
        let code = if enhanced.is_empty() {
            self.code.to_string()
        } else {
            enhanced.to_owned()
        };
        let error = PlatformError::new(kind, format!("{} {printable}", self.code)).code(code);
        let is_greylisting = matches!(self.code, 450 | 451)
            && matches!(stage, SmtpStage::Mail | SmtpStage::Recipient);
        if is_greylisting {
            return error.with_retry_after(GREYLISTING_DELAY);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use ErrorKind::{
        Auth, BadFormat, Forbidden, NotFound, TooLarge, Transient, Unknown, UnsupportedKind,
    };

    use super::*;

    /// Code, text and stage of a refusal, and the kind and code that it has as an error.
    type RefusalCase = (u16, &'static str, SmtpStage, ErrorKind, &'static str);

    const REFUSAL_CASES: &[RefusalCase] = &[
        (
            421,
            "4.3.2 shutting down",
            SmtpStage::Hello,
            Transient,
            "4.3.2",
        ),
        (451, "try later", SmtpStage::Mail, Transient, "451"),
        (452, "4.3.1 disk full", SmtpStage::Mail, Transient, "4.3.1"),
        (454, "4.7.0 later", SmtpStage::Login, Transient, "4.7.0"),
        (
            535,
            "5.7.8 bad credentials",
            SmtpStage::Login,
            Auth,
            "5.7.8",
        ),
        (504, "mechanism", SmtpStage::Login, Auth, "504"),
        (530, "5.7.0 log in first", SmtpStage::Mail, Auth, "5.7.0"),
        (552, "5.3.4 too big", SmtpStage::Mail, TooLarge, "5.3.4"),
        (552, "too big", SmtpStage::Mail, TooLarge, "552"),
        (554, "5.3.4 too big", SmtpStage::Mail, TooLarge, "5.3.4"),
        (
            552,
            "5.7.0 blocked content",
            SmtpStage::Mail,
            UnsupportedKind,
            "5.7.0",
        ),
        (
            552,
            "5.7.1 refused by policy",
            SmtpStage::Mail,
            Forbidden,
            "5.7.1",
        ),
        (
            552,
            "5.2.2 mailbox full",
            SmtpStage::Recipient,
            Unknown,
            "5.2.2",
        ),
        (
            550,
            "5.2.2 mailbox full",
            SmtpStage::Recipient,
            Unknown,
            "5.2.2",
        ),
        (
            550,
            "5.1.1 no such user",
            SmtpStage::Recipient,
            NotFound,
            "5.1.1",
        ),
        (550, "no such user", SmtpStage::Recipient, NotFound, "550"),
        (
            550,
            "5.7.1 not allowed",
            SmtpStage::Recipient,
            Forbidden,
            "5.7.1",
        ),
        (501, "syntax", SmtpStage::Mail, BadFormat, "501"),
        (554, "no", SmtpStage::Mail, Unknown, "554"),
        (250, "5.7 no code", SmtpStage::Mail, Unknown, "250"),
    ];

    #[test]
    fn greylisting_is_waited_for_and_other_refusals_are_not() {
        for (code, stage, expected) in [
            (450, SmtpStage::Recipient, Some(GREYLISTING_DELAY)),
            (451, SmtpStage::Recipient, Some(GREYLISTING_DELAY)),
            (451, SmtpStage::Mail, Some(GREYLISTING_DELAY)),
            (421, SmtpStage::Hello, None),
            (454, SmtpStage::Login, None),
            (452, SmtpStage::Mail, None),
            (550, SmtpStage::Recipient, None),
        ] {
            let reply = SmtpReply {
                code,
                lines: vec!["4.7.1 come back later".to_owned()],
            };
            let error = reply.refusal_error(stage);
            assert_eq!(error.retry_after(), expected, "{code}");
        }
    }

    #[test]
    fn codes_have_their_kinds() {
        for &(code, text, stage, kind, reported) in REFUSAL_CASES {
            let reply = SmtpReply {
                code,
                lines: vec![text.to_owned()],
            };
            let error = reply.refusal_error(stage);
            assert_eq!(
                (error.kind(), error.platform_code()),
                (kind, reported),
                "{text}"
            );
            assert_eq!(error.send_outcome(), dray_platform::SendOutcome::NotSent);
        }
    }
}
