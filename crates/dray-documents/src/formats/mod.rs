//! One converter for each family of formats, chosen by media type alone (read-attachment 7).

mod archive;
mod book;
mod mail;
mod office;
mod pdf;
mod picture;
mod rtf;
mod sheet;
mod text;
mod web;

use std::rc::Rc;

pub use archive::{Member, is_archive};
pub use picture::{is_picture, recognized_markdown};
use serde::{Deserialize, Serialize};

use crate::container::Input;
use crate::limits::{Budget, Failure, Limit, Limits};
use crate::markdown::{Markdown, Part, Picture, SearchLines, Selection};

/// A text as one line: all white space between words becomes one space, and none remains around them.
pub(crate) fn collapse_white_space(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Version of all converters together. It is part of the key under which a conversion is cached, so it changes with
/// every change of what a converter writes.
pub const VERSION: &str = "8";

/// Information for a converter in addition to the bytes of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversionHint {
    /// Media type that classification gave.
    pub mime: String,
    /// The name's extension, lower case, without a dot; it only chooses among kinds of text.
    pub extension: String,
    /// Character encoding of a text, by its WHATWG label; `None` to detect it.
    pub encoding: Option<String>,
    /// Include hidden text, which a person who opens the document does not see.
    #[serde(default)]
    pub show_hidden: bool,
    /// Write all rows of tables and all lines of outputs, for a search; by default the first ones are written.
    #[serde(default)]
    pub all_rows: bool,
    /// The file of an archive that is to be read, by its path in the listing. In the hint for the unpacked file, the
    /// path by which it was read: so an archive within an archive is only listed.
    #[serde(default)]
    pub member: Option<String>,
    /// Return pictures for text recognition; `None` ignores pictures.
    #[serde(default)]
    pub ocr: Option<OcrHint>,
}

/// Options of text recognition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OcrHint {
    /// Most pages, or files, whose pictures are returned for recognition.
    pub max_pictures: u32,
    /// Languages of the text. The result depends on them, so they are part of the cache key of a conversion.
    pub languages: String,
}

/// Converts one document. Output that was written before a failure is kept.
pub type Convert = fn(&mut dyn Input, &ConversionHint, &mut Markdown) -> Result<(), Failure>;

/// A converter and its name.
#[derive(Clone, Copy, Debug)]
pub struct Converter {
    /// The converter's short name for logs: `docx`, `pdf`, `csv`.
    pub name: &'static str,
    /// Reads the document and writes it; called once for each conversion.
    pub convert: Convert,
}

/// Formats that one module reads.
#[derive(Clone, Copy, Debug)]
pub struct FormatFamily {
    /// Name of its module.
    pub name: &'static str,
    /// Pages of `docs/documents` that describe the output of its formats.
    pub pages: &'static [&'static str],
    /// A media type and its extension for each converter of the family. `fuzz/corpus/any_document` has a file of each.
    pub samples: &'static [(&'static str, &'static str)],
    /// The converter for a media type; `None` if the family does not support it.
    converter: fn(&ConversionHint) -> Option<Converter>,
}

impl FormatFamily {
    const fn new(
        name: &'static str,
        pages: &'static [&'static str],
        samples: &'static [(&'static str, &'static str)],
        converter: fn(&ConversionHint) -> Option<Converter>,
    ) -> Self {
        Self {
            name,
            pages,
            samples,
            converter,
        }
    }
}

/// Every family of formats. The first that has a converter for a media type reads it.
pub const FORMAT_FAMILIES: &[FormatFamily] = &[
    FormatFamily::new("text", &["text"], text::SAMPLES, text::converter),
    FormatFamily::new("web", &["web"], web::SAMPLES, web::converter),
    FormatFamily::new("mail", &["mail"], mail::SAMPLES, mail::converter),
    FormatFamily::new("rtf", &["rtf"], rtf::SAMPLES, rtf::converter),
    FormatFamily::new(
        "office",
        &["doc", "docx", "odf", "ppt", "pptx"],
        office::SAMPLES,
        office::converter,
    ),
    FormatFamily::new("sheet", &["sheets"], sheet::SAMPLES, sheet::converter),
    FormatFamily::new("book", &["epub"], book::SAMPLES, book::converter),
    FormatFamily::new("pdf", &["pdf"], pdf::SAMPLES, pdf::converter),
    FormatFamily::new("archive", &["zip"], archive::SAMPLES, archive::converter),
    // The output for pictures depends on the OCR program: docs/reading.md.
    FormatFamily::new("picture", &[], picture::SAMPLES, picture::converter),
];

/// The converter for a media type; `None` if there is none.
pub fn converter(hint: &ConversionHint) -> Option<Converter> {
    FORMAT_FAMILIES
        .iter()
        .find_map(|family| (family.converter)(hint))
}

/// Whether a document is plain text, code or Markdown. If it is UTF-8, only code of this crate reads it: no parser,
/// decoder or decompressor of another crate.
pub fn is_plain_text(hint: &ConversionHint) -> bool {
    converter(hint).is_some_and(|found| matches!(found.name, "text" | "markdown"))
}

/// The outcome of a conversion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Converted {
    /// Name of the converter; empty if the type has none.
    pub converter: String,
    /// The Markdown, not yet defanged; empty without output.
    pub markdown: String,
    /// The selected parts, in order.
    pub parts: Vec<Part>,
    /// Number of parts of the document, requested or not.
    pub parts_seen: u32,
    /// The limit that ended it early; earlier output is kept.
    pub stopped: Option<Limit>,
    /// The reason why the text is missing, if it is.
    pub failure: Option<Failure>,
    /// Remarks for the reader. These are texts of this crate, never of the file.
    pub warnings: Vec<String>,
    /// The file that was converted in place of the archive.
    #[serde(default)]
    pub member: Option<Member>,
    /// Pictures whose text is to be recognised; their notes are in the Markdown until then.
    #[serde(default)]
    pub pictures: Vec<Picture>,
    /// Rows of tables and lines of outputs that are counted but not in the Markdown.
    #[serde(default)]
    pub omitted: u64,
    /// Number of rows that the selection of rows contains, in all tables; 0 without one.
    #[serde(default)]
    pub selected_rows: u64,
    /// Lines that only a search reads, in order; see [`ConversionHint::all_rows`].
    #[serde(default)]
    pub search_lines: Vec<SearchLines>,
}

/// Converts a document within limits. Never fails: the result contains the failure.
pub fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    limits: Limits,
    selection: Selection,
) -> Converted {
    let mut out = Markdown::new(Rc::new(Budget::new(limits)), selection)
        .with_hidden_content(hint.show_hidden)
        .with_all_rows(hint.all_rows)
        .with_pictures(hint.ocr.as_ref().map_or(0, |ocr| ocr.max_pictures));
    let unpacked = archive::unpack_single(input, hint, out.budget());
    let member = match &unpacked {
        Ok(Some(unpacked)) => Some(unpacked.member.clone()),
        Ok(None) | Err(_) => None,
    };
    let (found, result) = match unpacked {
        Ok(Some(mut file)) => run_converter(&mut file.input, &file.hint, &mut out),
        Ok(None) => run_converter(input, hint, &mut out),
        // A single compressed file that cannot be unpacked is still reported by the archive converter.
        Err(failure) => (archive::converter(hint), Err(failure)),
    };
    let empty = out.is_empty();
    let written = out.finish();
    let (stopped, failure) = match result {
        Ok(()) => (None, None),
        // A limit after some text only shortens the document; a limit before any text is a failure.
        Err(Failure::Stopped(limit)) if !empty => (Some(limit), None),
        Err(failure) => (None, Some(failure)),
    };
    Converted {
        converter: found
            .map(|converter| converter.name.to_owned())
            .unwrap_or_default(),
        markdown: written.markdown,
        parts: written.parts,
        parts_seen: written.parts_seen,
        stopped,
        failure,
        warnings: written.warnings,
        member,
        pictures: written.pictures,
        omitted: written.omitted,
        selected_rows: written.selected_rows,
        search_lines: written.search_lines,
    }
}

/// Runs the converter for a media type.
fn run_converter(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> (Option<Converter>, Result<(), Failure>) {
    match converter(hint) {
        Some(found) => (Some(found), (found.convert)(input, hint, out)),
        None => (None, Err(Failure::Unsupported)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Names of the entries of a directory below this crate, without extension.
    fn names(directory: &str) -> BTreeSet<String> {
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_module_of_formats_is_a_family_in_the_list() {
        let mut modules = names("src/formats");
        modules.remove("mod");
        let listed: BTreeSet<_> = FORMAT_FAMILIES
            .iter()
            .map(|family| family.name.to_owned())
            .collect();
        assert_eq!(listed, modules);
    }

    #[test]
    fn every_page_of_formats_belongs_to_a_family() {
        let listed: BTreeSet<_> = FORMAT_FAMILIES
            .iter()
            .flat_map(|family| family.pages)
            .map(|page| (*page).to_owned())
            .collect();
        assert_eq!(listed, names("../../docs/documents"));
    }

    /// A hint with which each converter is used.
    fn hint(mime: &str) -> ConversionHint {
        ConversionHint {
            mime: mime.to_owned(),
            ocr: Some(OcrHint::default()),
            ..ConversionHint::default()
        }
    }

    #[test]
    fn every_family_has_a_sample_of_each_of_its_converters() {
        for family in FORMAT_FAMILIES {
            assert!(!family.samples.is_empty(), "{} has no samples", family.name);
            for (mime, extension) in family.samples {
                let found = converter(&hint(mime)).unwrap_or_else(|| panic!("{mime}"));
                let own = (family.converter)(&hint(mime));
                let own = own.unwrap_or_else(|| panic!("{} does not read {mime}", family.name));
                assert_eq!(found.name, own.name, "{extension}");
            }
        }
        // Every type that is distinguished by name, each in a line of its own.
        let names = include_str!("../../../dray-media-type/src/names.rs");
        let values = names.lines().filter(|line| line.starts_with("pub const "));
        let types: Vec<&str> = values.filter_map(|line| line.split('"').nth(1)).collect();
        assert!(types.len() > 40, "{types:?}");
        for mime in types {
            for family in FORMAT_FAMILIES {
                let Some(found) = (family.converter)(&hint(mime)) else {
                    continue;
                };
                let mut samples = family.samples.iter();
                let has_sample = samples.any(|(mime, _)| {
                    (family.converter)(&hint(mime)).is_some_and(|own| own.name == found.name)
                });
                assert!(has_sample, "{}: no sample of {mime}", family.name);
            }
        }
    }
}
