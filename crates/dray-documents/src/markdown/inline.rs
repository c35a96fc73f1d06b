//! Text within a block: runs with a format, links, images, breaks.

use std::rc::Rc;

use super::{escape, superscript};

/// The format of a run of text. Subscripts are plain characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "five independent switches of a run of text, as every document format has them"
)]
pub struct Style {
    /// Written with `**` around the run.
    pub bold: bool,
    /// Written with `*` around the run.
    pub italic: bool,
    /// Written with `~~` around the run.
    pub strike: bool,
    /// Written with backticks; excludes the other formats.
    pub code: bool,
    /// Written with the superscript characters of Unicode, if all characters of the run have one: `10⁶`, not `106`.
    pub superscript: bool,
}

/// The position of inline text, which determines breaks, formats and escapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InlinePosition {
    /// A paragraph or list item: breaks are line ends.
    Block,
    /// Text after `#`: one line, no formats.
    Heading,
    /// A cell of a pipe table: breaks are `<br>`, `\` and `|` are marked.
    Cell,
}

#[derive(Clone, Debug, PartialEq)]
enum InlinePart {
    Text {
        text: String,
        style: Style,
        link: Option<Rc<str>>,
    },
    Image {
        alt: String,
        name: String,
        link: Option<Rc<str>>,
    },
    Raw(String),
    Break,
}

/// Inline text: the content of a paragraph, heading, item or cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inline {
    parts: Vec<InlinePart>,
    /// Shared by all parts of the link, so that a long target of many runs is stored once.
    link: Option<Rc<str>>,
}

impl Inline {
    /// Inline text without any part, which renders as empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plain text; line feeds become breaks.
    pub fn plain(text: &str) -> Self {
        let mut inline = Self::new();
        inline.text(text, Style::default());
        inline
    }

    /// Appends text; line feeds become breaks. Neighbours of one style and one link are one run.
    pub fn text(&mut self, text: &str, mut style: Style) {
        let raised = std::mem::take(&mut style.superscript)
            .then(|| superscript(text))
            .flatten();
        let text = escape::line_feeds(raised.as_deref().unwrap_or(text));
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.line_break();
            }
            if line.is_empty() {
                continue;
            }
            // Word processors split words into runs of equal format; `**a****b**` would not be read as emphasis.
            if let Some(InlinePart::Text {
                text: last,
                style: last_style,
                link,
            }) = self.parts.last_mut()
                && *last_style == style
                && *link == self.link
            {
                last.push_str(line);
            } else {
                self.parts.push(InlinePart::Text {
                    text: line.to_owned(),
                    style,
                    link: self.link.clone(),
                });
            }
        }
    }

    /// The following text links to the target, until [`Inline::end_link`]. For a target that is not allowed, only the
    /// text is kept. Links are not nested.
    pub fn begin_link(&mut self, url: &str) {
        if self.link.is_none() {
            self.link = escape::link_target(url).map(Rc::from);
        }
    }

    /// Ends the link. A link without text shows its URL.
    pub fn end_link(&mut self) {
        let Some(target) = self.link.take() else {
            return;
        };
        let last = self.parts.last().and_then(InlinePart::link);
        if last.is_none_or(|last| *last != *target) {
            self.parts.push(InlinePart::Text {
                text: target.trim_matches(['<', '>']).to_owned(),
                style: Style::default(),
                link: Some(target),
            });
        }
    }

    /// An image by its alternative text and name, never its data; no output if both are empty.
    pub fn image(&mut self, alt: &str, name: &str) {
        let name = if name.trim_start().to_ascii_lowercase().starts_with("data:") {
            ""
        } else {
            name.trim()
        };
        let alt = alt.trim();
        if alt.is_empty() && name.is_empty() {
            return;
        }
        self.parts.push(InlinePart::Image {
            alt: alt.to_owned(),
            name: name.to_owned(),
            link: self.link.clone(),
        });
    }

    /// Raw Markdown, such as `[^1]`. Only for text that the converter itself created.
    pub fn raw(&mut self, markdown: &str) {
        self.parts.push(InlinePart::Raw(markdown.to_owned()));
    }

    /// A line break, written as the [`InlinePosition`] requires.
    pub fn line_break(&mut self) {
        self.parts.push(InlinePart::Break);
    }

    /// Appends the parts of another inline text; the links of both are kept.
    pub fn append(&mut self, other: Self) {
        self.parts.extend(other.parts);
    }

    /// Whether the text has no visible content.
    pub fn is_blank(&self) -> bool {
        self.parts.iter().all(|part| match part {
            InlinePart::Text { text, .. } | InlinePart::Raw(text) => text.trim().is_empty(),
            InlinePart::Image { .. } => false,
            InlinePart::Break => true,
        })
    }

    /// Whether the text is empty or ends with white space, for converters that collapse white space.
    pub fn ends_blank(&self) -> bool {
        match self.parts.last() {
            None | Some(InlinePart::Break) => true,
            Some(InlinePart::Text { text, .. } | InlinePart::Raw(text)) => {
                text.ends_with(char::is_whitespace)
            }
            Some(InlinePart::Image { .. }) => false,
        }
    }

    /// The text without any markup.
    pub fn to_plain(&self) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                InlinePart::Text { text, .. } | InlinePart::Raw(text) => out.push_str(text),
                InlinePart::Image { alt, .. } => out.push_str(alt),
                InlinePart::Break => out.push('\n'),
            }
        }
        out
    }

    /// The Markdown for a position.
    pub fn render(&self, place: InlinePosition) -> String {
        let mut out = String::new();
        let mut parts = self.parts.as_slice();
        while let Some(first) = parts.first() {
            let link = first.link();
            let run_length = match link {
                Some(_) => parts.iter().take_while(|part| part.link() == link).count(),
                None => 1,
            };
            let (run_parts, rest) = parts.split_at(run_length);
            parts = rest;
            if let Some(target) = link {
                let mut label = String::new();
                for part in run_parts {
                    part.render(place, &mut label);
                }
                // White space is outside of the brackets: a link is not read over a line end.
                let (before, label, after) = split_white_space(&label);
                out.push_str(before);
                out.push('[');
                out.push_str(label);
                out.push_str("](");
                out.push_str(&escape_cell(target, place));
                out.push(')');
                out.push_str(after);
            } else if let Some(part) = run_parts.first() {
                part.render(place, &mut out);
            }
        }
        tidy_lines(&out)
    }
}

impl InlinePart {
    fn link(&self) -> Option<&str> {
        match self {
            Self::Text { link, .. } | Self::Image { link, .. } => link.as_deref(),
            Self::Raw(_) | Self::Break => None,
        }
    }

    fn render(&self, place: InlinePosition, out: &mut String) {
        match self {
            Self::Text { text, style, .. } => render_text(text, *style, place, out),
            Self::Image { alt, name, .. } => {
                let mut label = String::new();
                escape::escape_inline(alt, None, place == InlinePosition::Cell, &mut label);
                out.push_str("![");
                out.push_str(&label);
                out.push(']');
                if let Some(target) = escape::link_target(name) {
                    out.push('(');
                    out.push_str(&escape_cell(&target, place));
                    out.push(')');
                }
            }
            Self::Raw(text) => out.push_str(text),
            Self::Break => out.push_str(match place {
                InlinePosition::Block => "\n",
                InlinePosition::Heading => " ",
                InlinePosition::Cell => "<br>",
            }),
        }
    }
}

/// One run: markers never around white space, none in headings.
fn render_text(text: &str, style: Style, place: InlinePosition, out: &mut String) {
    let (before, middle, after) = split_white_space(text);
    out.push_str(before);
    if !middle.is_empty() {
        if style.code {
            // Inside code a backslash is literal, except before a pipe in a table (GFM 4.10).
            out.push_str(&escape_cell(&escape::code_span(middle), place));
        } else {
            let marker = if place == InlinePosition::Heading {
                String::new()
            } else {
                style_marker(style)
            };
            out.push_str(&marker);
            let mut escaped = String::new();
            let previous = if marker.is_empty() {
                out.chars().last()
            } else {
                None
            };
            escape::escape_inline(
                middle,
                previous,
                place == InlinePosition::Cell,
                &mut escaped,
            );
            out.push_str(&escaped);
            // Every marker is one repeated character, so the reversed text closes them from the inside out.
            out.extend(marker.chars().rev());
        }
    }
    out.push_str(after);
}

/// The opening marker of a style.
fn style_marker(style: Style) -> String {
    let mut marker = String::new();
    if style.strike {
        marker.push_str("~~");
    }
    if style.bold {
        marker.push_str("**");
    }
    if style.italic {
        marker.push('*');
    }
    marker
}

/// The white space before, the text between, and the white space after.
fn split_white_space(text: &str) -> (&str, &str, &str) {
    let trimmed = text.trim_start();
    let (before, rest) = text.split_at(text.len() - trimmed.len());
    let middle = rest.trim_end();
    let (middle, after) = rest.split_at(middle.len());
    (before, middle, after)
}

/// Escapes pipes in a cell, where they would end the cell.
fn escape_cell(text: &str, place: InlinePosition) -> std::borrow::Cow<'_, str> {
    if place == InlinePosition::Cell && text.contains('|') {
        text.replace('|', "\\|").into()
    } else {
        text.into()
    }
}

/// Lines without white space around them, and at most one blank line in a row.
fn tidy_lines(text: &str) -> String {
    if !text.contains('\n') {
        return text.trim().to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut blank = false;
    for (index, line) in text.trim().lines().map(str::trim).enumerate() {
        if line.is_empty() && blank {
            continue;
        }
        blank = line.is_empty();
        if index > 0 {
            out.push('\n');
        }
        out.push_str(line);
    }
    out
}
