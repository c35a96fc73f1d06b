//! Stores files of calls where the client can fetch them (quickapps 25).

use async_trait::async_trait;
use bytes::Bytes;
use dray_agent::message::Attachment;
use dray_types::RedactedUrl;

use crate::ToolFailure;

/// The class of a URL in an argument (quickapps 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlClass {
    /// A file of DIAL: `files/…`, or an absolute URL at the exact DIAL origin.
    Dial,
    /// `http` or `https` elsewhere.
    External,
    /// A `data:` URL: the content itself.
    Data,
    /// Any other text: other schemes, relative paths, plain text.
    Unsupported,
}

/// Longest shown form of a URL without an authority, in characters.
const MAX_SHOWN_CHARACTERS: usize = 200;

impl UrlClass {
    /// Message for the model about a URL that is [`UrlClass::Unsupported`] (quickapps 25.2).
    pub fn unsupported_sentence(url: &str) -> String {
        // `mailto:a@b.example` has no authority, so the part before its `@` is not user info. It is shown as written,
        // so that the model recognizes it.
        let visible_url = if url.contains("//") {
            RedactedUrl::from_text(url).to_string()
        } else {
            let visible = url.chars().filter(|character| !character.is_control());
            visible.take(MAX_SHOWN_CHARACTERS).collect()
        };
        format!(
            "URL scheme not supported: {visible_url}. Only DIAL file paths (e.g. files/bucket/foo.pdf) and http(s) URLs are accepted."
        )
    }
}

/// Files for the calls of one request, with the rights of its caller. Without DIAL, files are kept in the artifact
/// store, and their URLs are links that expire.
#[async_trait]
pub trait FileStorage: std::fmt::Debug + Send + Sync {
    /// The class of a URL, by its text alone.
    fn classify(&self, url: &str) -> UrlClass;

    /// Address of the file of the conversation with this id, as [`FileStorage::durable`] accepts it; `None` for an
    /// unknown id, and for a file without such an address.
    fn address_of(&self, _id: &str) -> Option<String> {
        None
    }

    /// Returns a durable attachment for the file behind a URL: the metadata of a DIAL file, or a copy of any other
    /// file. A file is copied once per request, even under concurrency (the promoter, quickapps 25.3). `parameter`
    /// names the argument in failures.
    ///
    /// # Errors
    ///
    /// [`ToolFailure::Parameter`] for what the model can correct: scheme, policy, size, address. Other failures come
    /// from the storage.
    async fn durable(&self, parameter: &str, url: &str) -> Result<Attachment, ToolFailure>;

    /// Stores bytes unchanged under a name that overwrites no file.
    ///
    /// # Errors
    ///
    /// The errors of the storage.
    async fn keep(
        &self,
        name: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> Result<Attachment, ToolFailure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_url_is_named_as_written_and_without_the_secrets_of_its_authority() {
        for (url, visible_url) in [
            (
                "mailto:a@b.example?subject=c",
                "mailto:a@b.example?subject=c",
            ),
            ("report.pdf", "report.pdf"),
            ("ftp://u:p@h/x?token=1", "ftp://h/x"),
        ] {
            let sentence = UrlClass::unsupported_sentence(url);
            assert!(
                sentence.starts_with(&format!(
                    "URL scheme not supported: {visible_url}. Only DIAL"
                )),
                "{sentence}"
            );
        }
    }
}
