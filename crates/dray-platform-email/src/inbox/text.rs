//! The texts of a mail: which parts are read, and which are attached because they are above the limits.

use mail_parser::MessageParser;

use crate::imap::structure::BodyPart;

/// Most bytes of each text part that are read, in its transfer encoding.
pub(super) const MAX_TEXT_BYTES: u64 = 128 * 1024;
/// Most text parts that are joined.
const MAX_TEXT_PARTS: usize = 5;

/// The texts that become the text of the message, in their order.
pub(super) fn read_texts(parts: &[BodyPart]) -> impl Iterator<Item = &BodyPart> {
    let texts = parts.iter().filter(|part| part.is_body_text());
    texts.take(MAX_TEXT_PARTS)
}

/// The texts above the limits of the message's text, which are attached completely.
pub(super) fn incomplete_texts(parts: &[BodyPart]) -> impl Iterator<Item = &BodyPart> {
    let texts = parts.iter().filter(|part| part.is_body_text());
    texts.enumerate().filter_map(|(number, part)| {
        let is_incomplete = number >= MAX_TEXT_PARTS || part.octets > MAX_TEXT_BYTES;
        is_incomplete.then_some(part)
    })
}

/// Whether there are more texts than are read.
pub(super) fn has_further_texts(parts: &[BodyPart]) -> bool {
    let texts = parts.iter().filter(|part| part.is_body_text());
    texts.count() > MAX_TEXT_PARTS
}

/// The text of a part, decoded; for HTML its visible text. The text of a part that was not read to its end says so.
pub(super) fn part_text(part: &BodyPart, body: &[u8]) -> String {
    // These values come from the mail; a line end in one would begin a new header.
    let token = |text: &str| -> String {
        let is_token =
            |character: &char| character.is_ascii_alphanumeric() || "-_./".contains(*character);
        text.chars().filter(is_token).take(64).collect()
    };
    let mut mail = format!(
        "Content-Type: {}; charset=\"{}\"\r\nContent-Transfer-Encoding: {}\r\n\r\n",
        token(&part.media_type),
        token(&part.charset),
        token(&part.encoding),
    )
    .into_bytes();
    mail.extend_from_slice(body);
    let read = MessageParser::default().parse(&mail);
    let text = read.as_ref().and_then(|mail| mail.body_text(0));
    let mut text = text.unwrap_or_default().replace("\r\n", "\n");
    if part.octets > MAX_TEXT_BYTES {
        text.push_str("\n[The text is longer and attached completely.]");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_decoded_and_markup_is_not_shown() {
        let part = |media_type: &str, charset: &str, encoding: &str| BodyPart {
            media_type: media_type.to_owned(),
            charset: charset.to_owned(),
            encoding: encoding.to_owned(),
            ..BodyPart::default()
        };
        let plain = part("text/plain", "koi8-r", "base64");
        assert_eq!(part_text(&plain, b"8NLJ18XU"), "Привет");
        let html = part("text/html", "utf-8", "quoted-printable");
        assert_eq!(part_text(&html, b"<p>a =3D b</p>").trim(), "a = b");
        let forged = part("text/plain", "\"\r\nX: y; utf-8", "7bit");
        assert_eq!(part_text(&forged, b"body"), "body");
    }

    #[test]
    fn texts_above_the_limits_are_attached() {
        let text = |section: u64, octets: u64| BodyPart {
            section: section.to_string(),
            media_type: "text/plain".to_owned(),
            octets,
            ..BodyPart::default()
        };
        let mut parts: Vec<BodyPart> = (1..=7).map(|section| text(section, 10)).collect();
        parts[1].octets = MAX_TEXT_BYTES + 1;
        parts[2].is_alternate = true;
        let read_sections: Vec<_> = read_texts(&parts).map(|part| &part.section).collect();
        assert_eq!(read_sections, ["1", "2", "4", "5", "6"]);
        let attached = incomplete_texts(&parts).map(|part| &part.section);
        assert_eq!(attached.collect::<Vec<_>>(), ["2", "7"]);
        assert_eq!(part_text(&parts[0], b"a"), "a");
        assert!(part_text(&parts[1], b"a").ends_with("attached completely.]"));
    }
}
