//! MIME types by extension, for files that are named and not read.

/// The type of a file by the extension of its name or address; `None` when it says nothing.
pub fn guess_from_name(name: &str) -> Option<&'static str> {
    let last = name.rsplit('/').next()?;
    let (_, extension) = last.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "csv" => "text/csv",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" => "text/javascript",
        "xml" => "application/xml",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "rtf" => "application/rtf",
        "doc" => "application/msword",
        "xls" => "application/vnd.ms-excel",
        "ppt" => "application/vnd.ms-powerpoint",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xlsx" => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "pptx" => "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "bmp" => "image/bmp",
        "tif" | "tiff" => "image/tiff",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/quicktime",
        _ => return None,
    })
}

/// Whether a type is of a pattern: `*/*` is any type, `x/*` any that begins with `x/`, anything else must be equal
/// but for the case of ASCII letters. No type is of no pattern (quickapps 19.2).
pub fn matches_pattern(kind: Option<&str>, pattern: &str) -> bool {
    let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
        return false;
    };
    match pattern.strip_suffix('*') {
        _ if pattern == "*/*" => true,
        Some(family) if family.ends_with('/') => kind
            .get(..family.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(family)),
        _ => kind.eq_ignore_ascii_case(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_of_the_last_segment_counts() {
        assert_eq!(
            guess_from_name("files/B/a.b/C.PDF"),
            Some("application/pdf")
        );
        assert_eq!(guess_from_name("files/a.pdf/b"), None);
        assert_eq!(guess_from_name("x.unheard"), None);
    }

    #[test]
    fn no_type_is_of_no_pattern_and_a_family_ends_at_its_slash() {
        assert!(
            matches_pattern(Some("image/png"), "*/*")
                && matches_pattern(Some("Image/PNG"), "image/*")
        );
        assert!(matches_pattern(Some("text/csv"), "text/CSV"));
        assert!(
            !matches_pattern(Some("imagery/png"), "image/*")
                && !matches_pattern(Some("image/png"), "image/p*")
        );
        assert!(!matches_pattern(None, "*/*") && !matches_pattern(Some(""), "*/*"));
    }
}
