//! The fixed table of media types that classification gives. No other spelling ever appears in an answer.

/// No better name.
pub const OCTET_STREAM: &str = "application/octet-stream";
/// PDF.
pub const PDF: &str = "application/pdf";
/// Rich text.
pub const RTF: &str = "application/rtf";
/// A ZIP that is not a document, under any name.
pub const ZIP: &str = "application/zip";
/// A tar archive.
pub const TAR: &str = "application/x-tar";
/// One gzip file, or several one after the other.
pub const GZIP: &str = "application/gzip";
/// bzip2.
pub const BZIP2: &str = "application/x-bzip2";
/// xz.
pub const XZ: &str = "application/x-xz";
/// Zstandard.
pub const ZSTANDARD: &str = "application/zstd";
/// An OLE2 file of no known kind.
pub const OLE: &str = "application/x-ole-storage";
/// Legacy Word.
pub const DOC: &str = "application/msword";
/// Legacy Excel.
pub const XLS: &str = "application/vnd.ms-excel";
/// Legacy slides.
pub const PPT: &str = "application/vnd.ms-powerpoint";
/// Outlook message.
pub const MSG: &str = "application/vnd.ms-outlook";
/// Word document.
pub const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// Word template.
pub const DOTX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.template";
/// Word document with macros.
pub const DOCM: &str = "application/vnd.ms-word.document.macroEnabled.12";
/// Word template with macros.
pub const DOTM: &str = "application/vnd.ms-word.template.macroEnabled.12";
/// Excel workbook.
pub const XLSX: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
/// Excel template.
pub const XLTX: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.template";
/// Excel workbook with macros.
pub const XLSM: &str = "application/vnd.ms-excel.sheet.macroEnabled.12";
/// Excel template with macros.
pub const XLTM: &str = "application/vnd.ms-excel.template.macroEnabled.12";
/// Excel add-in with macros.
pub const XLAM: &str = "application/vnd.ms-excel.addin.macroEnabled.12";
/// Binary Excel workbook.
pub const XLSB: &str = "application/vnd.ms-excel.sheet.binary.macroEnabled.12";
/// Slides.
pub const PPTX: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";
/// Slide show.
pub const PPSX: &str = "application/vnd.openxmlformats-officedocument.presentationml.slideshow";
/// Slides template.
pub const POTX: &str = "application/vnd.openxmlformats-officedocument.presentationml.template";
/// Slides with macros.
pub const PPTM: &str = "application/vnd.ms-powerpoint.presentation.macroEnabled.12";
/// Slide show with macros.
pub const PPSM: &str = "application/vnd.ms-powerpoint.slideshow.macroEnabled.12";
/// Slides template with macros.
pub const POTM: &str = "application/vnd.ms-powerpoint.template.macroEnabled.12";
/// Slides add-in with macros.
pub const PPAM: &str = "application/vnd.ms-powerpoint.addin.macroEnabled.12";
/// Book.
pub const EPUB: &str = "application/epub+zip";
/// Open document text.
pub const ODT: &str = "application/vnd.oasis.opendocument.text";
/// Open document spreadsheet.
pub const ODS: &str = "application/vnd.oasis.opendocument.spreadsheet";
/// Open document presentation.
pub const ODP: &str = "application/vnd.oasis.opendocument.presentation";
/// Every Open document type; templates and masters keep their own.
pub const OPEN_DOCUMENT: &[&str] = &[
    ODT,
    ODS,
    ODP,
    "application/vnd.oasis.opendocument.text-template",
    "application/vnd.oasis.opendocument.text-master",
    "application/vnd.oasis.opendocument.text-master-template",
    "application/vnd.oasis.opendocument.text-web",
    "application/vnd.oasis.opendocument.spreadsheet-template",
    "application/vnd.oasis.opendocument.presentation-template",
    "application/vnd.oasis.opendocument.graphics",
    "application/vnd.oasis.opendocument.graphics-template",
    "application/vnd.oasis.opendocument.chart",
    "application/vnd.oasis.opendocument.chart-template",
    "application/vnd.oasis.opendocument.formula",
    "application/vnd.oasis.opendocument.formula-template",
    "application/vnd.oasis.opendocument.image",
    "application/vnd.oasis.opendocument.image-template",
    "application/vnd.oasis.opendocument.base",
    "application/vnd.oasis.opendocument.database",
];
/// Open document text in one XML file; a text that is converted like its packed kin.
pub const FODT: &str = "application/vnd.oasis.opendocument.text-flat-xml";
/// Open document spreadsheet in one XML file.
pub const FODS: &str = "application/vnd.oasis.opendocument.spreadsheet-flat-xml";
/// Open document presentation in one XML file.
pub const FODP: &str = "application/vnd.oasis.opendocument.presentation-flat-xml";
/// Mail.
pub const EML: &str = "message/rfc822";
/// Text of no known subtype.
pub const PLAIN: &str = "text/plain";
/// HTML.
pub const HTML: &str = "text/html";
/// XHTML.
pub const XHTML: &str = "application/xhtml+xml";
/// XML.
pub const XML: &str = "application/xml";
/// SVG; a text, never an image.
pub const SVG: &str = "image/svg+xml";
/// RSS feed.
pub const RSS: &str = "application/rss+xml";
/// Atom feed.
pub const ATOM: &str = "application/atom+xml";
/// JSON.
pub const JSON: &str = "application/json";
/// Lines of JSON.
pub const JSON_LINES: &str = "application/x-ndjson";
/// Jupyter notebook.
pub const NOTEBOOK: &str = "application/x-ipynb+json";
/// CSV.
pub const CSV: &str = "text/csv";
/// TSV.
pub const TSV: &str = "text/tab-separated-values";
/// Markdown.
pub const MARKDOWN: &str = "text/markdown";
/// YAML.
pub const YAML: &str = "application/yaml";

/// The type of an office file by its name's extension. Used only where bytes have said that it is one of them and
/// hide which: an encrypted package.
pub(super) fn of_office_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "docx" => DOCX,
        "dotx" => DOTX,
        "docm" => DOCM,
        "dotm" => DOTM,
        "xlsx" => XLSX,
        "xltx" => XLTX,
        "xlsm" => XLSM,
        "xltm" => XLTM,
        "xlam" => XLAM,
        "xlsb" => XLSB,
        "pptx" => PPTX,
        "ppsx" => PPSX,
        "potx" => POTX,
        "pptm" => PPTM,
        "ppsm" => PPSM,
        "potm" => POTM,
        "ppam" => PPAM,
        _ => return None,
    })
}

/// The type of a main part's content type (ECMA-376 part 1, and the macro variants of MS-OFFCRYPTO's siblings).
pub(super) fn of_main_part(content_type: &str) -> Option<&'static str> {
    const OPEN_XML_PREFIX: &str = "application/vnd.openxmlformats-officedocument.";
    let lower = content_type.trim().to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix(OPEN_XML_PREFIX) {
        return Some(match rest {
            "wordprocessingml.document.main+xml" => DOCX,
            "wordprocessingml.template.main+xml" => DOTX,
            "spreadsheetml.sheet.main+xml" => XLSX,
            "spreadsheetml.template.main+xml" => XLTX,
            "presentationml.presentation.main+xml" => PPTX,
            "presentationml.slideshow.main+xml" => PPSX,
            "presentationml.template.main+xml" => POTX,
            _ => return None,
        });
    }
    Some(match lower.strip_prefix("application/vnd.ms-")? {
        "word.document.macroenabled.main+xml" => DOCM,
        "word.template.macroenabledtemplate.main+xml" | "word.template.macroenabled.main+xml" => {
            DOTM
        }
        "excel.sheet.macroenabled.main+xml" => XLSM,
        "excel.template.macroenabled.main+xml" => XLTM,
        "excel.addin.macroenabled.main+xml" => XLAM,
        "excel.sheet.binary.macroenabled.main" => XLSB,
        "powerpoint.presentation.macroenabled.main+xml" => PPTM,
        "powerpoint.slideshow.macroenabled.main+xml" => PPSM,
        "powerpoint.template.macroenabled.main+xml" => POTM,
        "powerpoint.addin.macroenabled.main+xml" => PPAM,
        _ => return None,
    })
}

/// The subtype of a text by its name's extension (read-attachment 5.3, 7.1).
pub(super) fn of_text_extension(extension: &str) -> &'static str {
    match extension {
        "csv" => CSV,
        "tsv" | "tab" => TSV,
        "md" | "markdown" | "mdown" | "mkd" => MARKDOWN,
        "json" => JSON,
        "jsonl" | "ndjson" => JSON_LINES,
        "yml" | "yaml" => YAML,
        "toml" => "application/toml",
        "js" | "mjs" | "cjs" | "jsx" => "text/javascript",
        "ts" | "tsx" => "text/x-typescript",
        "css" => "text/css",
        "scss" => "text/x-scss",
        "py" => "text/x-python",
        "rb" => "text/x-ruby",
        "rs" => "text/x-rust",
        "go" => "text/x-go",
        "java" => "text/x-java",
        "c" | "h" => "text/x-c",
        "cpp" | "cc" | "hpp" | "cxx" => "text/x-c++",
        "cs" => "text/x-csharp",
        "php" => "text/x-php",
        "sh" | "bash" | "zsh" => "text/x-shellscript",
        "sql" => "application/sql",
        "ini" => "text/x-ini",
        "swift" => "text/x-swift",
        "kt" => "text/x-kotlin",
        "lua" => "text/x-lua",
        "pl" => "text/x-perl",
        "r" => "text/x-r",
        "scala" => "text/x-scala",
        "dart" => "text/x-dart",
        "ex" | "exs" => "text/x-elixir",
        "hs" => "text/x-haskell",
        "ml" => "text/x-ocaml",
        "ps1" => "text/x-powershell",
        "tf" => "text/x-terraform",
        "proto" => "text/x-protobuf",
        "graphql" => "application/graphql",
        "dockerfile" => "text/x-dockerfile",
        "makefile" => "text/x-makefile",
        "tex" => "text/x-tex",
        "log" => "text/x-log",
        "ics" => "text/calendar",
        "vcf" => "text/vcard",
        "diff" | "patch" => "text/x-diff",
        _ => PLAIN,
    }
}
