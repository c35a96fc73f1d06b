//! The parts of a mail by `BODYSTRUCTURE` (RFC 3501, 7.4.2).

use super::value::ImapValue;
use crate::hex_escape::decode_hex_escapes;

/// Most parts that are parsed. A mail with more is attached completely.
const MAX_PARTS: usize = 200;
/// Deepest nesting that is parsed. A deeper mail is attached completely.
const MAX_DEPTH: usize = 20;

/// A part with content: a leaf of the structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BodyPart {
    /// Section number of the part, with which it is fetched: `1.2`.
    pub(crate) section: String,
    /// `text/plain`, in lower case.
    pub(crate) media_type: String,
    /// Character set, as declared; may be empty.
    pub(crate) charset: String,
    /// `base64`, `quoted-printable`, `7bit` …, in lower case.
    pub(crate) encoding: String,
    /// The part's length in the transfer encoding, in bytes.
    pub(crate) octets: u64,
    /// The part's file name as declared, not decoded; may be empty.
    pub(crate) name: String,
    /// `attachment` or `inline`, in lower case; may be empty.
    pub(crate) disposition: String,
    /// Whether another part of the same `multipart/alternative` has this text and is read instead.
    pub(crate) is_alternate: bool,
}

impl BodyPart {
    /// Whether the part is a text of the mail and not an attachment.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.media_type.as_str(), "text/plain" | "text/html")
            && self.disposition != "attachment"
            && self.name.is_empty()
    }

    /// Whether the part is a text that is read: one of several alternatives.
    pub(crate) fn is_body_text(&self) -> bool {
        self.is_text() && !self.is_alternate
    }

    /// Whether the part has no content but a line end.
    fn is_blank(&self) -> bool {
        self.octets <= 2
    }

    /// Length when it is decoded, in bytes; an estimate.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        match self.encoding.as_str() {
            // Lines of 76 characters and their ends.
            "base64" => self.octets / 78 * 57 + self.octets % 78 / 4 * 3,
            _ => self.octets,
        }
    }
}

/// All leaves in order; `None` for a structure that cannot be read or is too large.
pub(crate) fn body_parts(structure: &ImapValue) -> Option<Vec<BodyPart>> {
    let mut all = Vec::new();
    let is_complete = walk_structure(structure, "", 0, &mut all)?;
    is_complete.then_some(all)
}

/// Returns whether everything was within the limits; `None` for a structure that cannot be read.
fn walk_structure(
    structure: &ImapValue,
    section: &str,
    depth: usize,
    all: &mut Vec<BodyPart>,
) -> Option<bool> {
    let fields = structure.list()?;
    if depth > MAX_DEPTH || all.len() >= MAX_PARTS {
        return Some(false);
    }
    let child_section = |number: usize| {
        if section.is_empty() {
            number.to_string()
        } else {
            format!("{section}.{number}")
        }
    };
    // A multipart begins with its children, a leaf with its type.
    if fields.first().is_some_and(|first| first.list().is_some()) {
        let children = fields.iter().take_while(|field| field.list().is_some());
        let mut child_starts = Vec::new();
        for (index, child) in children.enumerate() {
            child_starts.push(all.len());
            if !walk_structure(child, &child_section(index + 1), depth + 1, all)? {
                return Some(false);
            }
        }
        let subtype = fields.get(child_starts.len()).map(ImapValue::text);
        if subtype.is_some_and(|subtype| subtype.eq_ignore_ascii_case("alternative")) {
            mark_alternates(all, &child_starts);
        }
        return Some(true);
    }
    // RFC 3501, section 6.4.5: the only part of a mail without multipart is number 1.
    let section = if section.is_empty() { "1" } else { section };
    all.push(parse_part(fields, section)?);
    Some(true)
}

/// Of the children of a `multipart/alternative`, the first one with plain text is read, otherwise the last one with HTML
/// (RFC 2046, 5.1.4). The texts of the others say the same, so they are marked; their files stay attachments.
fn mark_alternates(parts: &mut [BodyPart], child_starts: &[usize]) {
    let first = child_starts.first().copied().unwrap_or_default();
    let child_of = |index: usize| child_starts.partition_point(|start| *start <= index);
    let mut texts = parts
        .iter()
        .enumerate()
        .skip(first)
        .filter(|(_, part)| part.is_body_text() && !part.is_blank());
    let html = texts
        .clone()
        .rfind(|(_, part)| part.media_type == "text/html");
    let chosen = texts
        .find(|(_, part)| part.media_type == "text/plain")
        .or(html)
        .map(|(index, _)| child_of(index));
    let Some(chosen) = chosen else {
        return;
    };
    for (index, part) in parts.iter_mut().enumerate().skip(first) {
        part.is_alternate |= part.is_text() && child_of(index) != chosen;
    }
}

fn parse_part(fields: &[ImapValue], section: &str) -> Option<BodyPart> {
    // The grammar fixes the order; identifier and description are skipped.
    let [kind, subtype, parameters, _, _, encoding, octets, rest @ ..] = fields else {
        return None;
    };
    let lower = |value: &ImapValue| value.text().to_ascii_lowercase();
    let media_type = format!("{}/{}", lower(kind), lower(subtype));
    // The position of the disposition depends on the media type, so it is found by its shape.
    let disposition = rest.iter().find_map(|field| match field.list()? {
        [word, parameters] if word.list().is_none() && is_parameters(parameters) => {
            let is_known = matches!(lower(word).as_str(), "attachment" | "inline");
            is_known.then(|| (lower(word), parameter_value(parameters, "filename")))
        }
        _ => None,
    });
    let (disposition, filename) = disposition.unwrap_or_default();
    let name = filename.or_else(|| parameter_value(parameters, "name"));
    Some(BodyPart {
        section: section.to_owned(),
        media_type,
        charset: parameter_value(parameters, "charset").unwrap_or_default(),
        encoding: lower(encoding),
        octets: octets.number()?,
        name: name.unwrap_or_default(),
        disposition,
        is_alternate: false,
    })
}

fn is_parameters(value: &ImapValue) -> bool {
    match value {
        ImapValue::Nil => true,
        ImapValue::List(values) => values.iter().all(|value| value.list().is_none()),
        _ => false,
    }
}

/// A parameter, decoded; also one in several chunks or with a character set (RFC 2231).
fn parameter_value(parameters: &ImapValue, name: &str) -> Option<String> {
    let pairs: Vec<(String, String)> = parameters
        .list()?
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [name, value] => Some((name.text().to_ascii_lowercase(), value.text())),
            _ => None,
        })
        .collect();
    let find = |key: &str| {
        let matched = pairs.iter().find(|(name, _)| name == key);
        matched.map(|(_, value)| value.clone())
    };
    // Servers may pass these parameters on as they are in the mail.
    if let Some(value) = find(&format!("{name}*")) {
        return Some(decode_extended(&value));
    }
    let mut joined = String::new();
    for number in 0..100 {
        if let Some(chunk) = find(&format!("{name}*{number}*")) {
            joined.push_str(&chunk);
        } else if let Some(chunk) = find(&format!("{name}*{number}")) {
            // Chunks without a star are not escaped: their percent signs mean themselves.
            joined.push_str(&chunk.replace('%', "%25"));
        } else {
            break;
        }
    }
    if !joined.is_empty() {
        return Some(decode_extended(&joined));
    }
    find(name).filter(|value| !value.is_empty())
}

/// Decodes `utf-8''%D0%BE.csv`. Other character sets are read as far as they are ASCII.
fn decode_extended(value: &str) -> String {
    let mut fields = value.splitn(3, '\'');
    let encoded = match (fields.next(), fields.next(), fields.next()) {
        (Some(_), Some(_), Some(encoded)) => encoded,
        _ => value,
    };
    String::from_utf8_lossy(&decode_hex_escapes(b'%', encoded.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::value::{ResponseChunk, parse_values};
    use super::*;

    fn read(structure: &str) -> Option<Vec<BodyPart>> {
        let chunk = ResponseChunk {
            line: structure.as_bytes().to_vec(),
            literal: None,
        };
        body_parts(parse_values(&[chunk]).unwrap().first()?)
    }

    #[test]
    fn parts_have_their_sections_and_names() {
        let parts = read(concat!(
            r#"((("text" "plain" ("charset" "utf-8") NIL NIL "quoted-printable" 20 1 NIL NIL NIL NIL)"#,
            r#"("text" "html" ("charset" "utf-8") NIL NIL "7bit" 30 1 NIL NIL NIL NIL) "alternative" ("boundary" "b") NIL NIL)"#,
            r#"("APPLICATION" "PDF" ("NAME" "other.pdf") NIL NIL "BASE64" 78 NIL ("ATTACHMENT" ("FILENAME*" "utf-8''%D0%BE.pdf")) NIL NIL)"#,
            r#"("message" "rfc822" NIL NIL NIL "7bit" 100 (NIL "s" NIL NIL NIL NIL NIL NIL NIL NIL) ("text" "plain" NIL NIL NIL "7bit" 5 1) 9 NIL ("inline" NIL) NIL NIL)"#,
            r#" "mixed" ("boundary" "a") NIL NIL NIL)"#,
        ))
        .unwrap();
        let sections: Vec<_> = parts.iter().map(|part| part.section.as_str()).collect();
        assert_eq!(sections, ["1.1", "1.2", "2", "3"]);
        assert!(parts[0].is_body_text());
        assert!(parts[1].is_text() && parts[1].is_alternate);
        assert!(!parts[2].is_text() && !parts[3].is_text());
        assert_eq!(
            (parts[2].name.as_str(), parts[2].decoded_bytes()),
            ("о.pdf", 57)
        );
        assert_eq!(
            (parts[2].media_type.as_str(), parts[2].encoding.as_str()),
            ("application/pdf", "base64")
        );
        assert_eq!(parts[3].octets, 100);
    }

    /// The sections of the texts that are read.
    fn text_sections(structure: &str) -> Vec<String> {
        let parts = read(structure).unwrap();
        let texts = parts.into_iter().filter(BodyPart::is_body_text);
        texts.map(|part| part.section).collect()
    }

    fn part_of_bytes(media_type: &str, octets: u32) -> String {
        let (kind, subtype) = media_type.split_once('/').unwrap();
        format!(r#"("{kind}" "{subtype}" NIL NIL NIL "7bit" {octets})"#)
    }

    #[test]
    fn only_alternatives_replace_each_other() {
        let (plain, html) = (
            part_of_bytes("text/plain", 9),
            part_of_bytes("text/html", 9),
        );
        let (pdf, blank) = (
            part_of_bytes("application/pdf", 9),
            part_of_bytes("text/plain", 2),
        );
        // iOS, gateways that add a footer, Apple Mail.
        let footer = format!(r#"({html}{pdf}{plain} "mixed")"#);
        assert_eq!(text_sections(&footer), ["1", "3"]);
        let two_texts = format!(r#"({plain}({html}{pdf}{html} "mixed") "alternative")"#);
        assert_eq!(text_sections(&two_texts), ["1"]);
        let two_texts = format!(r#"({html}{pdf}{html} "MIXED")"#);
        assert_eq!(text_sections(&two_texts), ["1", "3"]);
        let with_footer =
            format!(r#"(({plain}({html}{pdf} "related") "alternative"){plain} "mixed")"#);
        assert_eq!(text_sections(&with_footer), ["1.1", "2"]);
        let blank_plain = format!(r#"({blank}{html} "alternative")"#);
        assert_eq!(text_sections(&blank_plain), ["2"]);
        let two_forms = format!(r#"({html}{html} "alternative")"#);
        assert_eq!(text_sections(&two_forms), ["2"]);
    }

    #[test]
    fn the_only_part_of_a_mail_without_multipart_is_section_1() {
        let parts =
            read(r#"("image" "png" ("name" "a.png") NIL NIL "base64" 1000 NIL NIL NIL NIL)"#);
        let parts = parts.unwrap();
        assert_eq!(
            (parts[0].section.as_str(), parts[0].name.as_str()),
            ("1", "a.png")
        );
    }

    #[test]
    fn split_names_are_joined() {
        let parts = read(
            r#"("a" "b" NIL NIL NIL "7bit" 1 NIL ("attachment" ("filename*0*" "utf-8''%D0%BE%+a" "filename*1" "100%.csv")) NIL NIL)"#,
        );
        assert_eq!(parts.unwrap()[0].name, "о%+a100%.csv");
    }

    #[test]
    fn invalid_structures_are_refused() {
        for invalid in [
            "NIL",
            "(\"a\")",
            "()",
            r#"("a" "b" NIL NIL NIL "7bit" NIL)"#,
        ] {
            assert_eq!(read(invalid), None, "{invalid}");
        }
        let leaf = r#"("a" "b" NIL NIL NIL "7bit" 1)"#;
        let many = format!("({} \"mixed\")", leaf.repeat(MAX_PARTS + 1));
        assert_eq!(read(&many), None);
        let deep = format!("{}{leaf}{}", "(".repeat(30), " \"mixed\")".repeat(30));
        assert_eq!(read(&deep), None);
    }
}
