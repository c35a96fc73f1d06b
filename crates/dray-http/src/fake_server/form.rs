//! Forms, parsed while they arrive: fields are stored; files are only hashed.

use percent_encoding::percent_decode_str;

use super::reader::{BodyReader, ContentDigest, DigestingReader, MalformedBody};

/// One file of a form, as the fake server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPart {
    /// Name of the field that the file was sent under.
    pub field: String,
    /// Name of the file with the escapes of browsers undone; empty for none.
    pub name: String,
    /// Content type as sent; empty for none.
    pub media_type: String,
    /// Length, digest and first bytes of the file.
    pub content: ContentDigest,
}

/// A form, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormData {
    /// Fields without a file name, decoded.
    pub fields: Vec<(String, String)>,
    /// Parts with a file name.
    pub files: Vec<FormPart>,
}

impl FormData {
    /// The value of a field; empty if it is missing.
    pub fn field(&self, name: &str) -> &str {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map_or("", |(_, value)| value)
    }
}

/// Reads a body of this content type: multipart or urlencoded.
pub(super) async fn read_form(
    media_type: &str,
    reader: BodyReader,
) -> Result<FormData, MalformedBody> {
    if let Some((_, boundary)) = media_type
        .starts_with("multipart/form-data")
        .then(|| media_type.split_once("boundary="))
        .flatten()
    {
        // RFC 2045 5.1: the value of a parameter may be quoted.
        let boundary = boundary.trim().trim_matches('"');
        return read_multipart(reader, boundary).await;
    }
    if media_type.starts_with("application/x-www-form-urlencoded") {
        let bytes = reader.all().await?;
        let text = String::from_utf8(bytes).map_err(|_| MalformedBody)?;
        return Ok(FormData {
            fields: decode_pairs(&text),
            files: Vec::new(),
        });
    }
    Err(MalformedBody)
}

/// Decodes a query or an urlencoded form.
pub(super) fn decode_pairs(text: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        // Before the escapes are decoded, or an escaped `%2B` would become a space.
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

async fn read_multipart(mut reader: BodyReader, boundary: &str) -> Result<FormData, MalformedBody> {
    let mut form = FormData::default();
    let mark = format!("\r\n--{boundary}");
    // The first boundary has no line before it.
    reader.buffer.extend_from_slice(b"\r\n");
    reader.read_until(mark.as_bytes(), &mut |_| {}).await?;
    loop {
        while reader.buffer.len() < 2 {
            // The last boundary is followed by `--`, the others by a line end.
            if !reader.more().await? {
                return Err(MalformedBody);
            }
        }
        if reader.buffer.starts_with(b"--") {
            // The epilogue (RFC 2046 5.1.1) is read and dropped, so that the sender can complete its body.
            reader.digest().await?;
            return Ok(form);
        }
        let head = reader.read_text_until(b"\r\n\r\n").await?;
        let field = disposition_parameter(&head, "name").ok_or(MalformedBody)?;
        match disposition_parameter(&head, "filename") {
            None => {
                let value = reader.read_text_until(mark.as_bytes()).await?;
                form.fields.push((field, value));
            }
            Some(name) => {
                let mut digesting = DigestingReader::default();
                reader
                    .read_until(mark.as_bytes(), &mut |chunk| digesting.update(chunk))
                    .await?;
                form.files.push(FormPart {
                    field,
                    name,
                    media_type: header_line(&head, "content-type:").unwrap_or_default(),
                    content: digesting.finish(),
                });
            }
        }
    }
}

fn header_line(head: &str, name: &str) -> Option<String> {
    let line = head
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with(name))?;
    Some(line.get(name.len()..)?.trim().to_owned())
}

/// A quoted parameter of `Content-Disposition`: UTF-8, with the escapes of browsers undone.
fn disposition_parameter(head: &str, name: &str) -> Option<String> {
    let value = header_line(head, "content-disposition:")?;
    let (_, after) = value.split_once(&format!("; {name}=\""))?;
    let (value, _) = after.split_once('"')?;
    Some(
        value
            .replace("%22", "\"")
            .replace("%0D", "\r")
            .replace("%0A", "\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_parameters_are_parsed() {
        let head = "Content-Disposition: form-data; name=\"a\"; filename=\"b%22 ё.txt\"\r\nContent-Type: x/y";
        assert_eq!(disposition_parameter(head, "name").as_deref(), Some("a"));
        assert_eq!(
            disposition_parameter(head, "filename").as_deref(),
            Some("b\" ё.txt")
        );
        assert_eq!(header_line(head, "content-type:").as_deref(), Some("x/y"));
        assert_eq!(disposition_parameter("Content-Type: x", "name"), None);
    }

    #[test]
    fn pairs_are_decoded() {
        assert_eq!(
            decode_pairs("a=b+c%26&d&%C3%A9=1"),
            [("a", "b c&"), ("d", ""), ("é", "1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
