//! Plain texts of mails that are only a note about the HTML, such as "This message needs a program that shows HTML".

use super::message::Body;

/// Most words of a note.
const MAX_NOTE_WORDS: usize = 50;
/// How many more words the HTML has at least. Footers and buttons make a part of this difference in ordinary mails.
const MIN_EXTRA_WORDS: usize = 50;
/// Elements whose text is not shown.
const HIDDEN_ELEMENTS: [&str; 4] = ["style", "script", "title", "template"];

/// Whether the plain texts among `plain` are short and the HTML among `alternative` says much more.
pub(super) fn is_note(plain: &[Body], alternative: &[Body]) -> bool {
    let words = |bodies: &[Body], is_html: bool| {
        let counts = bodies.iter().map(|body| match body {
            Body::Plain(text) if !is_html => text.split_whitespace().count(),
            Body::Html(source) if is_html => shown_words(source),
            _ => 0,
        });
        counts.sum::<usize>()
    };
    let noted = words(plain, false);
    noted <= MAX_NOTE_WORDS && words(alternative, true) >= 2 * noted + MIN_EXTRA_WORDS
}

/// About how many words HTML shows. Rules of style are not applied.
fn shown_words(source: &str) -> usize {
    let source = source.to_ascii_lowercase();
    let mut rest = source.as_str();
    let mut count = 0;
    while let Some((text, tag)) = rest.split_once('<') {
        count += text.split_whitespace().count();
        rest = after_tag(tag);
    }
    count + rest.split_whitespace().count()
}

/// What follows a tag, or a comment, or an element that is not shown.
fn after_tag(tag: &str) -> &str {
    let hidden = HIDDEN_ELEMENTS.iter().find(|name| tag.starts_with(**name));
    match hidden {
        Some(name) => after(after(tag, &format!("</{name}")), ">"),
        None if tag.starts_with("!--") => after(tag, "-->"),
        None => after(tag, ">"),
    }
}

/// What follows the first `end`; empty without one.
fn after<'t>(text: &'t str, end: &str) -> &'t str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shown_words_count() {
        for (source, count) in [
            ("", 0),
            ("two words", 2),
            ("<p class='a b'>one</p><BR>two <b>three</b>", 3),
            ("<Style>a { b: c }</STYLE > x<!-- <p> not this --> y", 2),
            ("<script>a b c", 0),
            ("a <", 1),
        ] {
            assert_eq!(shown_words(source), count, "{source}");
        }
    }

    #[test]
    fn a_short_text_beside_a_long_page_is_a_note() {
        let plain = |words: usize| vec![Body::Plain("word ".repeat(words))];
        let page = |words: usize| vec![Body::Html(format!("<p>{}</p>", "word ".repeat(words)))];
        assert!(is_note(&plain(10), &page(70)));
        assert!(!is_note(&plain(10), &page(69)));
        assert!(is_note(&plain(50), &page(150)));
        assert!(!is_note(&plain(51), &page(900)));
        assert!(!is_note(&plain(10), &plain(900)));
    }
}
