//! Replies of the server, and what their codes mean (RFC 5321, 4.2; RFC 3463).

use dray_platform::{ErrorKind, PlatformError};

/// Longest text of a reply that is kept for the log, in characters.
const MAX_SHOWN_CHARACTERS: usize = 200;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SmtpReply {
    pub(crate) code: u16,
    /// Its lines without the code.
    pub(crate) lines: Vec<String>,
}

/// What a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmtpStage {
    /// Greeting, hello, TLS.
    Hello,
    /// The login.
    Login,
    /// The sender, or the whole mail.
    Mail,
    /// The recipient.
    Recipient,
}

impl SmtpReply {
    /// The enhanced code, when there is one.
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

    /// Itself, when it has this code.
    pub(crate) fn expect(self, code: u16, stage: SmtpStage) -> Result<Self, PlatformError> {
        if self.code == code {
            Ok(self)
        } else {
            Err(self.refused(stage))
        }
    }

    /// The error that it stands for. Every refusal says that nothing was taken.
    pub(crate) fn refused(&self, stage: SmtpStage) -> PlatformError {
        let enhanced = self.enhanced();
        let kind = match (self.code, enhanced) {
            (400..=499, _) => ErrorKind::Transient,
            (530 | 534 | 535 | 538, _) => ErrorKind::Auth,
            (500..=599, _) if stage == SmtpStage::Login => ErrorKind::Auth,
            (_, "5.3.4" | "5.2.3") => ErrorKind::TooLarge,
            // What large providers say of programs and of archives with programs.
            (552, "5.7.0") => ErrorKind::UnsupportedKind,
            (552, enhanced) if enhanced != "5.2.2" => ErrorKind::TooLarge,
            (_, enhanced) if enhanced.starts_with("5.1.") => ErrorKind::NotFound,
            (_, enhanced) if enhanced.starts_with("5.7.") => ErrorKind::Forbidden,
            (550 | 551 | 553, _) if stage == SmtpStage::Recipient => ErrorKind::NotFound,
            (500 | 501 | 555, _) => ErrorKind::BadFormat,
            _ => ErrorKind::Unknown,
        };
        let text: String = self.lines.join(" ");
        let shown: String = text
            .chars()
            .filter(|character| !character.is_control())
            .take(MAX_SHOWN_CHARACTERS)
            .collect();
        let code = if enhanced.is_empty() {
            self.code.to_string()
        } else {
            enhanced.to_owned()
        };
        PlatformError::new(kind, format!("{} {shown}", self.code)).code(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_kinds() {
        use ErrorKind::{
            Auth, BadFormat, Forbidden, NotFound, TooLarge, Transient, Unknown, UnsupportedKind,
        };
        let check = |code, text: &str, stage, kind, told: &str| {
            let reply = SmtpReply {
                code,
                lines: vec![text.to_owned()],
            };
            let error = reply.refused(stage);
            assert_eq!(
                (error.kind(), error.platform_code()),
                (kind, told),
                "{text}"
            );
            assert_eq!(error.moment(), dray_platform::SendOutcome::NotSent);
        };
        check(
            421,
            "4.3.2 shutting down",
            SmtpStage::Hello,
            Transient,
            "4.3.2",
        );
        check(451, "try later", SmtpStage::Mail, Transient, "451");
        check(452, "4.3.1 disk full", SmtpStage::Mail, Transient, "4.3.1");
        check(454, "4.7.0 later", SmtpStage::Login, Transient, "4.7.0");
        check(
            535,
            "5.7.8 bad credentials",
            SmtpStage::Login,
            Auth,
            "5.7.8",
        );
        check(504, "mechanism", SmtpStage::Login, Auth, "504");
        check(530, "5.7.0 log in first", SmtpStage::Mail, Auth, "5.7.0");
        check(552, "5.3.4 too big", SmtpStage::Mail, TooLarge, "5.3.4");
        check(552, "too big", SmtpStage::Mail, TooLarge, "552");
        check(554, "5.3.4 too big", SmtpStage::Mail, TooLarge, "5.3.4");
        check(
            552,
            "5.7.0 blocked content",
            SmtpStage::Mail,
            UnsupportedKind,
            "5.7.0",
        );
        check(
            552,
            "5.2.2 mailbox full",
            SmtpStage::Recipient,
            Unknown,
            "5.2.2",
        );
        check(
            550,
            "5.1.1 no such user",
            SmtpStage::Recipient,
            NotFound,
            "5.1.1",
        );
        check(550, "no such user", SmtpStage::Recipient, NotFound, "550");
        check(
            550,
            "5.7.1 not allowed",
            SmtpStage::Recipient,
            Forbidden,
            "5.7.1",
        );
        check(501, "syntax", SmtpStage::Mail, BadFormat, "501");
        check(554, "no", SmtpStage::Mail, Unknown, "554");
        check(250, "5.7 no code", SmtpStage::Mail, Unknown, "250");
    }
}
