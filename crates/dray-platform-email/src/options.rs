//! What an operator can set about e-mail.

use std::path::PathBuf;

use dray_platform::{Error, ErrorKind, Limits};
use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::inbox::options::{InboxOptions, Verify};

/// Largest sum of files in one mail, in bytes: 25 MB at large providers, which take it in base64.
const FILES: u64 = 18_000_000;
/// What a mail is besides its files, in bytes, generously.
const AROUND: u64 = 512 << 10;
/// Longest text, in characters.
const TEXT: usize = 100_000;
/// Most files in one mail.
const COUNT: usize = 20;

/// How the connection is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// `STARTTLS` is demanded before anything else, usually on port 587.
    #[default]
    StartTls,
    /// TLS from the first byte, usually on port 465.
    Tls,
    /// None. A password is sent only to an address of this machine.
    None,
}

/// A sender address and its submission server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Host of the server. Required.
    pub host: String,
    /// Its port. Default 587.
    pub port: u16,
    /// How the connection is protected. Default `starttls`.
    pub security: Security,
    /// User name; without it the client does not log in.
    pub username: String,
    /// Password.
    pub password: Secret,
    /// Sender: `bot@example.org` or `Name <bot@example.org>`. Required.
    pub from: String,
    /// Subject of mails; answers get `Re:` before it.
    pub subject: String,
    /// How we name ourselves to the server. Default `localhost`.
    pub hello: String,
    /// PEM file with further authorities.
    pub ca_file: Option<PathBuf>,
    /// Most bytes of all files of a mail, before their encoding. Default 18 MB; a smaller limit of the server's holds.
    pub upload_limit: Option<ByteSize>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest silence within the conversation. Default `1m`.
    pub idle_timeout: Period,
    /// Longest wait for the answer to a whole mail. Default `5m`.
    pub answer_timeout: Period,
    /// The mailbox in which answers of users arrive; without it nothing is received.
    pub inbox: Option<InboxOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 587,
            security: Security::default(),
            username: String::new(),
            password: Secret::default(),
            from: String::new(),
            subject: "Message for you".to_owned(),
            hello: "localhost".to_owned(),
            ca_file: None,
            upload_limit: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(60),
            answer_timeout: Period::secs(300),
            inbox: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::BadFormat, what));
        if !is_host(&self.host) {
            return wrong("host is missing or no host");
        }
        if !is_host(&self.hello) {
            return wrong("hello is no host");
        }
        if self.subject.chars().any(char::is_control) {
            return wrong("the subject has more than one line");
        }
        if self.security == Security::None && !self.username.is_empty() && !is_near(&self.host) {
            return wrong("a password is not sent over an open connection");
        }
        self.inbox.as_ref().map_or(Ok(()), InboxOptions::check)
    }

    /// Limits with a server that takes mails of so many bytes; 0 when it says nothing.
    pub(crate) fn limits(&self, told: u64) -> Limits {
        let own = self.upload_limit.map_or(FILES, ByteSize::as_u64);
        let any = match told {
            0 => own,
            // 57 bytes become a line of 78.
            told => own.min(told.saturating_sub(AROUND) / 78 * 57),
        };
        Limits {
            routes: Vec::new(),
            any,
            caption: TEXT,
            text: TEXT,
            per_message: COUNT,
            request: Some(any),
            download: None,
        }
    }
}

/// Whether this can be a host's name or address.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte))
}

/// Whether this host is this machine.
pub(crate) fn is_near(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]" | "::1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_limit_holds() {
        let options = Options::default();
        assert_eq!(options.limits(0).any, 18_000_000);
        assert_eq!(options.limits(100 << 20).any, 18_000_000);
        assert_eq!(options.limits(u64::MAX).any, 18_000_000);
        let small = options.limits(10 << 20);
        assert!((6_900_000..7_300_000).contains(&small.any), "{}", small.any);
        assert_eq!(small.request, Some(small.any));
        assert_eq!(options.limits(1000).any, 0);
    }

    #[test]
    fn options_that_cannot_be_are_told() {
        let good = Options {
            host: "mail.example.org".to_owned(),
            username: "bot".to_owned(),
            ..Options::default()
        };
        assert!(good.check().is_ok());
        let check = |change: &dyn Fn(&mut Options)| {
            let mut options = good.clone();
            change(&mut options);
            options.check().map_err(|error| error.kind())
        };
        let wrong = Err(ErrorKind::BadFormat);
        assert_eq!(check(&|options| options.host.clear()), wrong);
        assert_eq!(check(&|options| options.host.push('\n')), wrong);
        assert_eq!(check(&|options| options.hello.push(' ')), wrong);
        assert_eq!(check(&|options| options.subject.push('\r')), wrong);
        assert_eq!(check(&|options| options.security = Security::None), wrong);
        let near = |options: &mut Options| {
            options.security = Security::None;
            "127.0.0.1".clone_into(&mut options.host);
        };
        assert_eq!(check(&near), Ok(()));
    }
}
