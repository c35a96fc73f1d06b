//! A cursor over the XML of office files: namespaces as a short list, alternates resolved, depth and time bounded.
//!
//! Document types are ignored, entities other than the five predefined ones are never expanded, and nothing is fetched.
//! Of `mc:AlternateContent` only the first `Choice` that office programs show is read, or the `Fallback` without one. The
//! text of a `Choice` that they do not show is counted as hidden.

use std::borrow::Cow;
use std::rc::Rc;

use quick_xml::events::{BytesStart, Event as Raw};
use quick_xml::name::{Namespace, QName, ResolveResult};
use quick_xml::reader::NsReader;

use super::alternate;
use crate::encoding;
use crate::limits::{Budget, Damage, Failure, Limit};
use crate::markdown::visible_characters;

/// Namespaces that converters distinguish; the strict and the transitional spelling count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::formats) enum Ns {
    /// `WordprocessingML`, the language of Word.
    Word,
    /// `DrawingML`, with charts, diagrams and the text boxes of Word.
    Drawing,
    /// `PresentationML`, the language of slides.
    Slides,
    /// Office mathematics (OMML), linear or built up.
    Math,
    /// Attributes that name a relationship.
    Rel,
    /// Markup compatibility, such as `mc:AlternateContent`.
    Alternate,
    /// VML and its office extension.
    Vml,
    /// ODF `text`: paragraphs, lists, fields.
    OdfText,
    /// ODF `table`: tables, also those of spreadsheets.
    OdfTable,
    /// ODF `office`: bodies, annotations, and typed values.
    OdfOffice,
    /// ODF `draw`: frames, shapes, pages of slides.
    OdfDraw,
    /// ODF `style`: styles, and attributes of columns.
    OdfStyle,
    /// ODF `presentation`: notes and classes of frames.
    OdfPresentation,
    /// Any other namespace, or none.
    Other,
}

impl Ns {
    fn of_uri(uri: &str) -> Self {
        if let Some(rest) = uri
            .strip_prefix("http://schemas.openxmlformats.org/")
            .or_else(|| uri.strip_prefix("http://purl.oclc.org/ooxml/"))
        {
            return match rest {
                "wordprocessingml/2006/main" | "wordprocessingml/main" => Self::Word,
                "presentationml/2006/main" | "presentationml/main" => Self::Slides,
                "officeDocument/2006/math" | "officeDocument/math" => Self::Math,
                "officeDocument/2006/relationships" | "officeDocument/relationships" => Self::Rel,
                "markup-compatibility/2006" => Self::Alternate,
                _ if rest.starts_with("drawingml/") => Self::Drawing,
                _ => Self::Other,
            };
        }
        if let Some(rest) = uri.strip_prefix("urn:oasis:names:tc:opendocument:xmlns:") {
            return match rest.split(':').next().unwrap_or_default() {
                "text" => Self::OdfText,
                "table" => Self::OdfTable,
                "office" => Self::OdfOffice,
                "drawing" => Self::OdfDraw,
                "style" => Self::OdfStyle,
                "presentation" => Self::OdfPresentation,
                _ => Self::Other,
            };
        }
        match uri {
            "urn:schemas-microsoft-com:vml" | "urn:schemas-microsoft-com:office:office" => {
                Self::Vml
            }
            _ if uri
                .starts_with("http://schemas.microsoft.com/office/word/2010/wordprocessing")
                || uri.starts_with("http://schemas.microsoft.com/office/drawing/") =>
            {
                Self::Drawing
            }
            _ => Self::Other,
        }
    }

    /// The namespace of a prefix that some writers use without declaring it.
    fn of_prefix(prefix: &str) -> Self {
        match prefix {
            "w" => Self::Word,
            "a" | "c" | "dgm" | "wp" | "pic" | "wps" => Self::Drawing,
            "p" => Self::Slides,
            "m" => Self::Math,
            "r" => Self::Rel,
            "mc" => Self::Alternate,
            "v" | "o" => Self::Vml,
            "text" => Self::OdfText,
            "table" => Self::OdfTable,
            "office" => Self::OdfOffice,
            "draw" => Self::OdfDraw,
            "style" => Self::OdfStyle,
            "presentation" => Self::OdfPresentation,
            _ => Self::Other,
        }
    }

    fn of(resolved: &ResolveResult<'_>) -> Self {
        match resolved {
            ResolveResult::Bound(Namespace(uri)) => Self::of_uri(uri),
            ResolveResult::Unbound => Self::Other,
            ResolveResult::Unknown(prefix) => Self::of_prefix(prefix),
        }
    }
}

/// An element that opens.
#[derive(Debug)]
pub(in crate::formats) struct Element<'x> {
    /// The element's namespace, as far as converters distinguish it.
    pub(in crate::formats) ns: Ns,
    start: BytesStart<'x>,
}

impl Element<'_> {
    /// The element's name without prefix.
    pub(in crate::formats) fn name(&self) -> &str {
        self.start.local_name().into_inner()
    }

    /// The value of an attribute by its name without prefix.
    pub(in crate::formats) fn attr(&self, name: &str) -> Option<String> {
        self.start
            .attributes()
            .with_checks(false)
            .flatten()
            // `xmlns:val="…"` declares a prefix and is not an attribute `val`.
            .find(|attribute| {
                attribute.key.local_name().as_ref() == name
                    && attribute
                        .key
                        .prefix()
                        .is_none_or(|prefix| !prefix.is_xmlns())
            })
            .map(|attribute| unescape_attribute(&attribute.value))
    }

    /// An attribute with a numeric value.
    pub(in crate::formats) fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.attr(name)?.trim().parse().ok()
    }

    /// An on-off attribute or element: true by default.
    pub(in crate::formats) fn on(&self, name: &str) -> bool {
        self.attr(name)
            .is_none_or(|value| !matches!(value.as_str(), "0" | "false" | "off" | "none"))
    }
}

/// The next event of the cursor.
#[derive(Debug)]
pub(in crate::formats) enum Event<'x> {
    /// An element opens; an empty one closes immediately.
    Open(Element<'x>),
    /// The innermost element closes.
    Close,
    /// Text between tags, with references resolved.
    Text(Cow<'x, str>),
    /// The end of the document.
    End,
}

/// How the cursor handles an open element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// An element that the converter handles.
    Element,
    /// `AlternateContent`, and whether one of its branches was already read.
    Alternates(bool),
    Branch,
}

/// The cursor: reads forward only, and ends at the first damage.
pub(in crate::formats) struct Xml<'x> {
    reader: NsReader<&'x [u8]>,
    budget: Rc<Budget>,
    frames: Vec<Frame>,
    ticks: u32,
    /// Whether alternatives that office programs do not show are read, too.
    shows_hidden: bool,
    /// The number of open elements around the outermost alternative that office programs do not show.
    hidden_from: Option<usize>,
    /// Characters of such alternatives that were not taken yet.
    hidden_characters: u64,
}

impl std::fmt::Debug for Xml<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xml")
            .field("depth", &self.frames.len())
            .finish_non_exhaustive()
    }
}

/// Events between two checks of the time limit.
const EVENTS_PER_CHECK: u32 = 1024;

impl<'x> Xml<'x> {
    /// A cursor at the start of a text, which counts into this budget.
    pub(in crate::formats) fn new(text: &'x str, budget: &Rc<Budget>) -> Self {
        let mut reader = NsReader::from_str(text);
        let config = reader.config_mut();
        // Converters then see an end for every start.
        config.expand_empty_elements = true;
        // Some writers leave `&` unescaped in addresses.
        config.allow_dangling_amp = true;
        config.trim_markup_names_in_closing_tags = true;
        Self {
            reader,
            budget: Rc::clone(budget),
            frames: Vec::new(),
            ticks: 0,
            shows_hidden: false,
            hidden_from: None,
            hidden_characters: 0,
        }
    }

    /// Also reads alternatives that office programs do not show, if `show` is true.
    #[must_use]
    pub(in crate::formats) fn with_hidden_content(mut self, show: bool) -> Self {
        self.shows_hidden = show;
        self
    }

    /// The characters of alternatives that office programs do not show, since the last call.
    pub(in crate::formats) fn take_hidden_characters(&mut self) -> u64 {
        std::mem::take(&mut self.hidden_characters)
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// [`Damage::Malformed`] for broken markup, [`Damage::Truncated`] when elements are still open at the end, the
    /// depth and time limits.
    pub(in crate::formats) fn next(&mut self) -> Result<Event<'x>, Failure> {
        loop {
            self.tick()?;
            match self.raw()? {
                Raw::Start(start) => {
                    let ns = Ns::of(&self.reader.resolver().resolve_element(start.name()).0);
                    let element = Element { ns, start };
                    if let Some(element) = self.open(element)? {
                        return Ok(Event::Open(element));
                    }
                }
                Raw::End(_) => {
                    let frame = self.frames.pop();
                    self.leave_hidden();
                    if frame == Some(Frame::Element) {
                        return Ok(Event::Close);
                    }
                }
                Raw::Text(text) => return Ok(Event::Text(self.counted(text.xml10_content()))),
                Raw::CData(text) => return Ok(Event::Text(self.counted(text.xml10_content()))),
                Raw::GeneralRef(name) => return Ok(Event::Text(reference_text(&name).into())),
                Raw::Eof if self.frames.is_empty() => return Ok(Event::End),
                Raw::Eof => return Err(Failure::Corrupt(Damage::Truncated)),
                _ => {}
            }
        }
    }

    /// Skips the content and the end of the last opened element.
    pub(in crate::formats) fn skip(&mut self) -> Result<(), Failure> {
        let mut depth = 0_u32;
        loop {
            self.tick()?;
            match self.raw()? {
                Raw::Start(_) => {
                    depth += 1;
                    // Skipped content is limited as well: the parser keeps a name for every open element.
                    if self.frames.len() as u64 + u64::from(depth)
                        > u64::from(self.budget.limits().max_depth)
                    {
                        return Err(Failure::Stopped(Limit::Depth));
                    }
                }
                Raw::End(_) if depth == 0 => {
                    self.frames.pop();
                    return Ok(());
                }
                Raw::End(_) => depth -= 1,
                Raw::Text(text) if self.hidden_from.is_some() => {
                    self.counted(text.xml10_content());
                }
                Raw::Eof => return Err(Failure::Corrupt(Damage::Truncated)),
                _ => {}
            }
        }
    }

    /// Ends the alternative that office programs do not show, if the last closed element was this one.
    fn leave_hidden(&mut self) {
        if self.hidden_from == Some(self.frames.len()) {
            self.hidden_from = None;
        }
    }

    /// Counts a text if office programs do not show it.
    fn counted(&mut self, text: Cow<'x, str>) -> Cow<'x, str> {
        if self.hidden_from.is_some() {
            self.hidden_characters += visible_characters(&text);
        }
        text
    }

    /// The text of the last opened element, including the text of nested elements.
    pub(in crate::formats) fn text(&mut self) -> Result<String, Failure> {
        let depth = self.frames.len();
        let mut out = String::new();
        loop {
            match self.next()? {
                Event::Text(text) => out.push_str(&text),
                Event::Close if self.frames.len() < depth => return Ok(out),
                Event::End => return Err(Failure::Corrupt(Damage::Truncated)),
                Event::Open(_) | Event::Close => {}
            }
        }
    }

    /// An attribute in the namespace of relationships.
    pub(in crate::formats) fn relation(&self, element: &Element<'_>, name: &str) -> Option<String> {
        element
            .start
            .attributes()
            .with_checks(false)
            .flatten()
            .find(|attribute| {
                attribute.key.local_name().as_ref() == name
                    && attribute.key.prefix().is_some()
                    && Ns::of(&self.reader.resolver().resolve_attribute(attribute.key).0) == Ns::Rel
            })
            .map(|attribute| unescape_attribute(&attribute.value))
    }

    /// The number of open elements.
    pub(in crate::formats) fn depth(&self) -> usize {
        self.frames.len()
    }

    fn tick(&mut self) -> Result<(), Limit> {
        self.ticks += 1;
        if self.ticks >= EVENTS_PER_CHECK {
            self.ticks = 0;
            self.budget.clock()?;
        }
        Ok(())
    }

    fn raw(&mut self) -> Result<Raw<'x>, Failure> {
        self.reader.read_event().map_err(|error| match error {
            // Markup that does not end is a part that was cut off.
            quick_xml::Error::Syntax(_) => Failure::Corrupt(Damage::Truncated),
            _ => Failure::Corrupt(Damage::Malformed),
        })
    }

    /// Records an element, and returns it if the converter should handle it.
    fn open(&mut self, element: Element<'x>) -> Result<Option<Element<'x>>, Failure> {
        if self.frames.len() as u64 >= u64::from(self.budget.limits().max_depth) {
            return Err(Failure::Stopped(Limit::Depth));
        }
        let frame = match (element.ns, element.name()) {
            (Ns::Alternate, "AlternateContent") => Frame::Alternates(false),
            (Ns::Alternate, "Choice") if !self.is_understood(&element) => {
                self.hidden_from.get_or_insert(self.frames.len());
                self.frames.push(Frame::Branch);
                if !self.shows_hidden {
                    self.skip()?;
                    self.leave_hidden();
                }
                return Ok(None);
            }
            (Ns::Alternate, "Choice" | "Fallback") => match self.frames.last_mut() {
                Some(Frame::Alternates(has_read_branch)) if !*has_read_branch => {
                    *has_read_branch = true;
                    Frame::Branch
                }
                _ => {
                    self.frames.push(Frame::Branch);
                    self.skip()?;
                    return Ok(None);
                }
            },
            _ => Frame::Element,
        };
        self.frames.push(frame);
        Ok((frame == Frame::Element).then_some(element))
    }

    /// Whether office programs understand all namespaces that a `Choice` requires.
    fn is_understood(&self, choice: &Element<'_>) -> bool {
        let required = choice.attr("Requires").unwrap_or_default();
        required.split_ascii_whitespace().all(|prefix| {
            let name = format!("{prefix}:x");
            match self.reader.resolver().resolve_attribute(QName(&name)).0 {
                ResolveResult::Bound(Namespace(uri)) => alternate::is_understood(uri),
                ResolveResult::Unbound => false,
                ResolveResult::Unknown(prefix) => Ns::of_prefix(&prefix) != Ns::Other,
            }
        })
    }
}

/// The characters of a part: decoded by its byte-order mark, otherwise as UTF-16 by its zeros, otherwise as UTF-8.
/// Invalid bytes become U+FFFD.
pub(in crate::formats) fn decode_part(bytes: &[u8]) -> Cow<'_, str> {
    // UTF-16 without a mark, which the declaration inside cannot name.
    let label = if bytes.starts_with(b"<\0") {
        "utf-16le"
    } else if bytes.starts_with(b"\0<") {
        "utf-16be"
    } else {
        declared_encoding(bytes).unwrap_or("utf-8")
    };
    encoding::decode_text(bytes, Some(label))
}

/// The encoding that an XML declaration names.
fn declared_encoding(bytes: &[u8]) -> Option<&str> {
    let head = bytes.get(..bytes.len().min(200))?;
    let end = head.windows(2).position(|window| window == b"?>")?;
    let head = std::str::from_utf8(head.get(..end)?).ok()?;
    let value = head.strip_prefix("<?xml")?.split_once("encoding")?.1;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value
        .chars()
        .next()
        .filter(|character| matches!(character, '"' | '\''))?;
    value.get(1..)?.split(quote).next()
}

/// The text of a reference; an unknown one is kept unchanged.
fn reference_text(name: &quick_xml::events::BytesRef<'_>) -> String {
    if let Ok(Some(character)) = name.resolve_char_ref() {
        // A carriage return written as a reference is a line end like any other.
        return if character == '\r' { '\n' } else { character }.to_string();
    }
    match quick_xml::escape::resolve_xml_entity(name) {
        Some(text) => text.to_owned(),
        None => format!("&{};", &**name),
    }
}

/// An attribute's value with its references resolved, where they can be.
fn unescape_attribute(value: &str) -> String {
    let value = quick_xml::escape::unescape(value).unwrap_or(Cow::Borrowed(value));
    // Line ends in attributes are spaces (XML 1.0, 3.3.3).
    if value.contains(['\r', '\n']) {
        value.replace(['\r', '\n'], " ")
    } else {
        value.into_owned()
    }
}
