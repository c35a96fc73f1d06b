//! XML and HTML, indented for people. The output has the same elements and texts in the same order; only white space
//! changes.

const INDENT_STEP: &str = "    ";

/// Deepest indentation. Elements that are nested deeper are shown with this indentation.
const MAX_DEPTH: usize = 40;

/// Elements of HTML without an end tag (HTML, section 13.1.2).
const VOID_ELEMENTS: [&str; 13] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr",
];

/// Elements of HTML whose text stays as it is.
const VERBATIM_ELEMENTS: [&str; 4] = ["script", "style", "pre", "textarea"];

/// A chunk of markup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkupToken<'a> {
    Start(&'a str),
    End(&'a str),
    /// An element without content, a comment, an instruction, a declaration.
    Single(&'a str),
    Text(&'a str),
}

/// The text with one element or text per line, indented by four spaces; `None` if its tags do not match.
pub(super) fn pretty_markup(text: &str, is_html: bool) -> Option<String> {
    let tokens = markup_tokens(text, is_html)?;
    let mut lines = String::new();
    let mut open: Vec<&str> = Vec::new();
    let mut next = 0;
    while let Some(token) = tokens.get(next) {
        next += 1;
        match *token {
            MarkupToken::Text(text) | MarkupToken::Single(text) => {
                push_line(&mut lines, open.len(), &[text]);
            }
            MarkupToken::End(tag) => {
                let expected = open.pop();
                // HTML may leave end tags out, XML may not.
                if !is_html && expected != Some(tag_name(tag)) {
                    return None;
                }
                push_line(&mut lines, open.len(), &[tag]);
            }
            MarkupToken::Start(tag) => match tokens.get(next..).unwrap_or_default() {
                // An element that is empty or has only text stays on one line.
                [MarkupToken::Text(text), MarkupToken::End(end), ..]
                    if tag_name(tag) == tag_name(end) =>
                {
                    push_line(&mut lines, open.len(), &[tag, text, end]);
                    next += 2;
                }
                [MarkupToken::End(end), ..] if tag_name(tag) == tag_name(end) => {
                    push_line(&mut lines, open.len(), &[tag, end]);
                    next += 1;
                }
                _ => {
                    push_line(&mut lines, open.len(), &[tag]);
                    open.push(tag_name(tag));
                }
            },
        }
    }
    (open.is_empty() || is_html).then_some(lines)
}

fn push_line(lines: &mut String, depth: usize, parts: &[&str]) {
    for _ in 0..depth.min(MAX_DEPTH) {
        lines.push_str(INDENT_STEP);
    }
    for part in parts {
        lines.push_str(part);
    }
    lines.push('\n');
}

fn markup_tokens(text: &str, is_html: bool) -> Option<Vec<MarkupToken<'_>>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    // The text is lower-cased once, because the search for end tags ignores case and runs for every such element.
    let lower_text = if is_html {
        text.to_ascii_lowercase()
    } else {
        String::new()
    };
    while !rest.is_empty() {
        let Some(start) = rest.find('<') else {
            push_text(&mut tokens, rest);
            break;
        };
        let (before, from_tag) = rest.split_at(start);
        push_text(&mut tokens, before);
        let length = tag_length(from_tag)?;
        let (tag, after) = from_tag.split_at(length);
        rest = after;
        let lower = tag_name(tag).to_ascii_lowercase();
        if tag.starts_with("</") {
            tokens.push(MarkupToken::End(tag));
        } else if tag.starts_with("<!")
            || tag.starts_with("<?")
            || tag.ends_with("/>")
            || is_html && VOID_ELEMENTS.contains(&lower.as_str())
        {
            tokens.push(MarkupToken::Single(tag));
        } else {
            tokens.push(MarkupToken::Start(tag));
            // In these elements `<` is text, up to their own end tag.
            if is_html && VERBATIM_ELEMENTS.contains(&lower.as_str()) {
                let lower_rest = lower_text.get(text.len() - rest.len()..)?;
                let end = lower_rest.find(&format!("</{lower}"))?;
                let (content, after) = rest.split_at(end);
                if !content.is_empty() {
                    tokens.push(MarkupToken::Text(content));
                }
                rest = after;
            }
        }
    }
    Some(tokens)
}

fn push_text<'a>(tokens: &mut Vec<MarkupToken<'a>>, text: &'a str) {
    let text = text.trim();
    if !text.is_empty() {
        tokens.push(MarkupToken::Text(text));
    }
}

/// Length of the markup at the start of the text, with its end. Quoted values may contain `>`.
fn tag_length(text: &str) -> Option<usize> {
    // A single `>` does not end these.
    for (start, end) in [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")] {
        if text.starts_with(start) {
            return Some(text.find(end)? + end.len());
        }
    }
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '>') => return Some(at + 1),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

/// Name of the element of a tag.
fn tag_name(tag: &str) -> &str {
    let inner = tag.trim_start_matches(['<', '/']);
    let end = inner
        .find(|letter: char| letter.is_whitespace() || matches!(letter, '>' | '/'))
        .unwrap_or(inner.len());
    inner.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_is_indented_and_keeps_its_texts() {
        let text = "<?xml version=\"1.0\"?><a x='1>2'><b>text</b><c/><!-- <no> --><d><![CDATA[<x>]]></d><e></e></a>";
        let expected = "<?xml version=\"1.0\"?>\n<a x='1>2'>\n    <b>text</b>\n    <c/>\n    <!-- <no> -->\n    <d>\n        \
                        <![CDATA[<x>]]>\n    </d>\n    <e></e>\n</a>\n";
        assert_eq!(pretty_markup(text, false).as_deref(), Some(expected));
        assert_eq!(pretty_markup(expected, false).as_deref(), Some(expected));
    }

    #[test]
    fn html_without_end_tags_is_indented_and_scripts_stay_as_they_are() {
        let text = "<!DOCTYPE html><ul><li>one<li>two<br></ul><script>if (a < b) { c(); }</script>";
        let indented = pretty_markup(text, true).unwrap();
        assert!(
            indented.contains("<script>if (a < b) { c(); }</script>\n"),
            "{indented}"
        );
        assert!(
            indented.starts_with("<!DOCTYPE html>\n<ul>\n    <li>\n"),
            "{indented}"
        );
    }

    #[test]
    fn a_response_of_xml_is_indented_in_its_fence() {
        let body =
            crate::stage::body::by_type("<a><b>x</b></a>", "application/atom+xml; charset=utf-8");
        assert_eq!(body, "```xml\n<a>\n    <b>x</b>\n</a>\n```\n");
        let broken = crate::stage::body::by_type("<a><b>x</a>", "text/xml");
        assert_eq!(broken, "```xml\n<a><b>x</a>\n```\n");
    }

    #[test]
    fn xml_whose_tags_do_not_fit_stays_as_it_is() {
        for text in ["<a>", "<a></b>", "</a>", "<a", "<a x='>"] {
            assert_eq!(pretty_markup(text, false), None, "{text}");
        }
    }

    #[test]
    fn deep_nesting_does_not_grow_the_text_without_bound() {
        let text = "<a>".repeat(10_000) + &"</a>".repeat(10_000);
        let indented = pretty_markup(&text, false).unwrap();
        assert!(indented.len() < 20_000 * (MAX_DEPTH * INDENT_STEP.len() + 8));
    }
}
