//! Detects the type of a text by its structure: markup, JSON, mail; otherwise by its name (read-attachment 5.3).

use super::Kind;
use super::mime;

/// Elements that an HTML page or a fragment of one begins with.
const HTML_ELEMENTS: &[&str] = &[
    "html",
    "head",
    "body",
    "title",
    "meta",
    "link",
    "base",
    "style",
    "script",
    "noscript",
    "template",
    "div",
    "span",
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "table",
    "thead",
    "tbody",
    "tr",
    "td",
    "th",
    "caption",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "a",
    "img",
    "br",
    "hr",
    "pre",
    "code",
    "blockquote",
    "section",
    "article",
    "nav",
    "main",
    "aside",
    "header",
    "footer",
    "form",
    "input",
    "button",
    "select",
    "label",
    "textarea",
    "fieldset",
    "iframe",
    "video",
    "audio",
    "picture",
    "figure",
    "figcaption",
    "details",
    "summary",
    "center",
    "font",
    "b",
    "i",
    "u",
    "em",
    "strong",
    "small",
    "sub",
    "sup",
    "del",
    "ins",
    "s",
    "abbr",
    "address",
    "cite",
    "kbd",
    "mark",
    "q",
    "samp",
    "var",
    "time",
    "canvas",
    "object",
    "embed",
    "map",
    "area",
    "dialog",
    "menu",
    "frameset",
    "marquee",
];

/// Extensions of files that contain HTML among other code, or may begin with it.
const NOT_A_PAGE: &[&str] = &[
    "md", "markdown", "mdown", "mkd", "vue", "svelte", "astro", "jsx", "tsx", "js", "ts", "php",
    "erb", "ejs", "hbs", "j2", "jinja", "jinja2", "liquid", "mustache", "twig", "tmpl", "xml",
    "xsl", "xslt", "xsd", "csv", "tsv",
];

/// Header fields one of which every mail has.
const MAIL_HEADER_FIELDS: &[&str] = &[
    "from",
    "to",
    "subject",
    "date",
    "received",
    "return-path",
    "message-id",
    "mime-version",
    "delivered-to",
    "sender",
    "reply-to",
    "cc",
    "content-type",
    "content-transfer-encoding",
];

/// Kind and media type of a text. `cut` is whether the file continues after the sample.
pub(super) fn classify_text(sample: &str, extension: &str, cut: bool) -> (Kind, &'static str) {
    let text = sample
        .trim_start_matches(|character: char| character.is_whitespace() || character == '\u{FEFF}');
    if let Some(found) = markup_type(text, extension, cut) {
        return (Kind::Text, found);
    }
    if extension == "ipynb" && is_notebook(text) {
        return (Kind::Text, mime::NOTEBOOK);
    }
    // One line of JSON Lines is JSON by itself, and Markdown may begin with a bracket: the name decides.
    if !matches!(extension, "jsonl" | "ndjson" | "md" | "markdown") && is_json(text, cut) {
        return (Kind::Text, mime::JSON);
    }
    if matches!(extension, "eml" | "mht" | "mhtml") && is_mail(sample) {
        return (Kind::Document, mime::EML);
    }
    (Kind::Text, mime::of_text_extension(extension))
}

fn is_notebook(text: &str) -> bool {
    text.starts_with('{') && (text.contains("\"nbformat\"") || text.contains("\"cells\""))
}

fn is_json(text: &str, cut: bool) -> bool {
    if !text.starts_with(['{', '[']) {
        return false;
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => true,
        // A sample that ends early does not disprove JSON.
        Err(error) => cut && error.is_eof(),
    }
}

/// A header field on the first line, and at least one well-known field before the first blank line. Later lines may be
/// damaged.
fn is_mail(sample: &str) -> bool {
    let text = sample.trim_start_matches('\u{FEFF}');
    let mut lines = text.lines().take_while(|line| !line.trim().is_empty());
    let field = |line: &str| {
        let (name, _) = line.split_once(':')?;
        let name = name.trim_end();
        let plausible =
            !name.is_empty() && name.chars().all(|character| character.is_ascii_graphic());
        plausible.then(|| name.to_ascii_lowercase())
    };
    let known =
        |line: &str| field(line).is_some_and(|name| MAIL_HEADER_FIELDS.contains(&name.as_str()));
    match lines.next() {
        // The separator line of a mailbox file.
        Some(first) if first.starts_with("From ") => {}
        Some(first) if known(first) => return true,
        Some(first) if field(first).is_some() => {}
        _ => return false,
    }
    lines.take(200).any(known)
}

/// The first tag, after content that may precede it.
struct FirstTag<'a> {
    declaration: bool,
    html_doctype: bool,
    /// The text from the name of the first element on; empty without an element.
    tag: &'a str,
}

fn markup_type(text: &str, extension: &str, cut: bool) -> Option<&'static str> {
    let start = skip_prolog(text)?;
    let end = start
        .tag
        .find(|character: char| character.is_whitespace() || matches!(character, '>' | '/'));
    let name = start
        .tag
        .get(..end.unwrap_or(start.tag.len()))
        .unwrap_or_default();
    let local = name.rsplit(':').next().unwrap_or(name).to_ascii_lowercase();
    let head = start
        .tag
        .get(..start.tag.find('>').unwrap_or(start.tag.len()))
        .unwrap_or_default();
    if local == "svg" {
        return Some(mime::SVG);
    }
    if local == "html" || start.html_doctype {
        let xhtml = head.contains("http://www.w3.org/1999/xhtml");
        return Some(if xhtml { mime::XHTML } else { mime::HTML });
    }
    if local == "document" && head.contains("urn:oasis:names:tc:opendocument:xmlns:office:1.0") {
        return Some(flat_document(head));
    }
    let has_complete_name = end.is_some();
    let may_be_page = !start.declaration && !NOT_A_PAGE.contains(&extension);
    if has_complete_name
        && may_be_page
        && HTML_ELEMENTS.contains(&name.to_ascii_lowercase().as_str())
    {
        return Some(mime::HTML);
    }
    if local == "rss" || (local == "rdf" && head.contains("http://purl.org/rss/1.0/")) {
        return Some(mime::RSS);
    }
    if local == "feed" && head.contains("http://www.w3.org/2005/Atom") {
        return Some(mime::ATOM);
    }
    let is_complete_element = has_complete_name
        && is_name(name)
        && !NOT_A_PAGE.contains(&extension)
        && looks_closed(text, name, head, cut);
    (start.declaration || is_complete_element || (extension == "xml" && is_name(name)))
        .then_some(mime::XML)
}

/// An open document in one XML file, by the type that it declares.
fn flat_document(head: &str) -> &'static str {
    [mime::FODT, mime::FODS, mime::FODP]
        .into_iter()
        .find(|flat| {
            let plain = flat.trim_end_matches("-flat-xml");
            ['"', '\'']
                .iter()
                .any(|quote| head.contains(&format!("{quote}{plain}{quote}")))
        })
        .unwrap_or(mime::XML)
}

/// Skips an XML declaration, other instructions, comments and a doctype. `None` if no markup follows.
fn skip_prolog(text: &str) -> Option<FirstTag<'_>> {
    let mut start = FirstTag {
        declaration: text.starts_with("<?xml")
            && text.as_bytes().get(5).is_some_and(u8::is_ascii_whitespace),
        html_doctype: false,
        tag: "",
    };
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let skipped = if let Some(comment) = rest.strip_prefix("<!--") {
            comment.find("-->").and_then(|end| comment.get(end + 3..))
        } else if rest.starts_with("<?") && (start.declaration || rest.starts_with("<?xml-")) {
            // `<?php` is code, not markup; `<?xml-stylesheet` may appear without a declaration.
            rest.find("?>").and_then(|end| rest.get(end + 2..))
        } else if rest
            .get(..9)
            .is_some_and(|nine| nine.eq_ignore_ascii_case("<!doctype"))
        {
            let name = rest.get(9..).unwrap_or_default().trim_start();
            start.html_doctype |= name
                .get(..4)
                .is_some_and(|four| four.eq_ignore_ascii_case("html"))
                && !name
                    .as_bytes()
                    .get(4)
                    .is_some_and(u8::is_ascii_alphanumeric);
            after_doctype(rest)
        } else if let Some(tag) = rest.strip_prefix('<') {
            let is_element =
                tag.starts_with(|character: char| character.is_alphabetic() || character == '_');
            start.tag = if is_element { tag } else { "" };
            let is_markup = is_element || start.declaration || start.html_doctype;
            return is_markup.then_some(start);
        } else {
            return (start.declaration || start.html_doctype).then_some(start);
        };
        match skipped {
            Some(next) => rest = next,
            // The construct continues after the sample.
            None => return (start.declaration || start.html_doctype).then_some(start),
        }
    }
}

/// The text after a doctype, whose internal subset is in brackets.
fn after_doctype(text: &str) -> Option<&str> {
    let close = text.find('>')?;
    match text.find('[').filter(|open| *open < close) {
        Some(open) => {
            let subset = text.get(open..)?;
            let end = subset.find(']')?;
            let rest = subset.get(end..)?;
            rest.find('>').and_then(|at| rest.get(at + 1..))
        }
        None => text.get(close + 1..),
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|character| character.is_alphabetic() || character == '_')
        && chars.all(|character| {
            character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | ':')
        })
}

/// Whether the text ends with the end of its first element, as far as it can be seen.
fn looks_closed(text: &str, name: &str, head: &str, cut: bool) -> bool {
    let end = text.trim_end();
    let has_end_tag = end
        .strip_suffix('>')
        .and_then(|end| end.trim_end().strip_suffix(name))
        .is_some_and(|end| end.ends_with("</"));
    let has_attributes_or_ends =
        head.len() == name.len() || head.contains('=') || head.ends_with('/');
    let is_single_element = head.ends_with('/') && end.len() <= head.len() + 2;
    // In a cut sample the end is not visible. A chat log has names in angle brackets, but no end tags.
    has_attributes_or_ends && ((cut && text.contains("</")) || has_end_tag || is_single_element)
}
