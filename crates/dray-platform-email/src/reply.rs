//! Replies of the server, and what their codes mean (RFC 5321, 4.2; RFC 3463).

use dray_platform::{Error, ErrorKind};

/// Longest text of a reply that is kept for the log, in characters.
const SHOWN: usize = 200;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    /// Its lines without the code.
    pub(crate) lines: Vec<String>,
}

/// What a reply is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Greeting, hello, TLS.
    Hello,
    /// The login.
    Login,
    /// The sender, or the whole mail.
    Mail,
    /// The recipient.
    Recipient,
}

impl Reply {
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
    pub(crate) fn expect(self, code: u16, stage: Stage) -> Result<Self, Error> {
        if self.code == code {
            Ok(self)
        } else {
            Err(self.refused(stage))
        }
    }

    /// The error that it stands for. Every refusal says that nothing was taken.
    pub(crate) fn refused(&self, stage: Stage) -> Error {
        let enhanced = self.enhanced();
        let kind = match (self.code, enhanced) {
            (400..=499, _) => ErrorKind::Transient,
            (530 | 534 | 535 | 538, _) => ErrorKind::Auth,
            (500..=599, _) if stage == Stage::Login => ErrorKind::Auth,
            (_, "5.3.4" | "5.2.3") => ErrorKind::TooLarge,
            // What large providers say of programs and of archives with programs.
            (552, "5.7.0") => ErrorKind::UnsupportedKind,
            (552, enhanced) if enhanced != "5.2.2" => ErrorKind::TooLarge,
            (_, enhanced) if enhanced.starts_with("5.1.") => ErrorKind::NotFound,
            (_, enhanced) if enhanced.starts_with("5.7.") => ErrorKind::Forbidden,
            (550 | 551 | 553, _) if stage == Stage::Recipient => ErrorKind::NotFound,
            (500 | 501 | 555, _) => ErrorKind::BadFormat,
            _ => ErrorKind::Unknown,
        };
        let text: String = self.lines.join(" ");
        let shown: String = text
            .chars()
            .filter(|character| !character.is_control())
            .take(SHOWN)
            .collect();
        let code = if enhanced.is_empty() {
            self.code.to_string()
        } else {
            enhanced.to_owned()
        };
        Error::new(kind, format!("{} {shown}", self.code)).code(code)
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
            let reply = Reply {
                code,
                lines: vec![text.to_owned()],
            };
            let error = reply.refused(stage);
            assert_eq!(
                (error.kind(), error.platform_code()),
                (kind, told),
                "{text}"
            );
            assert_eq!(error.moment(), dray_platform::Moment::NotSent);
        };
        check(421, "4.3.2 shutting down", Stage::Hello, Transient, "4.3.2");
        check(451, "try later", Stage::Mail, Transient, "451");
        check(452, "4.3.1 disk full", Stage::Mail, Transient, "4.3.1");
        check(454, "4.7.0 later", Stage::Login, Transient, "4.7.0");
        check(535, "5.7.8 bad credentials", Stage::Login, Auth, "5.7.8");
        check(504, "mechanism", Stage::Login, Auth, "504");
        check(530, "5.7.0 log in first", Stage::Mail, Auth, "5.7.0");
        check(552, "5.3.4 too big", Stage::Mail, TooLarge, "5.3.4");
        check(552, "too big", Stage::Mail, TooLarge, "552");
        check(554, "5.3.4 too big", Stage::Mail, TooLarge, "5.3.4");
        check(
            552,
            "5.7.0 blocked content",
            Stage::Mail,
            UnsupportedKind,
            "5.7.0",
        );
        check(
            552,
            "5.2.2 mailbox full",
            Stage::Recipient,
            Unknown,
            "5.2.2",
        );
        check(
            550,
            "5.1.1 no such user",
            Stage::Recipient,
            NotFound,
            "5.1.1",
        );
        check(550, "no such user", Stage::Recipient, NotFound, "550");
        check(
            550,
            "5.7.1 not allowed",
            Stage::Recipient,
            Forbidden,
            "5.7.1",
        );
        check(501, "syntax", Stage::Mail, BadFormat, "501");
        check(554, "no", Stage::Mail, Unknown, "554");
        check(250, "5.7 no code", Stage::Mail, Unknown, "250");
    }
}
