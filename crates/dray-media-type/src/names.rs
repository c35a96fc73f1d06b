//! Names of the media types that the code distinguishes. No other spelling appears in a result.

/// Bytes of an unknown type.
pub const OCTET_STREAM: &str = "application/octet-stream";
/// PDF, even with other bytes before its signature.
pub const PDF: &str = "application/pdf";
/// Rich text, by the bytes `{\rtf`.
pub const RTF: &str = "application/rtf";
/// A ZIP that is not a document, under any name.
pub const ZIP: &str = "application/zip";
/// A tar archive, not compressed.
pub const TAR: &str = "application/x-tar";
/// One gzip file, or several one after the other.
pub const GZIP: &str = "application/gzip";
/// One file compressed with bzip2.
pub const BZIP2: &str = "application/x-bzip2";
/// One file compressed with xz.
pub const XZ: &str = "application/x-xz";
/// One file compressed with Zstandard.
pub const ZSTANDARD: &str = "application/zstd";
/// An OLE2 file of unknown kind.
pub const OLE: &str = "application/x-ole-storage";
/// Word 97 to 2003 (MS-DOC).
pub const DOC: &str = "application/msword";
/// Excel 5 to 2003 (MS-XLS).
pub const XLS: &str = "application/vnd.ms-excel";
/// `PowerPoint` 97 to 2003 (MS-PPT).
pub const PPT: &str = "application/vnd.ms-powerpoint";
/// Outlook message (MS-OXMSG), a compound file.
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
/// Binary Excel workbook (MS-XLSB), with or without macros.
pub const XLSB: &str = "application/vnd.ms-excel.sheet.binary.macroEnabled.12";
/// Slides.
pub const PPTX: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";
/// Slide show.
pub const PPSX: &str = "application/vnd.openxmlformats-officedocument.presentationml.slideshow";
/// Slides template.
pub const POTX: &str = "application/vnd.openxmlformats-officedocument.presentationml.template";
/// Slides with macros, which are never run.
pub const PPTM: &str = "application/vnd.ms-powerpoint.presentation.macroEnabled.12";
/// Slide show with macros.
pub const PPSM: &str = "application/vnd.ms-powerpoint.slideshow.macroEnabled.12";
/// Slides template with macros.
pub const POTM: &str = "application/vnd.ms-powerpoint.template.macroEnabled.12";
/// Slides add-in with macros.
pub const PPAM: &str = "application/vnd.ms-powerpoint.addin.macroEnabled.12";
/// Book in EPUB, by its `mimetype` or its container file.
pub const EPUB: &str = "application/epub+zip";
/// Text document of ODF (`.odt`).
pub const ODT: &str = "application/vnd.oasis.opendocument.text";
/// Spreadsheet document of ODF (`.ods`).
pub const ODS: &str = "application/vnd.oasis.opendocument.spreadsheet";
/// Presentation document of ODF (`.odp`).
pub const ODP: &str = "application/vnd.oasis.opendocument.presentation";
/// Every Open document type; templates and masters have separate types.
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
/// Open document text in one XML file; a text that is converted like the packed form.
pub const FODT: &str = "application/vnd.oasis.opendocument.text-flat-xml";
/// Open document spreadsheet in one XML file.
pub const FODS: &str = "application/vnd.oasis.opendocument.spreadsheet-flat-xml";
/// Open document presentation in one XML file.
pub const FODP: &str = "application/vnd.oasis.opendocument.presentation-flat-xml";
/// Internet message format (RFC 5322), with a matching extension.
pub const EML: &str = "message/rfc822";
/// Text of unknown subtype.
pub const PLAIN: &str = "text/plain";
/// A log, detected only by its extension; document classification distinguishes it from other plain text.
pub const LOG: &str = "text/x-log";
/// HTML, or a fragment that begins with one of its elements.
pub const HTML: &str = "text/html";
/// HTML whose root names the XHTML namespace.
pub const XHTML: &str = "application/xhtml+xml";
/// XML of an unknown vocabulary.
pub const XML: &str = "application/xml";
/// SVG; a text, never an image.
pub const SVG: &str = "image/svg+xml";
/// RSS feed, version 1 or 2.
pub const RSS: &str = "application/rss+xml";
/// Atom feed (RFC 4287), by its namespace.
pub const ATOM: &str = "application/atom+xml";
/// JSON that parses up to the end of the sample.
pub const JSON: &str = "application/json";
/// Lines of JSON, by the extension alone.
pub const JSON_LINES: &str = "application/x-ndjson";
/// Jupyter notebook: JSON with cells, and a matching extension.
pub const NOTEBOOK: &str = "application/x-ipynb+json";
/// Values separated by commas, by the extension alone.
pub const CSV: &str = "text/csv";
/// Values separated by tabs, by the extension alone.
pub const TSV: &str = "text/tab-separated-values";
/// Markdown, by the extension alone.
pub const MARKDOWN: &str = "text/markdown";
/// YAML, by the extension alone.
pub const YAML: &str = "application/yaml";
