//! The settings of an e-mail account.

use dray_platform::{ChatLimits, ErrorKind, PlatformError};
use dray_types::{ByteSize, FileSetting, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::inbox::options::{InboxOptions, SenderVerification};

/// Largest sum of files in one mail, in bytes. Gmail and Yahoo take mails of 25 MB, counted after base64, which makes
/// 78 bytes of 57: 18 MB of files and some text. Outlook.com and iCloud take 20 MB, so their mail may bounce above 14
/// MB.
const MAX_FILES_BYTES: u64 = 18_000_000;
/// Room for the text and the headers of a mail, in bytes.
const OVERHEAD_BYTES: u64 = 512 << 10;
/// Longest text, in characters.
const MAX_TEXT_CHARACTERS: usize = 100_000;
/// Most files in one mail.
const MAX_FILES: usize = 20;

/// Protection of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionSecurity {
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
pub struct EmailOptions {
    /// Host of the server. Required.
    pub host: String,
    /// The server's port. Default 587.
    pub port: u16,
    /// How the connection is protected. Default `starttls`.
    pub security: ConnectionSecurity,
    /// User name; without it the client does not log in.
    pub username: String,
    /// Password of the user at the SMTP server.
    pub password: Secret,
    /// Sender: `bot@example.org` or `Name <bot@example.org>`. Required.
    pub from: String,
    /// Subject of mails; answers get `Re:` before it.
    pub subject: String,
    /// Name of this client in the command `EHLO`. Default `localhost`.
    pub hello: String,
    /// PEM file with additional certificate authorities.
    pub ca_file: Option<FileSetting>,
    /// Most bytes of all files of a mail, before their encoding. Default 18 MB, which mailboxes with a limit of 25 MB
    /// accept; 14 MB for mailboxes with 20 MB. A smaller limit of the server (`SIZE`) applies.
    pub upload_limit: Option<ByteSize>,
    /// Time to connect, TLS included. Default `10s`.
    pub connect_timeout: Period,
    /// Longest time without a byte during the conversation. Default `1m`.
    pub idle_timeout: Period,
    /// Longest wait for the response to a whole mail. Default `5m`.
    pub response_timeout: Period,
    /// The mailbox in which answers of users arrive; without it no messages are received.
    pub inbox: Option<InboxOptions>,
}

impl Default for EmailOptions {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 587,
            security: ConnectionSecurity::default(),
            username: String::new(),
            password: Secret::default(),
            from: String::new(),
            subject: "Message for you".to_owned(),
            hello: "localhost".to_owned(),
            ca_file: None,
            upload_limit: None,
            connect_timeout: Period::secs(10),
            idle_timeout: Period::secs(60),
            response_timeout: Period::secs(300),
            inbox: None,
        }
    }
}

impl EmailOptions {
    /// Checks the options without the network.
    pub(crate) fn check(&self) -> Result<(), PlatformError> {
        let invalid_option =
            |description: &str| Err(PlatformError::new(ErrorKind::BadFormat, description));
        if !is_host(&self.host) {
            return invalid_option("host is missing or not a host name");
        }
        // The name becomes a part of the command `EHLO`.
        if !is_host(&self.hello) {
            return invalid_option("hello is not a host name");
        }
        // A line end would begin a new header.
        if self.subject.chars().any(char::is_control) {
            return invalid_option("the subject has more than one line");
        }
        if self.security == ConnectionSecurity::None
            && !self.username.is_empty()
            && !is_this_machine(&self.host)
        {
            return invalid_option("a password is not sent over an open connection");
        }
        self.inbox.as_ref().map_or(Ok(()), InboxOptions::check)
    }

    /// Limits for the size of a mail that the server announced, in bytes; 0 for no limit.
    pub(crate) fn limits(&self, announced_limit: u64) -> ChatLimits {
        let own = self.upload_limit.map_or(MAX_FILES_BYTES, ByteSize::as_u64);
        let any = match announced_limit {
            0 => own,
            // 57 bytes become a line of 78.
            announced_limit => own.min(announced_limit.saturating_sub(OVERHEAD_BYTES) / 78 * 57),
        };
        ChatLimits {
            routes: Vec::new(),
            any,
            caption: MAX_TEXT_CHARACTERS,
            text: MAX_TEXT_CHARACTERS,
            per_message: MAX_FILES,
            // All files of a mail travel together, so their sum has the limit of one.
            request: Some(any),
            download: None,
        }
    }
}

/// Whether this can be the name or the address of a host.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte))
}

/// Whether this host is this machine, so that a password cannot be intercepted.
pub(crate) fn is_this_machine(host: &str) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "[::1]" | "::1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_both_limits_applies() {
        let options = EmailOptions::default();
        assert_eq!(options.limits(0).any, 18_000_000);
        assert_eq!(options.limits(100 << 20).any, 18_000_000);
        assert_eq!(options.limits(u64::MAX).any, 18_000_000);
        let small = options.limits(10 << 20);
        assert!((6_900_000..7_300_000).contains(&small.any), "{}", small.any);
        assert_eq!(small.request, Some(small.any));
        assert_eq!(options.limits(1000).any, 0);
    }

    #[test]
    fn invalid_options_are_reported() {
        let valid = EmailOptions {
            host: "mail.example.org".to_owned(),
            username: "bot".to_owned(),
            ..EmailOptions::default()
        };
        assert!(valid.check().is_ok());
        let check = |change: &dyn Fn(&mut EmailOptions)| {
            let mut options = valid.clone();
            change(&mut options);
            options.check().map_err(|error| error.kind())
        };
        let bad_format = Err(ErrorKind::BadFormat);
        assert_eq!(check(&|options| options.host.clear()), bad_format);
        assert_eq!(check(&|options| options.host.push('\n')), bad_format);
        assert_eq!(check(&|options| options.hello.push(' ')), bad_format);
        assert_eq!(check(&|options| options.subject.push('\r')), bad_format);
        assert_eq!(
            check(&|options| options.security = ConnectionSecurity::None),
            bad_format
        );
        let on_loopback = |options: &mut EmailOptions| {
            options.security = ConnectionSecurity::None;
            "127.0.0.1".clone_into(&mut options.host);
        };
        assert_eq!(check(&on_loopback), Ok(()));
    }
}
