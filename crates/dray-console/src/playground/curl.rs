//! A request as a command that a person can copy into a shell.

/// Largest body that the command contains, in bytes. A larger one is downloaded as a file.
const MAX_INLINE_BYTES: usize = 32 * 1024;
/// Name of the file of a larger body.
pub(super) const BODY_NAME: &str = "request.json";

/// A request as `curl`. A key is never part of it: the command takes it from a variable.
pub(super) struct CurlCommand {
    pub(super) text: String,
    /// Whether the body is to be downloaded as [`BODY_NAME`].
    pub(super) has_body_file: bool,
}

impl CurlCommand {
    pub(super) fn new(url: &str, has_key: bool, body: &str) -> Self {
        let has_body_file = body.len() > MAX_INLINE_BYTES;
        let data = if has_body_file {
            format!("--data-binary @{BODY_NAME}")
        } else {
            format!("--data-raw {}", shell_quoted(body))
        };
        let key = if has_key {
            // The header is in double quotes, so that the shell expands the variable.
            " \\\n  -H \"authorization: Bearer $DRAY_API_KEY\""
        } else {
            ""
        };
        let text = format!(
            "curl -N {} \\\n  -H 'content-type: application/json'{key} \\\n  {data}",
            shell_quoted(url)
        );
        Self {
            text,
            has_body_file,
        }
    }
}

/// A text as one word of a POSIX shell: nothing is special between single quotes but the quote itself.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_sends_exactly_the_body_and_holds_no_key() {
        let body = r#"{"messages":[{"content":"it's $HOME `id` \"x\" \\"}]}"#;
        let command = CurlCommand::new("http://127.0.0.1:5000/v1/x", true, body);
        assert!(
            command
                .text
                .contains("\"authorization: Bearer $DRAY_API_KEY\"")
        );
        assert!(!command.has_body_file);
        // A shell reads the words back; `curl` is replaced by a function that prints its last word.
        let script = format!(
            "curl() {{ for word; do :; done; printf %s \"$word\"; }}\n{}",
            command.text
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), body);
    }

    #[test]
    fn a_large_body_is_a_file() {
        let command = CurlCommand::new("http://a", false, &"x".repeat(MAX_INLINE_BYTES + 1));
        assert!(command.has_body_file && command.text.ends_with("@request.json"));
        assert!(!command.text.contains("authorization"));
    }
}
