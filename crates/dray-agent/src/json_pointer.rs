//! Segments of JSON pointers (RFC 6901).

/// The segment of a JSON pointer for the member `name` of an object.
pub fn escape_segment(name: &str) -> String {
    // `~` is replaced first (RFC 6901, section 3); otherwise the escape of `/` would be escaped again.
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_special_characters_are_escaped() {
        assert_eq!(escape_segment("b/c"), "b~1c");
        assert_eq!(escape_segment("~1"), "~01");
        assert_eq!(escape_segment("plain"), "plain");
    }
}
