//! The media types that classification returns ([`dray_media_type::names`]), and the rules for choosing one that only
//! documents need.

use dray_media_type::lists;
pub use dray_media_type::names::*;

/// The type of an office file by its name's extension. Used only if the bytes show an office file but not its format:
/// an encrypted package.
pub(super) fn of_office_extension(extension: &str) -> Option<&'static str> {
    dray_media_type::type_of_extension(extension).filter(|found| OFFICE_PACKAGES.contains(found))
}

/// Office Open XML in all its variants.
const OFFICE_PACKAGES: &[&str] = &[
    DOCX, DOTX, DOCM, DOTM, XLSX, XLTX, XLSM, XLTM, XLAM, XLSB, PPTX, PPSX, POTX, PPTM, PPSM, POTM,
    PPAM,
];

/// The type of a main part's content type (ECMA-376 part 1; the macro variants of MS-OFFMACRO, and MS-XLSB).
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
    if extension == "log" {
        // Results have a separate subtype for logs; in all other places a log is plain text.
        return LOG;
    }
    dray_media_type::text_type(extension)
        .filter(|found| !lists::TYPES_BY_STRUCTURE.contains(found))
        .unwrap_or(PLAIN)
}
