//! Reads a mail line by line. Attachments are hashed while they arrive; texts are stored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_types::Sha256Digest;
use sha2::{Digest as _, Sha256};

use super::{MailFile, ReceivedMail};

/// The mail breaks RFC 5322 or 2046, or a required header is missing.
#[derive(Debug)]
pub(super) struct MalformedMail;

type Headers = Vec<(String, String)>;

/// A header by its name in any case; empty if it is missing.
pub(super) fn header_value<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    headers
        .iter()
        .find(|(field, _)| field.eq_ignore_ascii_case(name))
        .map_or("", |(_, value)| value)
}

#[derive(Debug, Default)]
enum ParseStage {
    #[default]
    Head,
    Preamble,
    PartHead(Headers),
    Body(MimePart),
    End,
}

#[derive(Debug)]
struct MimePart {
    headers: Headers,
    hash: Sha256,
    size: u64,
    text: Vec<u8>,
    lines: u64,
}

/// A parser for lines without their ends. It is stricter than mail readers, in order to find errors of the sender.
#[derive(Debug, Default)]
pub(super) struct MailParser {
    stage: ParseStage,
    headers: Headers,
    boundary: Option<String>,
    parts: Vec<MimePart>,
}

impl MailParser {
    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), MalformedMail> {
        // The boundary is checked in every state, because a boundary line ends every part.
        if let Some(boundary) = &self.boundary
            && let Some(end) = line.strip_prefix(boundary.as_bytes())
        {
            let next = match end {
                b"" => ParseStage::PartHead(Headers::new()),
                b"--" => ParseStage::End,
                _ => return Err(MalformedMail),
            };
            if let ParseStage::Body(part) = std::mem::replace(&mut self.stage, next) {
                self.parts.push(part);
            }
            return Ok(());
        }
        match &mut self.stage {
            ParseStage::Head if line.is_empty() => self.begin(),
            ParseStage::Head => parse_header_line(&mut self.headers, line)?,
            ParseStage::PartHead(headers) if line.is_empty() => {
                self.stage = ParseStage::Body(MimePart::new(std::mem::take(headers)));
            }
            ParseStage::PartHead(headers) => parse_header_line(headers, line)?,
            ParseStage::Body(part) => part.line(line)?,
            ParseStage::Preamble | ParseStage::End => {}
        }
        Ok(())
    }

    /// Begins the body, once the head has ended.
    fn begin(&mut self) {
        let media_type = header_value(&self.headers, "content-type");
        self.stage = if media_type.starts_with("multipart/") {
            self.boundary =
                parameter_value(media_type, "boundary").map(|boundary| format!("--{boundary}"));
            ParseStage::Preamble
        } else {
            ParseStage::Body(MimePart::new(self.headers.clone()))
        };
    }

    /// Ends the mail and returns its visible content.
    pub(super) fn end(mut self) -> Result<ReceivedMail, MalformedMail> {
        match (std::mem::take(&mut self.stage), &self.boundary) {
            (ParseStage::Body(part), None) => self.parts.push(part),
            (ParseStage::End, Some(_)) => {}
            _ => return Err(MalformedMail),
        }
        // RFC 5322, section 3.6, requires `Date` and `From`; submission adds the id.
        for needed in ["date", "from", "message-id"] {
            if header_value(&self.headers, needed).is_empty() {
                return Err(MalformedMail);
            }
        }
        let mut mail = ReceivedMail {
            headers: self.headers,
            ..ReceivedMail::default()
        };
        for part in self.parts {
            let disposition = header_value(&part.headers, "content-disposition");
            if disposition.starts_with("attachment") {
                let media_type = header_value(&part.headers, "content-type");
                let media_type = media_type.split(';').next().unwrap_or_default();
                mail.files.push(MailFile {
                    name: parameter_value(disposition, "filename").unwrap_or_default(),
                    media_type: media_type.to_owned(),
                    size: part.size,
                    sha256: Sha256Digest::from_bytes(part.hash.finalize().into()),
                });
            } else {
                let text = String::from_utf8(part.text).map_err(|_| MalformedMail)?;
                // Texts are sent with CRLF, but tests compare them with line feeds.
                mail.text.push_str(&text.replace("\r\n", "\n"));
            }
        }
        Ok(mail)
    }
}

impl MimePart {
    fn new(headers: Headers) -> Self {
        Self {
            headers,
            hash: Sha256::new(),
            size: 0,
            text: Vec::new(),
            lines: 0,
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), MalformedMail> {
        let is_base64 = header_value(&self.headers, "content-transfer-encoding")
            .trim()
            .eq_ignore_ascii_case("base64");
        let bytes = if is_base64 {
            STANDARD.decode(line).map_err(|_| MalformedMail)?
        } else if self.lines == 0 {
            line.to_vec()
        } else {
            // A line end belongs to the line after it: the last one belongs to the boundary (RFC 2046, 5.1.1).
            [b"\r\n", line].concat()
        };
        self.lines += 1;
        self.hash.update(&bytes);
        self.size += bytes.len() as u64;
        if !header_value(&self.headers, "content-disposition").starts_with("attachment") {
            self.text.extend_from_slice(&bytes);
        }
        Ok(())
    }
}

fn parse_header_line(headers: &mut Headers, line: &[u8]) -> Result<(), MalformedMail> {
    let line = std::str::from_utf8(line).map_err(|_| MalformedMail)?;
    // A folded header continues.
    if line.starts_with([' ', '\t']) {
        let (_, last) = headers.last_mut().ok_or(MalformedMail)?;
        last.push_str(line);
        return Ok(());
    }
    let (name, value) = line.split_once(':').ok_or(MalformedMail)?;
    // A space before the colon is obsolete syntax, which a sender must not write.
    if name.is_empty() || name.contains(' ') {
        return Err(MalformedMail);
    }
    headers.push((name.to_owned(), value.trim().to_owned()));
    Ok(())
}

/// A parameter of a header; its extended form (RFC 2231) is preferred, as RFC 6266 requires.
fn parameter_value(value: &str, name: &str) -> Option<String> {
    let extended = format!("; {name}*=");
    if let Some((_, after)) = value.rsplit_once(&extended) {
        let raw = after.split([';', ' ']).next()?;
        let encoded = raw.get(raw.find("''")? + 2..)?;
        return unescape_header(encoded);
    }
    let (_, after) = value.split_once(&format!("; {name}="))?;
    let Some(quoted) = after.strip_prefix('"') else {
        return Some(after.split([';', ' ']).next()?.to_owned());
    };
    let mut plain = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some(plain),
            '\\' => plain.push(characters.next()?),
            character => plain.push(character),
        }
    }
}

fn unescape_header(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let hex = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = rest.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ReceivedMail, MalformedMail> {
        let mut parser = MailParser::default();
        for line in text.lines() {
            parser.line(line.as_bytes())?;
        }
        parser.end()
    }

    const MAIL_HEAD: &str = "Date: x\nFrom: a@b\nMessage-ID: <c@d>\nSubject: one\n two\n";

    #[test]
    fn texts_and_files_have_their_own_parts() {
        let mail = parse(&format!(
            "{MAIL_HEAD}Content-Type: multipart/mixed;\n boundary=\"q\"\n\nignored\n--q\n\nfirst\nsecond\n--q\n\
             Content-Type: text/csv; x=y\nContent-Transfer-Encoding: base64\n\
             Content-Disposition: attachment;\n filename*=utf-8''%D0%BE%2E.csv\n\naGVs\nbG8=\n--q--\n",
        ))
        .unwrap();
        assert_eq!(
            (mail.text.as_str(), mail.header("subject")),
            ("first\nsecond", "one two")
        );
        assert_eq!(mail.files[0].name, "о..csv");
        assert_eq!(mail.files[0].sha256, Sha256Digest::of(b"hello"));
        assert_eq!(mail.files[0].media_type, "text/csv");
    }

    #[test]
    fn a_mail_that_cannot_be_parsed_is_refused() {
        for wrong in [
            "",
            "\n",
            "Date: x\n\ntext",
            "no header\n\n",
            " folded\n\n",
            &format!("{MAIL_HEAD}Content-Type: multipart/mixed; boundary=q\n\n--q\n\ntext"),
            &format!("{MAIL_HEAD}Content-Transfer-Encoding: base64\n\n???"),
            MAIL_HEAD,
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
