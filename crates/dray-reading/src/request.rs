//! The parameters of a call, as a model writes them (read-attachment 2).

use serde_json::Value;

/// Longest focus, in characters.
const MAX_FOCUS_CHARACTERS: usize = 500;

/// The parameters of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The path as the caller wrote it; `None` when it is missing.
    pub file_path: Option<String>,
    /// Summarise the text even if it would fit.
    pub summarize: bool,
    /// Topics that a summary must preserve.
    pub focus: Option<String>,
    /// Which part is wanted; read by [`crate::range::Range::parse`].
    pub range: Option<String>,
    /// A text to search for.
    pub find: Option<String>,
    /// The file of an archive that is to be read, by its path in the listing.
    pub member: Option<String>,
    /// Include hidden text, which a person who opens the document does not see.
    pub show_hidden: bool,
}

impl Request {
    /// A request for a whole file.
    pub fn of_path(path: impl Into<String>) -> Self {
        Self {
            file_path: Some(path.into()),
            ..Self::default()
        }
    }

    /// Reads the parameters. Unknown parameters are ignored. A number counts as its text; a value of another wrong type
    /// counts as absent.
    pub fn from_value(parameters: &Value) -> Self {
        let text = |name: &str| text(parameters.get(name)?);
        Self {
            file_path: text("file_path"),
            summarize: parameters.get("summarize").is_some_and(is_true),
            focus: text("focus"),
            range: text("range"),
            find: text("find"),
            member: text("member"),
            show_hidden: parameters.get("show_hidden").is_some_and(is_true),
        }
        .tidied()
    }

    /// The same request without blank fields and with a focus of limited length. For callers that fill in the fields
    /// from a user's input.
    #[must_use]
    pub fn tidied(mut self) -> Self {
        let blank = |text: &String| text.trim().is_empty();
        self.focus = self.focus.as_deref().and_then(focus);
        self.range.take_if(|range| blank(range));
        self.find.take_if(|find| blank(find));
        self.member.take_if(|member| blank(member));
        self
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// `true`, or the text `true` in any case.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(it) => *it,
        Value::String(text) => text.trim().eq_ignore_ascii_case("true"),
        _ => false,
    }
}

/// A focus without controls and of bounded length; `None` when it is blank.
pub fn focus(text: &str) -> Option<String> {
    let printable: String = text
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    let shortened: String = printable
        .trim()
        .chars()
        .take(MAX_FOCUS_CHARACTERS)
        .collect();
    let shortened = shortened.trim_end();
    (!shortened.is_empty()).then(|| shortened.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_coerced_where_it_is_obvious() {
        let request = Request::from_value(&json!({
            "file_path": 2024, "member": 7, "summarize": " TRUE ", "focus": " a\u{7}b\n", "range": "pages 3", "other": 1,
            "show_hidden": "true"
        }));
        assert_eq!(request.file_path.as_deref(), Some("2024"));
        assert!(request.summarize);
        assert_eq!(request.focus.as_deref(), Some("ab"));
        assert_eq!(request.range.as_deref(), Some("pages 3"));
        assert_eq!(request.find, None);
        assert_eq!(request.member.as_deref(), Some("7"));
        assert!(request.show_hidden);
    }

    #[test]
    fn wrong_types_count_as_absent() {
        for wrong in [json!(null), json!([]), json!({}), json!(true)] {
            let request =
                Request::from_value(&json!({"file_path": wrong, "focus": wrong, "range": wrong}));
            assert_eq!(
                (request.file_path, request.focus, request.range),
                (None, None, None)
            );
        }
        for other in [
            json!("yes"),
            json!(1),
            json!("1"),
            json!(null),
            json!(["true"]),
        ] {
            assert!(!Request::from_value(&json!({"summarize": other})).summarize);
        }
        assert!(Request::from_value(&json!({"summarize": true})).summarize);
        assert_eq!(Request::from_value(&json!("a.pdf")), Request::default());
    }

    #[test]
    fn typed_requests_are_normalised_like_those_of_a_model() {
        let typed = Request {
            file_path: Some(" ".to_owned()),
            focus: Some("a\u{7}b ".repeat(300)),
            range: Some(String::new()),
            find: Some(" \n".to_owned()),
            member: Some(" ".to_owned()),
            summarize: true,
            show_hidden: false,
        };
        let tidied = typed.tidied();
        assert_eq!(tidied.focus.unwrap().chars().count(), 500);
        assert_eq!(
            (tidied.range, tidied.find, tidied.member),
            (None, None, None)
        );
        assert_eq!(tidied.file_path.as_deref(), Some(" "));
        let tidy = Request {
            range: Some("pages 3".to_owned()),
            find: Some("x".to_owned()),
            ..Request::default()
        };
        assert_eq!(tidy.clone().tidied(), tidy);
    }

    #[test]
    fn a_focus_is_bounded_and_never_blank() {
        assert_eq!(focus(" \u{0} \n"), None);
        assert_eq!(focus(&"ü".repeat(600)).unwrap().chars().count(), 500);
    }
}
