//! A mail as a message of a user: its sender, its conversation, and its attachments.

use dray_platform::{DeliveryTarget, InboundAttachment, InboundMessage};
use dray_presentation::size;
use mail_parser::{Address, HeaderValue, Message, MessageParser};
use serde::{Deserialize, Serialize};

use super::options::InboxOptions;
use super::{auth, text};
use crate::PLATFORM_NAME;
use crate::address::{self, MailSender};
use crate::imap::structure::BodyPart;

/// Longest message id that is kept, in bytes.
const MAX_ID_BYTES: usize = 400;
/// Longest tag that is kept, in bytes.
const MAX_TAG_BYTES: usize = 64;

/// Location of a mail in the mailbox: `UIDVALIDITY` and `UID`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MailLocation {
    pub(super) validity: u64,
    pub(super) uid: u64,
}

/// The reference of an attachment: where it is now, and how its mail is found again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttachmentReference {
    /// `UIDVALIDITY` and `UID` of its mail.
    pub(super) validity: u64,
    pub(super) uid: u64,
    /// `Message-ID` of its mail, in case the numbers above have changed; may be empty.
    pub(super) id: String,
    /// The attachment's section; empty for the complete mail.
    pub(super) section: String,
    /// The attachment's transfer encoding, in lower case.
    pub(super) encoding: String,
    /// The attachment's length in the transfer encoding, in bytes.
    pub(super) octets: u64,
}

/// The sender and the conversation from the head of a mail.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MailHead {
    sender: String,
    id: String,
    thread: String,
    subject: String,
}

impl MailHead {
    /// Reads a head, or returns why the mail is not accepted. The reasons are for the log.
    pub(super) fn read(
        options: &InboxOptions,
        own: &MailSender,
        head: &[u8],
    ) -> Result<Self, &'static str> {
        let mail = MessageParser::default().parse(head);
        let mail = mail.ok_or("could not parse the header")?;
        let sender = sender_address(&mail)?;
        // Replying to own mails would never end.
        if sender.eq_ignore_ascii_case(&own.address) {
            return Err("the mail was sent by this account");
        }
        if is_automatic(&mail) {
            return Err("the mail was sent by a program");
        }
        if !options.lists(&sender) {
            return Err("the sender is not listed");
        }
        let domain = sender.split_once('@').map_or("", |(_, domain)| domain);
        // The domain of `From`, which readers show, not that of the envelope.
        let results = raw_fields(&mail, "Authentication-Results");
        if let Some(doubt) =
            auth::sender_doubt(options.verify, &options.authserv_id, domain, results)
        {
            return Err(doubt);
        }
        let references = message_ids(mail.references());
        let replied_to = message_ids(mail.in_reply_to());
        // `References` begins with the first mail of the thread; `In-Reply-To` names only the last one.
        let root = references.first().or(replied_to.first());
        Ok(Self {
            // A tag was set by a reply of this account, so it is a safer name of the conversation than ids.
            thread: recipient_tag(&mail, own)
                .or(root.cloned())
                .unwrap_or_default(),
            id: mail.message_id().and_then(message_id).unwrap_or_default(),
            subject: mail.subject().unwrap_or_default().trim().to_owned(),
            sender,
        })
    }

    /// The message, with the text of the mail. A mail whose structure cannot be parsed is attached completely.
    pub(super) fn message(
        self,
        options: &InboxOptions,
        location: MailLocation,
        mail_text: &str,
        (parts, octets): (Option<&[BodyPart]>, u64),
    ) -> InboundMessage {
        let whole = [BodyPart {
            media_type: "message/rfc822".to_owned(),
            octets,
            ..BodyPart::default()
        }];
        let parts = parts.unwrap_or(&whole);
        let attachments = parts
            .iter()
            .filter(|part| !part.is_text())
            .chain(text::incomplete_texts(parts))
            .map(|part| self.attachment(options, location, part))
            .collect();
        let mail_text = mail_text.trim();
        let message_text = match (self.subject.as_str(), mail_text) {
            ("", mail_text) => mail_text.to_owned(),
            (subject, "") => subject.to_owned(),
            (subject, mail_text) => format!("{subject}\n\n{mail_text}"),
        };
        InboundMessage {
            target: DeliveryTarget {
                platform: PLATFORM_NAME.to_owned(),
                account: String::new(),
                chat: self.sender.clone(),
                thread: self.thread,
                reply_to: String::new(),
            },
            // A mail without an id still needs one: the same mail must give the same message.
            message_id: if self.id.is_empty() {
                format!("uid-{}-{}", location.validity, location.uid)
            } else {
                self.id
            },
            sender: self.sender,
            text: message_text,
            attachments,
        }
    }

    fn attachment(
        &self,
        options: &InboxOptions,
        location: MailLocation,
        part: &BodyPart,
    ) -> InboundAttachment {
        let kind = match part.media_type.split('/').next() {
            Some("image") => "photo",
            Some("audio") => "audio",
            Some("video") => "video",
            _ => "document",
        };
        let reference = AttachmentReference {
            validity: location.validity,
            uid: location.uid,
            id: self.id.clone(),
            section: part.section.clone(),
            // The text is limited, because it comes from the mail and is stored with the message.
            encoding: part.encoding.chars().take(32).collect(),
            octets: part.octets,
        };
        let (bytes, limit) = (part.decoded_bytes(), options.download_limit.as_u64());
        let unavailable = if bytes > limit {
            format!("too large ({})", size::over_limit(bytes, limit))
        } else {
            String::new()
        };
        InboundAttachment {
            id: part.section.clone(),
            name: display_name(part),
            size: bytes,
            media_type: part.media_type.clone(),
            reference: serde_json::to_string(&reference).unwrap_or_default(),
            kind: kind.to_owned(),
            unavailable,
        }
    }
}

/// The shown name of a part. Encoded words (RFC 2047) are decoded, although parameters should not have them: many
/// programs write them.
fn display_name(part: &BodyPart) -> String {
    if part.name.contains("=?") {
        // The name is read as a subject, because the parser decodes encoded words there.
        let head = format!("Subject: {}\r\n\r\n", part.name.replace(['\r', '\n'], " "));
        let read = MessageParser::default().parse(head.as_bytes());
        if let Some(name) = read.as_ref().and_then(Message::subject) {
            return name.to_owned();
        }
    }
    match (part.name.as_str(), part.media_type.as_str()) {
        ("", "message/rfc822") => "message.eml".to_owned(),
        ("", "text/html") => "attachment.html".to_owned(),
        ("", "text/plain") => "attachment.txt".to_owned(),
        ("", "text/calendar") => "attachment.ics".to_owned(),
        ("", _) => "attachment".to_owned(),
        (name, _) => name.to_owned(),
    }
}

/// The only sender, in lower case.
fn sender_address(mail: &Message<'_>) -> Result<String, &'static str> {
    let fields = raw_fields(mail, "From").count();
    let list = mail.from().and_then(Address::as_list).unwrap_or_default();
    // With several addresses, the shown one may differ from the verified one.
    let ([from], 1) = (list, fields) else {
        return Err("the mail does not have exactly one sender");
    };
    let address = from.address().unwrap_or_default().to_ascii_lowercase();
    match address::checked_address(&address) {
        Ok(_) => Ok(address),
        Err(_) => Err("the sender's address cannot be answered"),
    }
}

/// Values of a field, topmost first, not decoded.
pub(super) fn raw_fields<'a>(
    mail: &'a Message<'_>,
    name: &'static str,
) -> impl Iterator<Item = &'a str> {
    mail.headers_raw()
        .filter(move |(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

/// Whether a program wrote the mail: replies to such mails cause loops (RFC 3834).
fn is_automatic(mail: &Message<'_>) -> bool {
    let has_value = |name, is_match: &dyn Fn(&str) -> bool| {
        raw_fields(mail, name).any(|value| {
            let value = value.trim().to_ascii_lowercase();
            is_match(value.split([';', ' ']).next().unwrap_or_default())
        })
    };
    // Everything but `no` is automatic (RFC 3834, section 5).
    has_value("Auto-Submitted", &|value| value != "no")
        || has_value("Precedence", &|value| {
            matches!(value, "bulk" | "list" | "junk")
        })
        || has_value("List-Id", &|_| true)
        // The empty reverse path of bounces (RFC 5321, section 4.5.5).
        || has_value("Return-Path", &|value| value == "<>")
}

/// The tag of the address to which the mail was sent: `+tag` for `bot+tag@example.org`.
fn recipient_tag(mail: &Message<'_>, own: &MailSender) -> Option<String> {
    let (local, domain) = own.address.split_once('@')?;
    let recipients = [mail.to(), mail.cc()].into_iter().flatten();
    // Blind copies name the address only here.
    let delivered = ["Delivered-To", "X-Original-To"];
    let delivered = delivered
        .into_iter()
        .flat_map(|name| raw_fields(mail, name));
    let addresses = recipients
        .flat_map(Address::iter)
        .filter_map(|recipient| recipient.address().map(str::to_owned))
        .chain(delivered.map(|value| value.trim().trim_matches(['<', '>']).to_owned()));
    addresses.into_iter().find_map(|address| {
        let (mailbox, mailbox_domain) = address.rsplit_once('@')?;
        let (local_part, tag) = mailbox.split_once('+')?;
        let is_ours =
            local_part.eq_ignore_ascii_case(local) && mailbox_domain.eq_ignore_ascii_case(domain);
        (is_ours && is_tag(tag)).then(|| format!("+{}", tag.to_ascii_lowercase()))
    })
}

/// Whether this can be the tag of a conversation: it becomes a part of an address.
pub(crate) fn is_tag(tag: &str) -> bool {
    (1..=MAX_TAG_BYTES).contains(&tag.len())
        && tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && !tag.starts_with('.')
        && !tag.ends_with('.')
        && !tag.contains("..")
}

fn message_ids(value: &HeaderValue<'_>) -> Vec<String> {
    match value {
        HeaderValue::Text(text) => message_id(text).into_iter().collect(),
        HeaderValue::TextList(all) => all.iter().filter_map(|text| message_id(text)).collect(),
        _ => Vec::new(),
    }
}

/// A message id in its brackets, if it can be sent back in a header.
fn message_id(text: &str) -> Option<String> {
    address::message_id(text)
        .ok()
        .filter(|id| id.len() <= MAX_ID_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::options::SenderVerification;

    fn options() -> InboxOptions {
        InboxOptions {
            senders: vec!["@example.org".to_owned()],
            authserv_id: "mx.our.example".to_owned(),
            ..InboxOptions::default()
        }
    }

    fn read(fields: &str) -> Result<MailHead, &'static str> {
        let own = MailSender::parse("Bot <bot@our.example>").unwrap();
        let head = format!("{fields}\r\n\r\n")
            .replace('\n', "\r\n")
            .replace("\r\r", "\r");
        MailHead::read(&options(), &own, head.as_bytes())
    }

    const PASSING_RESULTS: &str =
        "Authentication-Results: mx.our.example; dmarc=pass header.from=example.org
From: Ada <Ada@Example.org>
To: bot@our.example
Subject: =?utf-8?B?0J7RgtGH0ZHRgg==?=
Message-ID: <1@example.org>";

    #[test]
    fn a_mail_of_a_listed_and_verified_sender_is_accepted() {
        let head = read(PASSING_RESULTS).unwrap();
        assert_eq!(
            head,
            MailHead {
                sender: "ada@example.org".to_owned(),
                id: "<1@example.org>".to_owned(),
                thread: String::new(),
                subject: "Отчёт".to_owned(),
            }
        );
    }

    #[test]
    fn refused_mails_have_a_reason() {
        for (change, expected) in [
            ("From: Eve <eve@evil.example>", "exactly one"),
            ("Auto-Submitted: auto-replied", "program"),
            ("Precedence: bulk", "program"),
            ("List-Id: <l.example.org>", "program"),
            ("Return-Path: <>", "program"),
        ] {
            let reason = read(&format!("{change}\n{PASSING_RESULTS}")).unwrap_err();
            assert!(reason.contains(expected), "{change}: {reason}");
        }
        let from =
            |from: &str| read(&PASSING_RESULTS.replace("Ada <Ada@Example.org>", from)).unwrap_err();
        for (sender, expected) in [
            ("eve@evil.example", "not listed"),
            ("ada@example.org, eve@evil.example", "exactly one"),
            ("Bot <BOT@our.example>", "this account"),
            ("nobody", "cannot be answered"),
            ("\"a b\"@example.org", "cannot be answered"),
            ("\"ada@example.org\" <eve@evil.example>", "not listed"),
        ] {
            assert!(
                from(sender).contains(expected),
                "{sender}: {}",
                from(sender)
            );
        }
        let forged = PASSING_RESULTS.replace("mx.our.example", "mx.evil.example");
        assert!(read(&forged).unwrap_err().contains("did not verify"));
        assert!(read("").is_err());
    }

    #[test]
    fn replies_belong_to_their_conversation() {
        let thread = |more: &str| read(&format!("{PASSING_RESULTS}\n{more}")).unwrap().thread;
        assert_eq!(thread("In-Reply-To: <k@our.example>"), "<k@our.example>");
        assert_eq!(
            thread("References: <root@x.example>\n <k@our.example>\nIn-Reply-To: <k@our.example>"),
            "<root@x.example>"
        );
        assert_eq!(thread("References: nonsense"), "");
        let to = |to: &str| {
            read(&PASSING_RESULTS.replace("To: bot@our", to))
                .unwrap()
                .thread
        };
        assert_eq!(to("To: x@y.example, bot+Case-7@our"), "+case-7");
        assert_eq!(to("References: <a@b>\nCc: bot+t@our"), "+t");
        assert_eq!(to("Delivered-To: bot+t@our"), "+t");
        for recipient in [
            "To: bot+@our",
            "To: bot+a/b@our",
            "To: other+t@our",
            "To: bot+t@evil.our",
        ] {
            assert_eq!(to(recipient), "", "{recipient}");
        }
    }

    #[test]
    fn senders_are_not_verified_when_verification_is_off() {
        let own = MailSender::parse("bot@our.example").unwrap();
        let without_verification = InboxOptions {
            verify: SenderVerification::None,
            ..options()
        };
        let head = b"From: ada@example.org\r\n\r\n";
        assert!(MailHead::read(&without_verification, &own, head).is_ok());
        assert!(MailHead::read(&options(), &own, head).is_err());
    }

    #[test]
    fn a_mail_without_structure_is_one_file() {
        let location = MailLocation {
            validity: 7,
            uid: 3,
        };
        let message = read(PASSING_RESULTS)
            .unwrap()
            .message(&options(), location, "", (None, 500));
        assert_eq!(message.text, "Отчёт");
        let file = &message.attachments[0];
        assert_eq!((file.name.as_str(), file.size), ("message.eml", 500));
        let reference: AttachmentReference = serde_json::from_str(&file.reference).unwrap();
        assert_eq!((reference.section.as_str(), reference.uid), ("", 3));
    }

    #[test]
    fn names_of_files_are_decoded_and_never_missing() {
        let part = |name: &str, media_type: &str| BodyPart {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            ..BodyPart::default()
        };
        assert_eq!(display_name(&part("=?utf-8?B?0L4uY3N2?=", "a/b")), "о.csv");
        assert_eq!(display_name(&part("a.csv", "text/plain")), "a.csv");
        assert_eq!(display_name(&part("", "message/rfc822")), "message.eml");
        assert_eq!(display_name(&part("", "image/png")), "attachment");
    }
}
