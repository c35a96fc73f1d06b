//! Reports that a mail of this account could not be delivered (RFC 3464).

use dray_platform::StatusUpdate;
use mail_parser::MessageParser;

use super::decode::PartDecoder;
use super::mail::raw_fields;
use crate::address;
use crate::imap::structure::BodyPart;

/// Most bytes of each part of a report that are read.
pub(super) const MAX_PART_BYTES: u64 = 64 * 1024;
/// Longest enhanced status code, such as `5.1.1` (RFC 3463, section 2).
const MAX_CODE_CHARACTERS: usize = 9;

/// Whether the mail with this head is a report about the delivery of another mail.
pub(super) fn is_report(head: &[u8]) -> bool {
    let Some(mail) = MessageParser::default().parse(head) else {
        return false;
    };
    raw_fields(&mail, "Content-Type").any(|value| {
        let value = value.to_ascii_lowercase();
        value.contains("multipart/report") && value.contains("delivery-status")
    })
}

/// The part of a report with the outcome, and the part with the mail that it is about.
pub(super) fn report_parts(parts: &[BodyPart]) -> Option<(&BodyPart, &BodyPart)> {
    let find = |media_types: &[&str]| {
        let is_listed = |part: &&BodyPart| media_types.contains(&part.media_type.as_str());
        parts.iter().find(is_listed)
    };
    let outcome = find(&["message/delivery-status", "message/global-delivery-status"])?;
    // Many servers return the header alone.
    let mail = find(&["message/rfc822", "text/rfc822-headers", "message/global"])?;
    Some((outcome, mail))
}

/// The bytes of a part, without its transfer encoding.
pub(super) fn decoded(part: &BodyPart, bytes: &[u8]) -> Vec<u8> {
    let mut decoder = PartDecoder::new(&part.encoding);
    let mut decoded = decoder.push(bytes);
    decoded.extend(decoder.finish());
    decoded
}

/// The failure that a report is about, from its two parts. `None` for a delay or a success, and for a mail without an id.
pub(super) fn reported_failure(outcome: &[u8], mail: &[u8]) -> Option<StatusUpdate> {
    let outcome = String::from_utf8_lossy(outcome);
    // Mails of this account have one recipient, so the first value is the only one.
    let field = |name: &str| {
        let mut values = outcome.lines().filter_map(|line| {
            let (field, value) = line.split_once(':')?;
            let is_field = field.trim().eq_ignore_ascii_case(name);
            is_field.then(|| value.trim().to_ascii_lowercase())
        });
        values.next().unwrap_or_default()
    };
    if field("Action") != "failed" {
        return None;
    }
    let mail = MessageParser::default().parse(mail)?;
    let message_id = address::message_id(mail.message_id()?).ok()?;
    let status = field("Status");
    // A comment may follow the code.
    let is_of_code = |character: &char| character.is_ascii_digit() || *character == '.';
    let code: String = status.chars().take_while(is_of_code).collect();
    let is_code = (1..=MAX_CODE_CHARACTERS).contains(&code.len());
    Some(StatusUpdate {
        message_id,
        status: "failed".to_owned(),
        // 5.0.0: a failure that has no code of its own.
        code: if is_code { code } else { "5.0.0".to_owned() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_of_deliveries_are_reports() {
        let head = |content_type: &str| {
            format!("From: a@b.example\r\nContent-Type: {content_type}\r\n\r\n")
        };
        let report = "multipart/report; boundary=b;\r\n report-type=\"delivery-status\"";
        assert!(is_report(head(report).as_bytes()));
        for other in [
            "multipart/report; report-type=disposition-notification; boundary=b",
            "multipart/mixed; boundary=delivery-status",
            "text/plain",
        ] {
            assert!(!is_report(head(other).as_bytes()), "{other}");
        }
        assert!(!is_report(b""));
    }

    #[test]
    fn failures_name_the_mail_and_the_code() {
        let original = b"Message-ID: <key@our.example>\r\nSubject: Files\r\n\r\n";
        let outcome = |action: &str, status: &str| {
            let fields =
                format!("Reporting-MTA: dns; mx\r\n\r\nAction: {action}\r\nStatus: {status}\r\n");
            reported_failure(fields.as_bytes(), original)
        };
        for (status, code) in [
            ("5.1.1", "5.1.1"),
            ("5.3.4 (too large)", "5.3.4"),
            ("unknown", "5.0.0"),
        ] {
            let failure = outcome("Failed", status).unwrap();
            assert_eq!(failure.message_id, "<key@our.example>");
            assert_eq!(
                (failure.status.as_str(), failure.code.as_str()),
                ("failed", code)
            );
        }
        assert_eq!(outcome("delayed", "4.4.1"), None);
        assert_eq!(
            reported_failure(b"Action: failed\r\n", b"Subject: x\r\n\r\n"),
            None
        );
    }
}
