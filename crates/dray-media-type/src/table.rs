//! The one table of media types and file extensions.
//!
//! The types in the table are registered by IANA, or in common use if IANA has none. Each extension and each type
//! appears once.

use crate::extension::extension_of;
use crate::names;
use crate::value::essence;

/// A media type, its extensions with the usual one first, and other spellings of the type that peers send.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// Types of content that is not text, or that browsers run.
const OTHER_ROWS: &[Row] = &[
    ("image/png", &["png", "apng"], &[]),
    (
        "image/jpeg",
        &["jpg", "jpeg", "jpe", "jfif"],
        &["image/jpg"],
    ),
    ("image/gif", &["gif"], &[]),
    ("image/webp", &["webp"], &[]),
    ("image/bmp", &["bmp"], &[]),
    ("image/tiff", &["tiff", "tif"], &[]),
    ("image/heic", &["heic", "heif"], &[]),
    ("image/avif", &["avif"], &[]),
    (names::SVG, &["svg", "svgz"], &[]),
    ("video/mp4", &["mp4", "m4v"], &[]),
    ("video/quicktime", &["mov", "qt"], &[]),
    ("video/3gpp", &["3gp", "3g2"], &[]),
    ("video/x-matroska", &["mkv", "mka"], &[]),
    ("video/webm", &["webm"], &[]),
    ("video/x-msvideo", &["avi"], &[]),
    ("video/ogg", &["ogv"], &[]),
    ("audio/mpeg", &["mp3", "m2a"], &["audio/mp3"]),
    ("audio/mp4", &["m4a", "m4b"], &[]),
    ("audio/ogg", &["ogg", "oga", "opus"], &["audio/opus"]),
    ("audio/wav", &["wav"], &["audio/x-wav"]),
    ("audio/flac", &["flac"], &[]),
    ("audio/aac", &["aac"], &[]),
    ("audio/amr", &["amr"], &[]),
    ("audio/aiff", &["aiff", "aif"], &[]),
    ("audio/midi", &["mid", "midi"], &[]),
    (names::PDF, &["pdf"], &[]),
    (names::DOCX, &["docx"], &[]),
    (names::XLSX, &["xlsx"], &[]),
    (names::PPTX, &["pptx"], &[]),
    (names::DOTX, &["dotx"], &[]),
    (names::DOCM, &["docm"], &[]),
    (names::DOTM, &["dotm"], &[]),
    (names::XLTX, &["xltx"], &[]),
    (names::XLSM, &["xlsm"], &[]),
    (names::XLTM, &["xltm"], &[]),
    (names::XLAM, &["xlam"], &[]),
    (names::XLSB, &["xlsb"], &[]),
    (names::PPSX, &["ppsx"], &[]),
    (names::POTX, &["potx"], &[]),
    (names::PPTM, &["pptm"], &[]),
    (names::PPSM, &["ppsm"], &[]),
    (names::POTM, &["potm"], &[]),
    (names::PPAM, &["ppam"], &[]),
    (names::ODT, &["odt"], &[]),
    (names::ODS, &["ods"], &[]),
    (names::ODP, &["odp"], &[]),
    (names::EPUB, &["epub"], &[]),
    (names::DOC, &["doc", "dot"], &[]),
    (names::XLS, &["xls", "xlt"], &[]),
    (names::PPT, &["ppt", "pps", "pot"], &[]),
    (names::MSG, &["msg"], &[]),
    (names::RTF, &["rtf"], &["text/rtf"]),
    (
        names::HTML,
        &["html", "htm", "xhtml", "shtml"],
        &["application/xhtml+xml"],
    ),
    (names::ZIP, &["zip"], &["application/x-zip-compressed"]),
    ("application/vnd.android.package-archive", &["apk"], &[]),
    ("application/java-archive", &["jar"], &[]),
    (names::GZIP, &["gz", "tgz"], &["application/x-gzip"]),
    (names::TAR, &["tar"], &[]),
    (names::BZIP2, &["bz2", "tbz2"], &[]),
    (names::XZ, &["xz", "txz"], &[]),
    (names::ZSTANDARD, &["zst"], &[]),
    ("application/x-7z-compressed", &["7z"], &[]),
    ("application/vnd.rar", &["rar"], &[]),
    (
        "application/vnd.microsoft.portable-executable",
        &["exe", "dll", "scr"],
        &[],
    ),
    ("application/x-msi", &["msi", "msp"], &[]),
    ("application/wasm", &["wasm"], &[]),
    ("application/vnd.android.dex", &["dex"], &[]),
];

/// Types that text without a detectable structure gets by its extension.
const TEXT_ROWS: &[Row] = &[
    (names::PLAIN, &["txt", "text", "log"], &[]),
    (names::MARKDOWN, &["md", "markdown", "mdown", "mkd"], &[]),
    (names::CSV, &["csv"], &[]),
    (names::TSV, &["tsv", "tab"], &[]),
    (names::JSON, &["json"], &["text/json"]),
    (
        names::JSON_LINES,
        &["jsonl", "ndjson"],
        &["application/jsonl", "application/ndjson"],
    ),
    (names::NOTEBOOK, &["ipynb"], &[]),
    ("application/geo+json", &["geojson"], &[]),
    (names::XML, &["xml", "xsd", "xsl"], &["text/xml"]),
    ("application/gpx+xml", &["gpx"], &[]),
    ("application/vnd.google-earth.kml+xml", &["kml"], &[]),
    (
        names::YAML,
        &["yaml", "yml"],
        &["application/x-yaml", "text/yaml"],
    ),
    ("application/toml", &["toml"], &[]),
    ("text/css", &["css"], &[]),
    ("text/x-scss", &["scss"], &[]),
    (
        "text/javascript",
        &["js", "mjs", "cjs", "jsx"],
        &["application/javascript"],
    ),
    ("text/x-typescript", &["ts", "tsx"], &[]),
    ("text/x-python", &["py"], &[]),
    ("text/x-ruby", &["rb"], &[]),
    ("text/x-rust", &["rs"], &[]),
    ("text/x-go", &["go"], &[]),
    ("text/x-java", &["java"], &[]),
    ("text/x-c", &["c", "h"], &[]),
    ("text/x-c++", &["cpp", "cc", "hpp", "cxx"], &[]),
    ("text/x-csharp", &["cs"], &[]),
    ("text/x-php", &["php"], &[]),
    (
        "text/x-shellscript",
        &["sh", "bash", "zsh"],
        &["application/x-sh"],
    ),
    ("application/sql", &["sql"], &[]),
    ("text/x-ini", &["ini"], &[]),
    ("text/x-swift", &["swift"], &[]),
    ("text/x-kotlin", &["kt"], &[]),
    ("text/x-lua", &["lua"], &[]),
    ("text/x-perl", &["pl"], &[]),
    ("text/x-r", &["r"], &[]),
    ("text/x-scala", &["scala"], &[]),
    ("text/x-dart", &["dart"], &[]),
    ("text/x-elixir", &["ex", "exs"], &[]),
    ("text/x-haskell", &["hs"], &[]),
    ("text/x-ocaml", &["ml"], &[]),
    ("text/x-powershell", &["ps1"], &[]),
    ("text/x-terraform", &["tf"], &[]),
    ("text/x-protobuf", &["proto"], &[]),
    ("application/graphql", &["graphql"], &[]),
    ("text/x-dockerfile", &["dockerfile"], &[]),
    ("text/x-makefile", &["makefile"], &[]),
    ("text/x-tex", &["tex"], &[]),
    ("text/calendar", &["ics"], &[]),
    ("text/vcard", &["vcf"], &[]),
    ("text/x-diff", &["diff", "patch"], &[]),
    ("application/x-subrip", &["srt"], &[]),
    ("text/vtt", &["vtt"], &[]),
    (names::EML, &["eml"], &[]),
    ("application/x-pem-file", &["pem", "crt", "key"], &[]),
];

/// The media type of an extension in any case, without its dot.
pub fn type_of_extension(extension: &str) -> Option<&'static str> {
    let found = row_of(TEXT_ROWS, extension).or_else(|| row_of(OTHER_ROWS, extension));
    found.map(|(media_type, ..)| *media_type)
}

/// The media type of a text by its extension in any case; `None` if it is not the extension of a text.
pub fn text_type(extension: &str) -> Option<&'static str> {
    row_of(TEXT_ROWS, extension).map(|(media_type, ..)| *media_type)
}

/// The media type that a file name or the path of an address suggests. It is only a claim: the content is not read.
pub fn type_of_name(name: &str) -> Option<&'static str> {
    type_of_extension(&extension_of(name))
}

/// The usual extension of a media type, without a dot. Case and parameters are ignored, and known other spellings are
/// recognized.
pub fn usual_extension(media_type: &str) -> Option<&'static str> {
    let essence = essence(media_type);
    let (_, extensions, _) = TEXT_ROWS
        .iter()
        .chain(OTHER_ROWS)
        .find(|(known, _, others)| {
            // Some registered names have capitals: `macroEnabled`.
            known.eq_ignore_ascii_case(&essence) || others.contains(&essence.as_str())
        })?;
    extensions.first().copied()
}

fn row_of(rows: &'static [Row], extension: &str) -> Option<&'static Row> {
    rows.iter().find(|(_, extensions, _)| {
        extensions
            .iter()
            .any(|known| known.eq_ignore_ascii_case(extension))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn rows() -> impl Iterator<Item = &'static Row> {
        TEXT_ROWS.iter().chain(OTHER_ROWS)
    }

    #[test]
    fn each_extension_and_each_type_appears_once() {
        let (mut extensions, mut types) = (BTreeSet::new(), BTreeSet::new());
        for (media_type, endings, others) in rows() {
            for extension in *endings {
                assert!(extensions.insert(*extension), "{extension}");
                assert_eq!(*extension, extension.to_ascii_lowercase());
            }
            for spelling in [media_type].into_iter().chain(*others) {
                assert!(types.insert(spelling.to_ascii_lowercase()), "{spelling}");
            }
        }
    }

    #[test]
    fn every_type_and_its_usual_extension_name_each_other() {
        for (media_type, endings, others) in rows() {
            let usual = usual_extension(media_type);
            assert_eq!(usual, endings.first().copied(), "{media_type}");
            assert_eq!(usual.and_then(type_of_extension), Some(*media_type));
            for spelling in *others {
                assert_eq!(usual_extension(spelling), usual, "{spelling}");
            }
        }
    }

    #[test]
    fn a_name_alone_suggests_a_media_type() {
        for (name, media_type) in [
            ("a.png", "image/png"),
            ("a.JPEG", "image/jpeg"),
            ("a.opus", "audio/ogg"),
            ("a.m4v", "video/mp4"),
            ("a.docx", names::DOCX),
            ("a.doc", names::DOC),
            ("a.tar.gz", "application/gzip"),
            ("a.csv", "text/csv"),
        ] {
            assert_eq!(type_of_name(name), Some(media_type), "{name}");
        }
    }

    #[test]
    fn lookups_ignore_case_parameters_and_directories() {
        assert_eq!(usual_extension("Text/CSV; header=present"), Some("csv"));
        assert_eq!(type_of_extension("PNG"), Some("image/png"));
        assert_eq!(type_of_name("files/B/a.b/C.PDF"), Some("application/pdf"));
        for name in ["files/a.pdf/b", "x.unheard", ".png", ""] {
            assert_eq!(type_of_name(name), None, "{name}");
        }
        assert_eq!(text_type("pdf"), None);
        assert_eq!(usual_extension("application/octet-stream"), None);
    }
}
