//! Escapes text for pages that are written without a template engine.

/// Escapes the five characters of HTML that end text or an attribute's value. For text between tags and for values in
/// quotes; not for scripts, styles and names of attributes.
pub fn escape_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_open_a_tag_or_end_a_value() {
        assert_eq!(
            escape_html("<a href=\"x\" title='y'>&amp;é"),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;amp;é"
        );
    }
}
