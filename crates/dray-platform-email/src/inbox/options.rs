//! The settings of a mailbox.

use dray_platform::{ErrorKind, PlatformError};
use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::ConnectionSecurity;

/// How the sender of a mail is verified, by the results that the receiving mail server wrote into the mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SenderVerification {
    /// DMARC, DKIM or SPF passed for the sender's domain.
    #[default]
    Aligned,
    /// DMARC passed.
    Dmarc,
    /// The sender is not verified: anyone can write under any address. Only for a closed mail system.
    None,
}

/// A mailbox that users write to, read over IMAP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InboxOptions {
    /// Host of the server. Required.
    pub host: String,
    /// The server's port. Default 993.
    pub port: u16,
    /// How the connection is protected. Default `tls`.
    pub security: ConnectionSecurity,
    /// User name. Required.
    pub username: String,
    /// Password of the user at the IMAP server.
    pub password: Secret,
    /// The mailbox, which has no other reader. Default `INBOX`.
    pub mailbox: String,
    /// Who may write: addresses, `@example.org` for all of a domain, `*` for everyone. Without it the inbox is closed.
    pub senders: Vec<String>,
    /// Rule by which senders are verified. Default `aligned`.
    pub verify: SenderVerification,
    /// The name under which the own mail server writes `Authentication-Results`. Required unless `verify` is `none`.
    pub authserv_id: String,
    /// Interval between searches for new mail where the server does not announce it. Default `30s`.
    pub poll_wait: Period,
    /// How long one wait for the server's announcement of new mail lasts; at most `28m`. Default `9m`.
    pub idle_wait: Period,
    /// Most bytes of one attachment. Default 25 MiB.
    pub download_limit: ByteSize,
}

impl Default for InboxOptions {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 993,
            security: ConnectionSecurity::Tls,
            username: String::new(),
            password: Secret::default(),
            mailbox: "INBOX".to_owned(),
            senders: Vec::new(),
            verify: SenderVerification::default(),
            authserv_id: String::new(),
            poll_wait: Period::secs(30),
            idle_wait: Period::secs(540),
            download_limit: ByteSize::mib(25),
        }
    }
}

impl InboxOptions {
    pub(crate) fn check(&self) -> Result<(), PlatformError> {
        let invalid_option =
            |description: &str| Err(PlatformError::new(ErrorKind::BadFormat, description));
        if !crate::options::is_host(&self.host) {
            return invalid_option("inbox.host is missing or not a host name");
        }
        if self.username.is_empty() || self.username.chars().any(char::is_control) {
            return invalid_option("inbox.username is missing or invalid");
        }
        // The rule is the same as for sending: see `is_this_machine`.
        if self.security == ConnectionSecurity::None && !crate::options::is_this_machine(&self.host)
        {
            return invalid_option("a password is not sent over an open connection");
        }
        if self.verify != SenderVerification::None && self.authserv_id.is_empty() {
            return invalid_option(
                "inbox.authserv_id is missing: without it no sender can be verified",
            );
        }
        // RFC 2177: a server may close a connection that idles for 30 minutes, so clients renew it after 29.
        if self.idle_wait > Period::secs(28 * 60) || self.idle_wait == Period::default() {
            return invalid_option("inbox.idle_wait must be above 0 and at most 28m");
        }
        if self.poll_wait == Period::default() {
            return invalid_option("inbox.poll_wait must be above 0");
        }
        // Other names would need the encoding of RFC 3501, section 5.1.3.
        if crate::imap::value::quote_string(&self.mailbox).is_none() {
            return invalid_option("inbox.mailbox must be ASCII");
        }
        Ok(())
    }

    /// Whether this address, in lower case, may write. Without entries no address may.
    pub(crate) fn lists(&self, address: &str) -> bool {
        self.senders.iter().any(|listed| {
            let listed = listed.to_ascii_lowercase();
            match listed.strip_prefix('@') {
                _ if listed == "*" => true,
                Some(domain) => address
                    .split_once('@')
                    .is_some_and(|(_, own)| own == domain),
                None => listed == address,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid_options() -> InboxOptions {
        InboxOptions {
            host: "imap.example.org".to_owned(),
            username: "bot".to_owned(),
            authserv_id: "mx.example.org".to_owned(),
            ..InboxOptions::default()
        }
    }

    #[test]
    fn invalid_options_are_reported() {
        assert!(valid_options().check().is_ok());
        let changes: [fn(&mut InboxOptions); 8] = [
            |options| options.host.clear(),
            |options| options.host.push(' '),
            |options| options.username.clear(),
            |options| options.security = ConnectionSecurity::None,
            |options| options.authserv_id.clear(),
            |options| options.idle_wait = Period::secs(1800),
            |options| options.poll_wait = Period::default(),
            |options| "Вход".clone_into(&mut options.mailbox),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut options = valid_options();
            change(&mut options);
            let error = options.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadFormat, "{index}");
        }
        let unverified = InboxOptions {
            verify: SenderVerification::None,
            authserv_id: String::new(),
            ..valid_options()
        };
        assert!(unverified.check().is_ok());
    }

    #[test]
    fn only_listed_senders_may_write() {
        let lists = |senders: &[&str], address: &str| {
            let options = InboxOptions {
                senders: senders.iter().map(|&sender| sender.to_owned()).collect(),
                ..valid_options()
            };
            options.lists(address)
        };
        assert!(!lists(&[], "ada@example.org"));
        assert!(lists(&["Ada@Example.org"], "ada@example.org"));
        assert!(lists(&["@example.org"], "ada@example.org"));
        assert!(!lists(&["@example.org"], "ada@sub.example.org"));
        assert!(!lists(&["@example.org"], "ada@evilexample.org"));
        assert!(lists(&["*"], "x@y.z"));
    }
}
