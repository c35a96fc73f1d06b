//! Word processing and presentations: DOCX, PPTX, ODT, ODP (read-attachment 7.6, 7.8, 7.10), and DOC and PPT of
//! Office 97 to 2003.

mod alternate;
pub(super) mod blocks;
mod deck;
mod doc;
mod docx;
pub(super) mod figure;
pub(super) mod label;
pub(super) mod odf;
pub(super) mod package;
mod ppt;
mod pptx;
pub(super) mod xml;

#[cfg(test)]
pub(super) mod tests;

pub(super) use deck::write_plain_comments;

use super::{ConversionHint, Converter};

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("application/msword", "doc"),
    ("application/vnd.ms-powerpoint", "ppt"),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
    ),
    (
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "pptx",
    ),
    ("application/vnd.oasis.opendocument.text", "odt"),
    ("application/vnd.oasis.opendocument.presentation", "odp"),
    ("application/x-ole-storage", "ole"),
];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let mime = hint.mime.as_str();
    let (name, convert): (_, super::Convert) = match mime {
        "application/msword" => ("doc", doc::convert),
        "application/vnd.ms-powerpoint" => ("ppt", ppt::convert),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
        | "application/vnd.openxmlformats-officedocument.wordprocessingml.template"
        | "application/vnd.ms-word.document.macroEnabled.12"
        | "application/vnd.ms-word.template.macroEnabled.12" => ("docx", docx::convert),
        "application/vnd.openxmlformats-officedocument.presentationml.presentation"
        | "application/vnd.openxmlformats-officedocument.presentationml.template"
        | "application/vnd.openxmlformats-officedocument.presentationml.slideshow"
        | "application/vnd.ms-powerpoint.presentation.macroEnabled.12"
        | "application/vnd.ms-powerpoint.template.macroEnabled.12"
        | "application/vnd.ms-powerpoint.slideshow.macroEnabled.12"
        | "application/vnd.ms-powerpoint.addin.macroEnabled.12" => ("pptx", pptx::convert),
        "application/vnd.oasis.opendocument.text"
        | "application/vnd.oasis.opendocument.text-template"
        | "application/vnd.oasis.opendocument.text-master"
        | "application/vnd.oasis.opendocument.text-master-template"
        | "application/vnd.oasis.opendocument.text-web"
        | "application/vnd.oasis.opendocument.text-flat-xml" => ("odt", odf::convert_text),
        "application/vnd.oasis.opendocument.presentation"
        | "application/vnd.oasis.opendocument.presentation-template"
        | "application/vnd.oasis.opendocument.presentation-flat-xml" => {
            ("odp", odf::convert_slides)
        }
        // An OLE2 file with an encrypted package. Opening it as a package of any kind reports the encryption.
        "application/x-ole-storage" => ("ole", docx::convert),
        _ => return None,
    };
    Some(Converter { name, convert })
}
