//! Control words of RTF: destinations, and characters by name.

use crate::markdown::ListMarker;

/// The content of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Destination {
    /// Text of the document.
    #[default]
    Text,
    /// Content that is not shown, with all groups in it.
    Dropped,
    /// The table of fonts, which names code pages.
    Fonts,
    /// The style sheet, which names headings.
    Styles,
    /// The instruction of a field.
    Instruction,
    /// The result that a field shows.
    Result,
    /// The marker of a list item.
    Marker,
    /// A footnote or an endnote.
    Note,
    /// An annotation of a reviewer (`\annotation`).
    Comment,
    /// The author of the next comment.
    Author,
    /// Data of a form field.
    FormField,
    /// An entry of a list in a form.
    FormEntry,
}

/// The destination that a control word begins; `None` if it begins none. Unknown `starred` ones are dropped, as the
/// format requires.
pub(super) fn destination_of(word: &str, starred: bool) -> Option<Destination> {
    Some(match word {
        "fonttbl" => Destination::Fonts,
        "stylesheet" => Destination::Styles,
        "fldinst" => Destination::Instruction,
        "fldrslt" => Destination::Result,
        "listtext" | "pntext" => Destination::Marker,
        "footnote" => Destination::Note,
        "annotation" => Destination::Comment,
        "atnauthor" => Destination::Author,
        "formfield" => Destination::FormField,
        "ffl" => Destination::FormEntry,
        // The Unicode half of `\upr`, the replacement of an object, the text of shapes and formulas, and the properties
        // of tables within cells.
        "ud" | "result" | "shpinst" | "shptxt" | "moMath" | "moMathPara" | "nesttableprops" => {
            Destination::Text
        }
        "colortbl" | "info" | "pict" | "object" | "objdata" | "objclass" | "header" | "headerl"
        | "headerr" | "headerf" | "footer" | "footerl" | "footerr" | "footerf" | "ftnsep"
        | "ftnsepc" | "ftncn" | "aftnsep" | "aftnsepc" | "aftncn" | "generator" | "themedata"
        | "colorschememapping" | "latentstyles" | "datastore" | "listtable"
        | "listoverridetable" | "rsidtbl" | "revtbl" | "filetbl" | "xmlnstbl" | "mmathPr"
        | "bkmkstart" | "bkmkend" | "nonshppict" | "nonesttables" | "shprslt" | "sp" | "upr"
        | "xe" | "tc" | "rxe" | "template" | "private" | "pn" | "pnseclvl" | "atnid" | "atnref"
        | "atntime" | "atrfstart" | "atrfend" | "datafield" | "docvar" | "fontemb" | "falt"
        | "panose" | "picprop" | "blipuid" | "background" | "mctrlPr" | "mrPr" | "mfPr"
        | "mnaryPr" | "mradPr" | "msSupPr" | "msSubPr" | "mdPr" => Destination::Dropped,
        _ if starred => Destination::Dropped,
        _ => return None,
    })
}

/// The character of a control word.
pub(super) fn character_of(word: &str) -> Option<&'static str> {
    Some(match word {
        "emdash" => "—",
        "endash" => "–",
        "bullet" => "•",
        "lquote" => "‘",
        "rquote" => "’",
        "ldblquote" => "“",
        "rdblquote" => "”",
        "tab" | "emspace" | "enspace" | "qmspace" => " ",
        "zwj" => "\u{200D}",
        "zwnj" => "\u{200C}",
        _ => return None,
    })
}

/// The level of a style that is a heading by its name.
pub(super) fn heading_level(style: &str) -> Option<u8> {
    style
        .trim()
        .trim_end_matches(';')
        .to_ascii_lowercase()
        .strip_prefix("heading ")
        .and_then(|level| level.trim().parse::<u8>().ok())
        .filter(|level| (1..=9).contains(level))
}

/// The marker of a list item by its text: a number, or any sign. A label that is not only a number, such as `(c)` or
/// `1.2`, is returned, too.
pub(super) fn list_marker(text: &str) -> Option<(ListMarker, String)> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let number = text.trim_end_matches(['.', ')', ':']);
    if let Ok(number) = number.parse() {
        return Some((ListMarker::Number(number), String::new()));
    }
    // Letters alone can be signs of a symbol font.
    let is_label = text.contains(|sign: char| sign.is_ascii_digit())
        || (number.len() < text.len() && number.contains(char::is_alphanumeric));
    let label = if is_label { text } else { "" };
    Some((ListMarker::Bullet, label.to_owned()))
}

/// The link target of a field.
pub(super) fn field_target(instruction: &str) -> Option<String> {
    let rest = instruction.trim().strip_prefix("HYPERLINK")?.trim_start();
    let (local, rest) = match rest.strip_prefix("\\l") {
        Some(rest) => ("#", rest.trim_start()),
        None => ("", rest),
    };
    let url = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    };
    let url = url?.trim();
    (!url.is_empty()).then(|| format!("{local}{url}"))
}
