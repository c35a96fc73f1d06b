//! Which alternatives of `mc:AlternateContent` an office program shows: those whose namespaces it understands
//! (ECMA-376-3, 7.3). Text in any other alternative is text that a person does not see.

/// Start of all namespaces of the transitional standard.
const TRANSITIONAL_NAMESPACES: &str = "http://schemas.openxmlformats.org/";
/// Start of all namespaces of the strict standard.
const STRICT_NAMESPACES: &str = "http://purl.oclc.org/ooxml/";
/// Start of the extensions, which are listed below.
const EXTENSION_NAMESPACES: &str = "http://schemas.microsoft.com/office/";

/// Extensions that Word, Excel and `PowerPoint` declare ([MS-DOCX], [MS-XLSX], [MS-PPTX], [MS-ODRAWXML]), without the
/// start that they share.
const EXTENSIONS: [&str; 66] = [
    "2019/extlst",
    "drawing/2007/8/2/chart",
    "drawing/2008/diagram",
    "drawing/2010/chartDrawing",
    "drawing/2010/compatibility",
    "drawing/2010/diagram",
    "drawing/2010/main",
    "drawing/2010/picture",
    "drawing/2010/slicer",
    "drawing/2012/chart",
    "drawing/2012/main",
    "drawing/2012/slicer",
    "drawing/2012/timeslicer",
    "drawing/2014/chart",
    "drawing/2014/chartex",
    "drawing/2014/main",
    "drawing/2015/06/chart",
    "drawing/2015/9/8/chartex",
    "drawing/2015/10/21/chartex",
    "drawing/2016/5/9/chartex",
    "drawing/2016/5/10/chartex",
    "drawing/2016/5/11/chartex",
    "drawing/2016/5/12/chartex",
    "drawing/2016/5/13/chartex",
    "drawing/2016/5/14/chartex",
    "drawing/2016/SVG/main",
    "drawing/2016/ink",
    "drawing/2017/decorative",
    "drawing/2017/model3d",
    "powerpoint/2010/main",
    "powerpoint/2012/main",
    "powerpoint/2015/main",
    "powerpoint/2015/09/main",
    "powerpoint/2016/sectionzoom",
    "powerpoint/2016/slidezoom",
    "powerpoint/2016/summaryzoom",
    "powerpoint/2018/8/main",
    "spreadsheetml/2009/9/ac",
    "spreadsheetml/2009/9/main",
    "spreadsheetml/2010/11/ac",
    "spreadsheetml/2010/11/main",
    "spreadsheetml/2014/11/main",
    "spreadsheetml/2014/revision",
    "spreadsheetml/2015/02/main",
    "spreadsheetml/2015/revision2",
    "spreadsheetml/2016/revision3",
    "spreadsheetml/2016/revision6",
    "spreadsheetml/2016/revision10",
    "spreadsheetml/2017/dynamicarray",
    "spreadsheetml/2017/richdata",
    "spreadsheetml/2018/calcfeatures",
    "webextensions/webextension/2010/11",
    "word/2006/wordml",
    "word/2010/wordml",
    "word/2010/wordprocessingCanvas",
    "word/2010/wordprocessingDrawing",
    "word/2010/wordprocessingGroup",
    "word/2010/wordprocessingInk",
    "word/2010/wordprocessingShape",
    "word/2012/wordml",
    "word/2015/wordml/symex",
    "word/2016/wordml/cid",
    "word/2018/wordml",
    "word/2018/wordml/cex",
    "word/2020/wordml/sdtdatahash",
    "word/2023/wordml/word16du",
];

/// Whether office programs understand a namespace.
pub(super) fn is_understood(uri: &str) -> bool {
    uri.starts_with(TRANSITIONAL_NAMESPACES)
        || uri.starts_with(STRICT_NAMESPACES)
        || uri
            .strip_prefix(EXTENSION_NAMESPACES)
            .is_some_and(|extension| EXTENSIONS.contains(&extension))
        || matches!(
            uri,
            "urn:schemas-microsoft-com:vml"
                | "urn:schemas-microsoft-com:office:office"
                | "urn:schemas-microsoft-com:office:word"
                | "urn:schemas-microsoft-com:office:excel"
                | "urn:schemas-microsoft-com:office:powerpoint"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_namespaces_of_office_programs_are_understood() {
        for uri in [
            "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
            "http://schemas.openxmlformats.org/drawingml/2006/main",
            "urn:schemas-microsoft-com:vml",
        ] {
            assert!(is_understood(uri), "{uri}");
        }
        for uri in [
            "urn:x",
            "",
            "http://schemas.microsoft.com/office/word/2010/wordprocessingShape/x",
            "http://schemas.microsoft.com/office/word/2099/future",
        ] {
            assert!(!is_understood(uri), "{uri}");
        }
    }
}
