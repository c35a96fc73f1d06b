//! Detects the type of a file: the bytes decide, and the name only refines the type of a text (read-attachment 5).
//!
//! Reads at most 64 KiB of the start, the directory of a container and the few small parts of it that name its type.
//! No memory is allocated in proportion to a number in the file.

pub(crate) mod bytes;
mod late_pdf;
mod markup;
pub mod mime;
mod office;
mod ole;
#[cfg(test)]
mod tests;
mod text;
mod zip;

use std::io::{self, Read as _};

use dray_media_type::kind::{ContentKind, ImageKind, Signature, find_signature};
use serde::{Deserialize, Serialize};

use crate::container::Input;
use crate::encoding::{DetectedEncoding, SAMPLE_BYTES};
use crate::formats::ConversionHint;

/// The five kinds, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Characters, code and markup included.
    Text,
    /// A document: it has a converter or should have one.
    Document,
    /// A picture of pixels; SVG is a text.
    Image,
    /// Files packed together, or one that is compressed.
    Archive,
    /// All other files: programs, audio, video, unknown bytes.
    Binary,
}

impl Kind {
    /// All kinds, in the order in which the policy lists them.
    pub const ALL: [Self; 5] = [
        Self::Image,
        Self::Text,
        Self::Document,
        Self::Archive,
        Self::Binary,
    ];

    /// The kind's name in messages and in configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Document => "document",
            Self::Image => "image",
            Self::Archive => "archive",
            Self::Binary => "binary",
        }
    }
}

/// The classification of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Class {
    /// The kind, which a policy allows or refuses.
    pub kind: Kind,
    /// The file's media type, from the table in [`mime`] and the signatures.
    pub mime: &'static str,
    /// Encoding of a text by its name, as far as the start shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<&'static str>,
    /// Whether the container declares that it is encrypted, so no conversion needs to be tried.
    pub encrypted: bool,
    /// Remarks on how the type was found, without any text of the file.
    pub warnings: Vec<String>,
    /// Extension of the name, lower case, as [`ConversionHint::extension`] requires it.
    #[serde(skip)]
    extension: String,
    /// Whether the bytes leave no doubt about the encoding.
    #[serde(skip)]
    certain: bool,
    /// Whether the start is only white space.
    #[serde(skip)]
    blank_start: bool,
}

impl Class {
    fn new(kind: Kind, mime: &'static str, extension: String) -> Self {
        Self {
            kind,
            mime,
            encoding: None,
            encrypted: false,
            warnings: Vec::new(),
            extension,
            certain: false,
            blank_start: false,
        }
    }

    /// The hint for the conversion. The converter detects the encoding unless the first bytes determine it: a page may
    /// declare its own, and the end of a text may differ from its start.
    pub fn hint(&self) -> ConversionHint {
        ConversionHint {
            show_hidden: false,
            all_rows: false,
            member: None,
            ocr: None,
            mime: self.mime.to_owned(),
            extension: self.extension.clone(),
            encoding: self.encoding.filter(|_| self.certain).map(str::to_owned),
        }
    }
}

/// The extension of a name, lower case and without the dot. Returns the name of build files without an extension.
pub fn file_extension(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let lower = last.to_lowercase();
    match lower.rsplit_once('.') {
        Some((_, extension)) if extension.len() <= 16 => extension.to_owned(),
        None if matches!(lower.as_str(), "dockerfile" | "makefile") => lower,
        _ => String::new(),
    }
}

/// The extension of the file inside a compressed file: `log` for `access.log.gz`. `None` for any other type.
fn unpacked_extension(mime: &str, name: &str) -> Option<String> {
    let packed = matches!(mime, mime::GZIP | mime::XZ | mime::ZSTANDARD);
    let (stem, _) = name.rsplit_once('.').filter(|_| packed)?;
    Some(file_extension(stem))
}

/// Classifies an open file. `name` refines only the type of a text and of an encrypted package.
///
/// # Errors
///
/// Errors of reading.
pub fn classify(input: &mut dyn Input, name: &str) -> io::Result<Class> {
    let extension = file_extension(name);
    let sample = zip::read_sample(input, SAMPLE_BYTES)?;
    let class = match find_signature(&sample) {
        // The signature decides even where a text may begin so: of two kinds the stricter one wins (read-attachment 5).
        Some(Signature::Format(format)) => Class::new(
            kind_of_content(format.kind),
            format.media_type,
            unpacked_extension(format.media_type, name).unwrap_or(extension),
        ),
        Some(Signature::Zip) => classify_container(input, &sample, extension)?,
        Some(Signature::CompoundFile) => classify_compound(input, extension)?,
        None => classify_unsigned(&sample, extension),
    };
    // The caller and the converters read on from this handle and expect its start.
    input.rewind()?;
    Ok(class)
}

/// The kind by which the policy decides. Raw pictures of cameras are not pictures for it, because only the listed
/// formats are (read-attachment 5.1).
fn kind_of_content(content: ContentKind) -> Kind {
    match content {
        ContentKind::Image(ImageKind::Other)
        | ContentKind::Video(_)
        | ContentKind::Audio(_)
        | ContentKind::Executable(_)
        | ContentKind::Binary => Kind::Binary,
        ContentKind::Image(_) => Kind::Image,
        ContentKind::Document(_) => Kind::Document,
        ContentKind::Archive(_) => Kind::Archive,
        ContentKind::Text | ContentKind::Empty => Kind::Text,
    }
}

fn classify_container(
    input: &mut dyn Input,
    sample: &[u8],
    extension: String,
) -> io::Result<Class> {
    let contents = zip::Contents::read(input, sample)?;
    let named = office::find_document(input, &contents, &extension)?;
    let mut class = match named {
        Some((mime, warning)) => {
            let mut class = Class::new(Kind::Document, mime, extension);
            class.warnings.extend(warning.map(str::to_owned));
            class
        }
        None => Class::new(Kind::Archive, mime::ZIP, extension),
    };
    if contents.damaged {
        class
            .warnings
            .push("directory of the container damaged".to_owned());
    }
    Ok(class)
}

fn classify_compound(input: &mut dyn Input, extension: String) -> io::Result<Class> {
    Ok(match ole::classify_root(input)? {
        ole::OleContent::Encrypted => {
            let mime = mime::of_office_extension(&extension).unwrap_or(mime::OLE);
            let mut class = Class::new(Kind::Document, mime, extension);
            class.encrypted = true;
            class
        }
        ole::OleContent::Document(mime) => Class::new(Kind::Document, mime, extension),
        ole::OleContent::Other => Class::new(Kind::Binary, mime::OLE, extension),
    })
}

fn classify_unsigned(sample: &[u8], extension: String) -> Class {
    let is_truncated = sample.len() >= SAMPLE_BYTES;
    let text = text::detect_text(sample, is_truncated);
    if late_pdf::is_late_pdf(sample, text.is_some()) {
        return Class::new(Kind::Document, mime::PDF, extension);
    }
    let Some(text) = text else {
        return Class::new(Kind::Binary, mime::OCTET_STREAM, extension);
    };
    let blank = text
        .sample
        .trim_matches(['\u{FEFF}', '\0'])
        .trim()
        .is_empty();
    let (kind, mime) = if sample.is_empty() {
        (Kind::Text, mime::PLAIN)
    } else {
        markup::classify_text(&text.sample, &extension, is_truncated)
    };
    let mut class = Class::new(kind, mime, extension);
    class.encoding = Some(text.encoding.name());
    class.certain = text.certain;
    class.blank_start = blank;
    class
}

/// Whether a text has only white space and byte-order marks up to its end. Reads at most `limit` bytes.
///
/// # Errors
///
/// Errors of reading.
pub fn is_blank(input: &mut dyn Input, class: &Class, limit: u64) -> io::Result<bool> {
    if class.kind != Kind::Text || !class.blank_start {
        return Ok(false);
    }
    // Characters of UTF-16 and UTF-32 have zero bytes, which do not mean that it is not blank.
    let wide =
        class.certain && class.encoding != Some(DetectedEncoding::Known(encoding_rs::UTF_8).name());
    input.seek(io::SeekFrom::Start(SAMPLE_BYTES as u64))?;
    let mut rest = io::Read::take(&mut *input, limit.saturating_sub(SAMPLE_BYTES as u64));
    let mut buffer = vec![0; SAMPLE_BYTES];
    let blank = loop {
        match rest.read(&mut buffer) {
            Ok(0) => break true,
            Ok(read) if text::is_blank(buffer.get(..read).unwrap_or_default(), wide) => {}
            Ok(_) => break false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    input.rewind()?;
    Ok(blank)
}
