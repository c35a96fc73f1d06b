//! Worksheets: XLSX, XLSM, XLSB, XLS, ODS (read-attachment 7.7).

mod biff;
mod biff_notes;
mod biff_style;
mod cells;
mod code;
mod color;
mod comments;
mod distant_cells;
mod drawing;
mod format;
mod ods;
mod ods_shapes;
mod ods_styles;
mod strings;
mod style;
mod used;
mod value;
mod workbook;
mod xls;
mod xlsb;
mod xlsb_formats;
mod xlsx;

#[cfg(test)]
pub(super) mod tests;

pub(super) use value::number_text;

use super::{ConversionHint, Converter};

/// One media type for each converter, with its extension.
pub(super) const SAMPLES: &[(&str, &str)] = &[
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsx",
    ),
    (
        "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
        "xlsb",
    ),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
];

/// The converter of this family for a media type.
pub(super) fn converter(hint: &ConversionHint) -> Option<Converter> {
    let (name, convert): (_, super::Convert) = match hint.mime.as_str() {
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        | "application/vnd.openxmlformats-officedocument.spreadsheetml.template"
        | "application/vnd.ms-excel.sheet.macroEnabled.12"
        | "application/vnd.ms-excel.template.macroEnabled.12"
        | "application/vnd.ms-excel.addin.macroEnabled.12" => ("xlsx", xlsx::convert),
        "application/vnd.ms-excel.sheet.binary.macroEnabled.12" => ("xlsb", xlsb::convert),
        "application/vnd.ms-excel" => ("xls", xls::convert),
        "application/vnd.oasis.opendocument.spreadsheet"
        | "application/vnd.oasis.opendocument.spreadsheet-template"
        | "application/vnd.oasis.opendocument.spreadsheet-flat-xml" => ("ods", ods::convert),
        _ => return None,
    };
    Some(Converter { name, convert })
}
