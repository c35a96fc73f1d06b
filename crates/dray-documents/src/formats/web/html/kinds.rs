//! The kinds of elements, as far as they affect text.

/// The effect of an element on its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A block on separate lines: `div`, `section` and the like.
    Block,
    /// `p`, which ends where any other block begins.
    Paragraph,
    /// `h1` to `h6`, by its level.
    Heading(u8),
    /// `ul`, `ol` and the old names of lists.
    List,
    /// `li`, whose end tag may be missing.
    Item,
    /// `blockquote`, written with `>` before each line.
    Quote,
    /// `dl`, a list of definitions.
    Terms,
    /// `dt`, the term of a definition.
    Term,
    /// `dd`, the description of a term.
    Definition,
    /// `pre` and the old names of it.
    Pre,
    /// `table`, unless it only arranges blocks.
    Table,
    /// `thead`, `tbody` and `tfoot`, whose tags may be missing.
    Section,
    /// `tr`, counted as an element of the budget.
    Row,
    /// `td` and `th`, which are written in the same way.
    Cell,
    /// `caption`, written as a paragraph before its table.
    Caption,
    /// `b` and `strong`, written as `**`.
    Bold,
    /// `i`, `em` and the like, written as `*`.
    Italic,
    /// `s`, `del` and `strike`, written as `~~`.
    Strike,
    /// `code` and the like.
    Code,
    /// `sup`, whose digits are raised.
    Superscript,
    /// `a`, with or without a target.
    Anchor,
    /// `q`, written in quotation marks.
    Marks,
    /// `br`, even as an end tag.
    Break,
    /// `hr`, written as a thematic break.
    Rule,
    /// `img`, shown by its alternative text and name.
    Image,
    /// `input`, shown by its state.
    Input,
    /// `title`, shown if the page has no other text.
    Title,
    /// `head`, which ends where text or a block begins.
    Head,
    /// `svg`, `math`: only their text stays.
    Foreign,
    /// `object`, which is part of a line and may contain blocks.
    Object,
    /// Removed with its content: `script`, `style` and the like.
    Dropped,
    /// An element without content and without output: `meta`, `link`, `wbr`.
    Void,
    /// `html`, `body`: always present.
    Root,
    /// Every other element: only its text counts.
    Inline,
}

impl Kind {
    /// The kind of an element with this lower-case name.
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"p" => Self::Paragraph,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                Self::Heading(name.get(1).map_or(1, |digit| digit.wrapping_sub(b'0')))
            }
            b"ul" | b"ol" | b"menu" | b"dir" => Self::List,
            b"li" => Self::Item,
            b"blockquote" => Self::Quote,
            b"dl" => Self::Terms,
            b"dt" => Self::Term,
            b"dd" => Self::Definition,
            b"pre" | b"listing" | b"xmp" | b"plaintext" => Self::Pre,
            b"table" => Self::Table,
            b"thead" | b"tbody" | b"tfoot" => Self::Section,
            b"tr" => Self::Row,
            b"td" | b"th" => Self::Cell,
            b"caption" => Self::Caption,
            b"b" | b"strong" => Self::Bold,
            b"i" | b"em" | b"cite" | b"dfn" | b"var" => Self::Italic,
            b"s" | b"del" | b"strike" => Self::Strike,
            b"code" | b"kbd" | b"samp" | b"tt" => Self::Code,
            b"sup" => Self::Superscript,
            b"a" => Self::Anchor,
            b"q" => Self::Marks,
            b"br" => Self::Break,
            b"hr" => Self::Rule,
            b"img" | b"image" => Self::Image,
            b"input" => Self::Input,
            b"title" => Self::Title,
            b"head" => Self::Head,
            b"svg" | b"math" => Self::Foreign,
            b"object" => Self::Object,
            b"script" | b"style" | b"template" | b"noscript" | b"iframe" | b"noembed" => {
                Self::Dropped
            }
            b"meta" | b"link" | b"base" | b"basefont" | b"bgsound" | b"col" | b"wbr" | b"area"
            | b"embed" | b"param" | b"source" | b"track" | b"frame" | b"keygen" => Self::Void,
            b"html" | b"body" => Self::Root,
            b"address" | b"article" | b"aside" | b"center" | b"colgroup" | b"datalist"
            | b"details" | b"dialog" | b"div" | b"fieldset" | b"figcaption" | b"figure"
            | b"footer" | b"form" | b"frameset" | b"header" | b"hgroup" | b"legend" | b"main"
            | b"nav" | b"noframes" | b"optgroup" | b"option" | b"search" | b"section"
            | b"select" | b"summary" | b"textarea" => Self::Block,
            _ => Self::Inline,
        }
    }

    /// Whether the element has no content and no end tag.
    pub(super) fn is_void(self) -> bool {
        matches!(
            self,
            Self::Break | Self::Rule | Self::Image | Self::Input | Self::Void
        )
    }

    /// Whether the element only changes the format of its text, so that it may overlap with others.
    pub(super) fn is_format(self) -> bool {
        matches!(
            self,
            Self::Bold
                | Self::Italic
                | Self::Strike
                | Self::Code
                | Self::Superscript
                | Self::Anchor
                | Self::Marks
        )
    }

    /// Whether the element is part of a line and does not begin a new one.
    pub(super) fn is_inline(self) -> bool {
        self.is_format()
            || matches!(
                self,
                Self::Inline
                    | Self::Foreign
                    | Self::Object
                    | Self::Image
                    | Self::Input
                    | Self::Break
                    | Self::Void
            )
    }

    /// Whether the element is valid only in a table.
    pub(super) fn is_of_table(self) -> bool {
        matches!(self, Self::Section | Self::Row | Self::Cell | Self::Caption)
    }

    /// Whether the element is valid in `head`.
    pub(super) fn is_of_head(self) -> bool {
        matches!(
            self,
            Self::Dropped | Self::Void | Self::Title | Self::Root | Self::Head
        )
    }

    /// Elements inside it are not closed by end tags of elements outside it.
    pub(super) fn is_scope(self) -> bool {
        matches!(self, Self::Table | Self::Cell | Self::Caption)
    }
}
