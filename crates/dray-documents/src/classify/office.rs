//! Detects the type of a ZIP: a document by its own declaration, or an archive (read-attachment 5.2).

use std::io;

use quick_xml::events::{BytesStart, Event};

use super::mime;
use super::zip::{Contents, EntryMark, read_part};
use crate::container::Input;

/// Relationship types that name the main part: transitional and strict.
const MAIN_RELATIONSHIPS: [&str; 2] = [
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument",
    "http://purl.oclc.org/ooxml/officeDocument/relationships/officeDocument",
];

/// A type, and a remark on how it was found.
pub(super) type Named = (&'static str, Option<&'static str>);

/// The remark if the main part is not declared.
pub(super) const GUESSED_MAIN_WARNING: &str = "main part guessed";

/// The document type of a container; `None` for an archive.
pub(super) fn find_document(
    input: &mut dyn Input,
    contents: &Contents,
    extension: &str,
) -> io::Result<Option<Named>> {
    if let Some(found) = declared_type(input, contents)? {
        return Ok(Some((found, None)));
    }
    if contents.entry("META-INF/container.xml").is_some() && contents.has(EntryMark::Package) {
        return Ok(Some((mime::EPUB, None)));
    }
    if let Some(manifest) = contents.entry("META-INF/manifest.xml") {
        // If every entry has a password, the manifest is unreadable, too. Only the name remains as a hint, so the type
        // is a guess.
        if manifest.encrypted && contents.has(EntryMark::Content) {
            let odf_type = format!("application/vnd.oasis.opendocument.{}", odf_word(extension));
            return Ok(Some((
                known_type(&odf_type).unwrap_or(mime::ODT),
                Some(GUESSED_MAIN_WARNING),
            )));
        }
        let bytes = read_part(input, manifest)?;
        if let Some(found) = root_entry(&bytes).as_deref().and_then(known_type) {
            return Ok(Some((found, None)));
        }
    }
    office_open(input, contents)
}

fn odf_word(extension: &str) -> &'static str {
    match extension {
        "ods" => "spreadsheet",
        "odp" => "presentation",
        "odg" => "graphics",
        _ => "text",
    }
}

/// The content of a first, uncompressed entry `mimetype`.
fn declared_type(input: &mut dyn Input, contents: &Contents) -> io::Result<Option<&'static str>> {
    let first = contents.first.as_ref();
    let Some(entry) = first.filter(|entry| entry.name == "mimetype" && entry.method == 0) else {
        return Ok(None);
    };
    let bytes = read_part(input, entry)?;
    Ok(std::str::from_utf8(&bytes).ok().and_then(known_type))
}

/// One of the types that a `mimetype` may name.
fn known_type(text: &str) -> Option<&'static str> {
    let text =
        text.trim_matches(|character: char| character.is_whitespace() || character == '\u{FEFF}');
    [mime::EPUB]
        .iter()
        .chain(mime::OPEN_DOCUMENT)
        .find(|known| **known == text)
        .copied()
}

/// The media type of the entry `/` of an open document's manifest.
fn root_entry(bytes: &[u8]) -> Option<String> {
    find_element(bytes, "file-entry", |element| {
        (attribute_value(element, "full-path")? == "/")
            .then(|| attribute_value(element, "media-type"))?
    })
}

/// The OOXML type of a package.
fn office_open(input: &mut dyn Input, contents: &Contents) -> io::Result<Option<Named>> {
    let types = match contents.entry("[Content_Types].xml") {
        Some(entry) => read_part(input, entry)?,
        // The entry may have been in the lost part.
        None if contents.damaged => Vec::new(),
        None => return Ok(None),
    };
    let rels = match contents.entry("_rels/.rels") {
        Some(entry) => read_part(input, entry)?,
        None => Vec::new(),
    };
    let main = main_part(&rels);
    if let Some(content_type) = main.as_deref().and_then(|main| content_type(&types, main)) {
        // The declared type is another one, such as a drawing, which has no converter.
        return Ok(mime::of_main_part(&content_type).map(|found| (found, None)));
    }
    let guess = [
        (EntryMark::Word, mime::DOCX),
        // This mark comes before `xl/`, which a binary workbook has too.
        (EntryMark::BinaryWorkbook, mime::XLSB),
        (EntryMark::Excel, mime::XLSX),
        (EntryMark::Slides, mime::PPTX),
    ];
    let guess = guess.iter().find(|(mark, _)| contents.has(*mark));
    Ok(guess.map(|(_, mime)| (*mime, Some(GUESSED_MAIN_WARNING))))
}

/// The part that the package's relationships name as the office document, without a leading slash.
fn main_part(rels: &[u8]) -> Option<String> {
    find_element(rels, "Relationship", |element| {
        let kind = attribute_value(element, "Type")?;
        let target = attribute_value(element, "Target")?;
        let name = target.trim_start_matches("./").trim_start_matches('/');
        MAIN_RELATIONSHIPS
            .contains(&kind.trim())
            .then(|| name.to_owned())
    })
}

/// The content type of a part: its override, otherwise that of its extension if that is the type of a main part.
fn content_type(types: &[u8], part: &str) -> Option<String> {
    let override_type = find_element(types, "Override", |element| {
        let name = attribute_value(element, "PartName")?;
        let is_same_part = name.trim_start_matches('/').eq_ignore_ascii_case(part);
        is_same_part.then(|| attribute_value(element, "ContentType"))?
    });
    override_type.or_else(|| {
        let (_, extension) = part.rsplit_once('.')?;
        let default = find_element(types, "Default", |element| {
            let is_same_extension =
                attribute_value(element, "Extension")?.eq_ignore_ascii_case(extension);
            is_same_extension.then(|| attribute_value(element, "ContentType"))?
        });
        // The default of `xml` is usually plain XML, which does not identify the main part.
        default.filter(|content_type| mime::of_main_part(content_type).is_some())
    })
}

/// The first value that `value_of` returns for an element of that local name. Stops at the first damage.
fn find_element<T>(
    bytes: &[u8],
    name: &str,
    value_of: impl Fn(&BytesStart<'_>) -> Option<T>,
) -> Option<T> {
    // Attributes are compared as text; a part in UTF-16 has a byte-order mark, which takes precedence over the label.
    let text = crate::encoding::decode_text(bytes, Some("UTF-8"));
    let mut reader = quick_xml::Reader::from_str(&text);
    loop {
        match reader.read_event() {
            Ok(Event::Start(element) | Event::Empty(element)) => {
                if element.local_name().as_ref() == name
                    && let Some(found) = value_of(&element)
                {
                    return Some(found);
                }
            }
            Ok(Event::Eof) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

fn attribute_value(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = element
        .attributes()
        .filter_map(Result::ok)
        .find(|attribute| attribute.key.local_name().as_ref() == name)?;
    let text = found.value;
    let plain = quick_xml::escape::unescape(&text).map(std::borrow::Cow::into_owned);
    Some(plain.unwrap_or_else(|_| text.into_owned()))
}
