//! `multipart/form-data` (RFC 7578) with an exact length and streamed files.

use std::fmt;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;

use crate::ByteStream;
use crate::exact_length::announced_length_stream;

/// A form under construction. Parts are sent in the order in which they were added.
pub struct MultipartForm {
    boundary: String,
    parts: Vec<FormPart>,
    length: u64,
}

enum FormPart {
    Bytes(Bytes),
    Stream(u64, ByteStream),
}

impl Default for MultipartForm {
    fn default() -> Self {
        Self::new()
    }
}

impl MultipartForm {
    /// An empty form with a boundary of 128 random bits, which no file contains by chance or by intent.
    pub fn new() -> Self {
        Self {
            boundary: format!("dray-{:032x}", rand::random::<u128>()),
            parts: Vec::new(),
            length: 0,
        }
    }

    /// Adds a text field, sent without a content type (text/plain by RFC 7578 4.4).
    #[must_use]
    pub fn text(self, name: &str, value: impl AsRef<str>) -> Self {
        self.part(
            name,
            None,
            None,
            Bytes::copy_from_slice(value.as_ref().as_bytes()),
        )
    }

    /// Adds a JSON field, with its content type.
    #[must_use]
    pub fn json(self, name: &str, value: &serde_json::Value) -> Self {
        self.part(
            name,
            None,
            Some("application/json"),
            value.to_string().into(),
        )
    }

    /// Adds a file of exactly `size` bytes. A body of another length fails the request.
    #[must_use]
    pub fn file(
        mut self,
        name: &str,
        file_name: &str,
        media_type: &str,
        size: u64,
        body: ByteStream,
    ) -> Self {
        self.head(name, Some(file_name), Some(media_type));
        // The announced size; `finish` enforces it on the stream.
        self.length += size;
        self.parts.push(FormPart::Stream(size, body));
        self.bytes(Bytes::from_static(b"\r\n"));
        self
    }

    fn part(
        mut self,
        name: &str,
        file_name: Option<&str>,
        media_type: Option<&str>,
        body: Bytes,
    ) -> Self {
        self.head(name, file_name, media_type);
        self.bytes(body);
        self.bytes(Bytes::from_static(b"\r\n"));
        self
    }

    fn head(&mut self, name: &str, file_name: Option<&str>, media_type: Option<&str>) {
        let mut head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{}\"",
            self.boundary,
            escape_field_name(name)
        );
        if let Some(file_name) = file_name {
            head.push_str("; filename=\"");
            head.push_str(&escape_field_name(file_name));
            head.push('"');
        }
        if let Some(media_type) = media_type {
            // The type may come from a document: a line end in it would begin a header.
            let safe: String = media_type
                .chars()
                .filter(|letter| letter.is_ascii_graphic() || *letter == ' ')
                .collect();
            head.push_str("\r\nContent-Type: ");
            head.push_str(&safe);
        }
        head.push_str("\r\n\r\n");
        self.bytes(head.into());
    }

    fn bytes(&mut self, bytes: Bytes) {
        self.length += bytes.len() as u64;
        self.parts.push(FormPart::Bytes(bytes));
    }

    /// Content type with the boundary, exact length in bytes, and the body.
    pub(crate) fn finish(mut self) -> (String, u64, ByteStream) {
        let end = format!("--{}--\r\n", self.boundary);
        self.bytes(end.into());
        let media_type = format!("multipart/form-data; boundary={}", self.boundary);
        let parts = self.parts.into_iter().map(|part| match part {
            FormPart::Bytes(bytes) => stream::iter([Ok(bytes)]).boxed(),
            // Each file is checked separately: otherwise missing bytes of one file could be hidden by extra bytes of
            // another.
            FormPart::Stream(size, body) => announced_length_stream(size, body),
        });
        (
            media_type,
            self.length,
            stream::iter(parts).flatten().boxed(),
        )
    }
}

/// Escapes as browsers write names: raw UTF-8, with quotes and line ends percent-encoded (WHATWG HTML, 4.10.21.8).
fn escape_field_name(name: &str) -> String {
    name.chars()
        // Escapes exist only for line ends; other control characters are not allowed in a header.
        .filter(|letter| !letter.is_control() || matches!(letter, '\r' | '\n'))
        .fold(String::with_capacity(name.len()), |mut escaped, letter| {
            match letter {
                '"' => escaped.push_str("%22"),
                '\r' => escaped.push_str("%0D"),
                '\n' => escaped.push_str("%0A"),
                letter => escaped.push(letter),
            }
            escaped
        })
}

impl fmt::Debug for MultipartForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultipartForm")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        assert_eq!(
            escape_field_name("a\"b\r\nX: y\0.txt"),
            "a%22b%0D%0AX: y.txt"
        );
        assert_eq!(escape_field_name("отчёт.csv"), "отчёт.csv");
    }

    #[tokio::test]
    async fn the_length_is_exact() {
        let body = stream::iter([Ok(Bytes::from_static(b"hello"))]).boxed();
        let form = MultipartForm::new().text("chat_id", "42").file(
            "document",
            "a\"b.txt",
            "text/plain\r\nX: y",
            5,
            body,
        );
        let (media_type, length, body) = form.finish();
        let parts: Vec<_> = body.map(Result::unwrap).collect().await;
        let text = String::from_utf8(parts.concat()).unwrap();
        assert_eq!(text.len() as u64, length);
        let boundary = media_type.split_once("boundary=").unwrap().1;
        assert!(text.starts_with(&format!("--{boundary}\r\n")));
        assert!(text.ends_with(&format!("\r\nhello\r\n--{boundary}--\r\n")));
        assert!(text.contains("filename=\"a%22b.txt\"\r\nContent-Type: text/plainX: y\r\n\r\n"));
    }
}
