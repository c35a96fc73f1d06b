//! Mail: EML and MSG (read-attachment 7.10).

mod decode;
mod eml;
mod lzfu;
mod message;
mod msg;
mod note;
mod properties;

pub(super) use eml::write_bodies;

use super::{ConversionHint, Convert, Converter};

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    ("message/rfc822", "eml"),
    ("application/vnd.ms-outlook", "msg"),
];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let (name, convert): (_, Convert) = match hint.mime.as_str() {
        "message/rfc822" | "message/global" => ("eml", eml::convert),
        "application/vnd.ms-outlook" => ("msg", msg::convert),
        _ => return None,
    };
    Some(Converter { name, convert })
}
