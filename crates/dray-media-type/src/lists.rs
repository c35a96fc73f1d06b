//! Lists that a specification defines. They intentionally differ from the table of extensions, so they are listed here
//! completely, each with its section.

use crate::names;

/// Extensions of images in URLs of messages (agent-file-context 5.1).
pub const IMAGE_EXTENSIONS: &[&str] = &[
    "jpg", "jpeg", "png", "gif", "bmp", "webp", "svg", "tiff", "tif", "ico", "heic", "heif",
    "avif", "raw", "cr2", "nef", "arw", "dng", "psd", "ai", "eps", "emf", "wmf", "jfif", "exif",
    "pgm", "ppm", "pbm", "jp2", "j2k", "jpf", "jpx", "jpm", "mj2", "xbm", "pcx",
];

/// Extensions of audio in URLs of messages (agent-file-context 5.1).
pub const AUDIO_EXTENSIONS: &[&str] = &[
    "mp3", "wav", "ogg", "oga", "opus", "m4a", "aac", "flac", "wma", "amr", "aif", "aiff", "weba",
    "mid", "midi", "ape", "caf",
];

/// Extensions of videos in URLs of messages (agent-file-context 5.1).
pub const VIDEO_EXTENSIONS: &[&str] = &[
    "mp4", "m4v", "mov", "avi", "mkv", "webm", "mpeg", "mpg", "wmv", "flv", "3gp", "3g2", "ogv",
    "m2ts", "mts", "asf", "rmvb",
];

/// Extensions that help to find the end of a path after `MEDIA:` (platform-delivery 3.7.5). They never decide whether a
/// file may be sent.
pub const PATH_EXTENSIONS: [&str; 62] = [
    "png", "jpg", "jpeg", "gif", "webp", "bmp", "tiff", "svg", "mp4", "mov", "avi", "mkv", "webm",
    "3gp", "mp3", "m2a", "wav", "ogg", "opus", "m4a", "flac", "pdf", "docx", "doc", "odt", "rtf",
    "txt", "md", "epub", "xlsx", "xls", "ods", "csv", "tsv", "json", "xml", "yaml", "yml", "kmz",
    "kml", "geojson", "gpx", "pptx", "ppt", "odp", "key", "zip", "tar", "gz", "tgz", "bz2", "xz",
    "7z", "rar", "apk", "ipa", "html", "htm", "heic", "py", "toml", "vcf",
];

/// Text types that document classification detects by the structure of a text and never by its extension
/// (read-attachment 5.3).
pub const TYPES_BY_STRUCTURE: &[&str] = &[
    names::XML,
    names::EML,
    names::NOTEBOOK,
    "application/geo+json",
    "application/gpx+xml",
    "application/vnd.google-earth.kml+xml",
    "application/x-subrip",
    "text/vtt",
    "application/x-pem-file",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{text_type, type_of_extension};

    #[test]
    fn a_listed_extension_never_contradicts_the_table() {
        for (list, family) in [
            (IMAGE_EXTENSIONS, "image/"),
            (AUDIO_EXTENSIONS, "audio/"),
            (VIDEO_EXTENSIONS, "video/"),
        ] {
            for extension in list {
                let found = type_of_extension(extension);
                assert!(
                    found.is_none_or(|found| found.starts_with(family)),
                    "{extension}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn a_type_by_structure_is_a_text_type_of_the_table() {
        for listed in TYPES_BY_STRUCTURE {
            let extension = crate::usual_extension(listed).unwrap();
            assert_eq!(text_type(extension), Some(*listed));
        }
    }

    #[test]
    fn the_images_are_those_of_the_specification() {
        let specified = "jpg jpeg png gif bmp webp svg tiff tif ico heic heif avif raw cr2 nef arw dng psd ai eps \
                         emf wmf jfif exif pgm ppm pbm jp2 j2k jpf jpx jpm mj2 xbm pcx";
        assert_eq!(IMAGE_EXTENSIONS.join(" "), specified);
    }
}
