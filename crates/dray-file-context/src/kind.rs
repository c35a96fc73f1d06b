//! The type of a file, judged by its URL (agent-file-context 5.1), and the name that the URL suggests (5.2).

use dray_media_type::lists::{AUDIO_EXTENSIONS, IMAGE_EXTENSIONS, VIDEO_EXTENSIONS};
use percent_encoding::percent_decode_str;

use crate::model::FileType;

/// The type of an extension without its dot. The complete extension is compared, ignoring case (R-3).
pub(crate) fn of_extension(extension: &str) -> FileType {
    let is_among = |list: &[&str]| {
        list.iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    };
    if is_among(IMAGE_EXTENSIONS) {
        FileType::Image
    } else if is_among(AUDIO_EXTENSIONS) {
        FileType::Audio
    } else if is_among(VIDEO_EXTENSIONS) {
        FileType::Video
    } else {
        FileType::File
    }
}

/// The type that a URL suggests. `None` for a `data:` URL that is not a base64 image, because it cannot be resolved.
pub(crate) fn of_url(url: &str) -> Option<FileType> {
    if url.starts_with("data:") {
        return data_image(url).map(|_| FileType::Image);
    }
    let name = file_name(url);
    let extension = name.as_deref().and_then(name_extension);
    Some(extension.map_or(FileType::File, of_extension))
}

/// The subtype of a `data:image/<subtype>;base64,` URL in lower case.
pub(crate) fn data_image(url: &str) -> Option<String> {
    let (mime, _) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let mime = mime.to_ascii_lowercase();
    let subtype = mime.strip_prefix("image/")?;
    // The subtype becomes part of a file name.
    let plain = !subtype.is_empty()
        && subtype.chars().all(|character| {
            character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.' | '_')
        });
    plain.then(|| subtype.to_owned())
}

/// The file name that a URL or storage key suggests: its query parameter `filename`, otherwise its last path segment if
/// that contains a dot. Decoded once.
pub(crate) fn file_name(url: &str) -> Option<String> {
    if let Some(subtype) = data_image(url) {
        return Some(format!("image.{subtype}"));
    }
    if url.starts_with("data:") {
        return None;
    }
    let url = crate::address::without_fragment(url);
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let query_name = url::form_urlencoded::parse(query.as_bytes())
        .find(|(name, value)| name == "filename" && !value.is_empty());
    if let Some((_, name)) = query_name {
        // Already decoded; the peer decodes such a name twice (5.2).
        return Some(name.into_owned());
    }
    // The host has dots too, but is not a file name.
    let path = path.split_once("://").map_or(path, |(_, rest)| {
        rest.find('/')
            .and_then(|slash| rest.get(slash..))
            .unwrap_or("")
    });
    let segment = path.rsplit('/').next().unwrap_or_default();
    segment.contains('.').then(|| percent_decode(segment))
}

/// Percent-decoded, or unchanged if the result is not UTF-8.
fn percent_decode(segment: &str) -> String {
    let decoded = percent_decode_str(segment).decode_utf8();
    decoded.map_or_else(|_| segment.to_owned(), std::borrow::Cow::into_owned)
}

/// The text after the last dot of a name; `None` if it is empty.
pub(crate) fn name_extension(name: &str) -> Option<&str> {
    let (_, extension) = name.rsplit_once('.')?;
    (!extension.is_empty()).then_some(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_3_extensions_match_whole_and_in_any_case() {
        for name in [
            "/main.c", "/util.h", "/model.m", "/stats.r", "/page.ps", "/a.p", "/x.pn",
        ] {
            assert_eq!(of_url(name), Some(FileType::File), "{name}");
        }
        assert_eq!(of_url("/A.PNG"), Some(FileType::Image));
        assert_eq!(of_url("/a.JPeG?x=1"), Some(FileType::Image));
        assert_eq!(of_url("/a.Mp3"), Some(FileType::Audio));
        assert_eq!(of_url("/a.mp4#t"), Some(FileType::Video));
        assert_eq!(of_url("/a"), Some(FileType::File));
        assert_eq!(of_url("https://x.example"), Some(FileType::File));
    }

    #[test]
    fn only_base64_images_are_resolved_among_data_urls() {
        assert_eq!(of_url("data:image/PNG;base64,AAAA"), Some(FileType::Image));
        assert_eq!(
            file_name("data:image/PNG;base64,AAAA").as_deref(),
            Some("image.png")
        );
        for url in [
            "data:text/plain;base64,AAAA",
            "data:image/png,AAAA",
            "data:image/;base64,A",
            "data:",
        ] {
            assert_eq!(of_url(url), None, "{url}");
            assert_eq!(file_name(url), None);
        }
    }

    #[test]
    fn the_query_names_the_file_before_the_path_does() {
        let name = |url: &str| file_name(url);
        assert_eq!(
            name("/uploads/report%20v1.pdf").as_deref(),
            Some("report v1.pdf")
        );
        assert_eq!(name("/api/file/raw"), None);
        assert_eq!(
            name("/read/x.bin?filename=%E6%8A%A5%E5%91%8A.pdf").as_deref(),
            Some("报告.pdf")
        );
        assert_eq!(
            name("https://x.example/d/a.b.pdf?k=1#z").as_deref(),
            Some("a.b.pdf")
        );
        assert_eq!(name("https://x.example"), None);
        assert_eq!(
            name("chat/app/user/chat/notes.md").as_deref(),
            Some("notes.md")
        );
        assert_eq!(name("chat/app/user/chat/notes"), None);
    }

    #[test]
    fn a_name_with_a_literal_percent_is_decoded_once_and_survives() {
        assert_eq!(
            file_name("/r?filename=100%25.pdf").as_deref(),
            Some("100%.pdf")
        );
        assert_eq!(file_name("/100%.pdf").as_deref(), Some("100%.pdf"));
        assert_eq!(file_name("/%ff.pdf").as_deref(), Some("%ff.pdf"));
        assert_eq!(of_url("/r?filename=100%25.png"), Some(FileType::Image));
    }
}
