//! Detects the kind of markup by the root of a text, which determines whether a browser would run scripts in it.

/// The kind of markup of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkupRoot {
    /// SVG, with or without a namespace prefix.
    Svg,
    /// HTML or XHTML, as a browser would render it.
    Html,
    /// XML in which browsers run no scripts: data, feeds, other vocabularies.
    Xml,
}

/// Elements by which browsers detect a text as HTML (WHATWG MIME sniffing 7.1).
const HTML_ELEMENTS: [&str; 16] = [
    "html", "head", "script", "iframe", "h1", "div", "font", "table", "a", "style", "title", "b",
    "body", "br", "p", "meta",
];

/// The root of a text without byte order mark.
pub(super) fn markup_root(text: &str) -> Option<MarkupRoot> {
    let mut rest = text.trim_start();
    let is_xml = begins_with_word(rest, "<?xml");
    loop {
        rest = if rest.starts_with("<?") {
            text_after(rest, "?>")?
        } else if rest.starts_with("<!--") {
            // Browsers detect a leading comment as HTML, but an SVG image or XML data may begin with a comment too.
            text_after(rest, "-->")
                .or(is_xml.then_some(""))
                .unwrap_or_default()
        } else if begins_with_word(rest, "<!doctype") {
            match parse_doctype(rest) {
                DoctypeKind::Html => return Some(MarkupRoot::Html),
                DoctypeKind::Svg => return Some(MarkupRoot::Svg),
                DoctypeKind::Other(rest) => rest,
            }
        } else {
            break;
        }
        .trim_start();
    }
    // In XML any element may have an HTML name; only the root `html` makes it a page.
    let root = first_element_root(rest)
        .filter(|root| !is_xml || *root == MarkupRoot::Svg || is_page(rest));
    root.or(is_xml.then_some(MarkupRoot::Xml))
}

/// The root that a document type declares.
enum DoctypeKind<'text> {
    Html,
    Svg,
    /// Another document type, and the text after it.
    Other(&'text str),
}

fn parse_doctype(text: &str) -> DoctypeKind<'_> {
    let name = text
        .get("<!doctype".len()..)
        .unwrap_or_default()
        .trim_start();
    if begins_with_word(name, "html") {
        return DoctypeKind::Html;
    }
    if begins_with_word(name, "svg") {
        return DoctypeKind::Svg;
    }
    // The internal subset may contain `>`.
    let end = match (text.find('['), text.find('>')) {
        (Some(open), Some(close)) if open < close => {
            text_after(text, "]").and_then(|rest| text_after(rest, ">"))
        }
        _ => text_after(text, ">"),
    };
    DoctypeKind::Other(end.unwrap_or_default())
}

/// The markup root by the name of the first element.
fn first_element_root(text: &str) -> Option<MarkupRoot> {
    let inner = text.strip_prefix('<')?;
    let name = inner
        .split(|character: char| character.is_whitespace() || matches!(character, '>' | '/'))
        .next()?;
    let closed = name.len() < inner.len();
    let local = name.rsplit(':').next().unwrap_or(name);
    if local.eq_ignore_ascii_case("svg") {
        return Some(MarkupRoot::Svg);
    }
    let is_html = closed
        && HTML_ELEMENTS
            .iter()
            .any(|known| local.eq_ignore_ascii_case(known));
    is_html.then_some(MarkupRoot::Html)
}

/// Whether the first element is `html`, with or without prefix.
fn is_page(text: &str) -> bool {
    let name = text
        .get(1..)
        .unwrap_or_default()
        .split(|character: char| !character.is_alphanumeric() && character != ':')
        .next();
    name.is_some_and(|name| {
        name.rsplit(':')
            .next()
            .is_some_and(|local| local.eq_ignore_ascii_case("html"))
    })
}

/// The text after the first `end`; `None` without one.
fn text_after<'text>(text: &'text str, end: &str) -> Option<&'text str> {
    text.split_once(end).map(|(_, rest)| rest)
}

/// Whether `text` begins with `word` in any case.
fn begins_with_word(text: &str, word: &str) -> bool {
    text.get(..word.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(word))
}
