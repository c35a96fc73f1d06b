//! Plain text and code (read-attachment 7.1).

use dray_types::terminal;

use super::{payload, source};
use crate::container::Input;
use crate::formats::ConversionHint;
use crate::limits::Failure;
use crate::markdown::Markdown;

/// Text unchanged, or in a fence if it is code. A blank file has no output.
pub(super) fn convert(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    let text = terminal::without_escapes(&text);
    if text.trim().is_empty() {
        return Ok(());
    }
    match fence_language(hint) {
        Some(language) => out.code(language, &text)?,
        None => out.as_is(&text)?,
    }
    Ok(())
}

/// Markdown, unchanged except for line ends, terminal escapes and payloads.
pub(super) fn convert_markdown(
    input: &mut dyn Input,
    hint: &ConversionHint,
    out: &mut Markdown,
) -> Result<(), Failure> {
    let text = source::read_text(input, hint, out.budget())?;
    let text = terminal::without_escapes(&text);
    if text.trim().is_empty() {
        return Ok(());
    }
    // Notes with pasted pictures contain megabytes of base64 that are useless to a model.
    let text = payload::without_payloads(&text);
    out.as_is(&text)?;
    Ok(())
}

/// The tag of the fence; `None` for text that is not code. The name's extension decides, then the media type.
fn fence_language(hint: &ConversionHint) -> Option<&'static str> {
    of_extension(&hint.extension).or(match hint.mime.as_str() {
        "application/yaml" | "application/x-yaml" => Some("yaml"),
        "application/toml" => Some("toml"),
        "application/sql" => Some("sql"),
        "application/graphql" => Some("graphql"),
        "application/x-sh" => Some("bash"),
        "application/typescript" => Some("typescript"),
        "application/x-httpd-php" => Some("php"),
        "text/css" => Some("css"),
        "text/javascript"
        | "application/javascript"
        | "application/x-javascript"
        | "application/ecmascript" => Some("javascript"),
        mime if mime.ends_with("+yaml") => Some("yaml"),
        _ => None,
    })
}

fn of_extension(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "rb" => "ruby",
        "py" => "python",
        "js" | "mjs" | "cjs" => "javascript",
        "ts" => "typescript",
        "jsx" => "jsx",
        "tsx" => "tsx",
        "go" => "go",
        "rs" => "rust",
        "java" => "java",
        "c" | "h" => "c",
        "cpp" | "cc" | "hpp" | "cxx" => "cpp",
        "cs" => "csharp",
        "php" => "php",
        "sh" | "bash" | "zsh" => "bash",
        "sql" => "sql",
        "yml" | "yaml" => "yaml",
        "toml" => "toml",
        "ini" => "ini",
        "css" => "css",
        "scss" => "scss",
        "swift" => "swift",
        "kt" => "kotlin",
        "lua" => "lua",
        "pl" => "perl",
        "r" => "r",
        "scala" => "scala",
        "dart" => "dart",
        "ex" | "exs" => "elixir",
        "hs" => "haskell",
        "ml" => "ml",
        "ps1" => "powershell",
        "tf" => "tf",
        "proto" => "proto",
        "graphql" => "graphql",
        "dockerfile" => "dockerfile",
        "makefile" => "makefile",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::formats::text::testing::{convert_bytes, convert_to_markdown, convert_until_limit};
    use crate::limits::{Limit, Limits};

    #[test]
    fn text_is_unchanged_except_for_line_ends() {
        assert_eq!(
            convert_to_markdown("text/plain", "txt", b"a  \r\n\r\n\r\n# b *c*\rd\r\n"),
            "a  \n\n\n# b *c*\nd\n"
        );
    }

    #[test]
    fn code_is_fenced_by_its_extension() {
        for (extension, tag) in [
            ("rb", "ruby"),
            ("py", "python"),
            ("js", "javascript"),
            ("ts", "typescript"),
            ("jsx", "jsx"),
            ("tsx", "tsx"),
            ("go", "go"),
            ("rs", "rust"),
            ("java", "java"),
            ("c", "c"),
            ("h", "c"),
            ("cpp", "cpp"),
            ("cc", "cpp"),
            ("hpp", "cpp"),
            ("cxx", "cpp"),
            ("cs", "csharp"),
            ("php", "php"),
            ("sh", "bash"),
            ("bash", "bash"),
            ("zsh", "bash"),
            ("sql", "sql"),
            ("yml", "yaml"),
            ("yaml", "yaml"),
            ("toml", "toml"),
            ("ini", "ini"),
            ("css", "css"),
            ("scss", "scss"),
            ("swift", "swift"),
            ("kt", "kotlin"),
            ("lua", "lua"),
            ("pl", "perl"),
            ("r", "r"),
            ("scala", "scala"),
            ("dart", "dart"),
            ("ex", "elixir"),
            ("exs", "elixir"),
            ("hs", "haskell"),
            ("ml", "ml"),
            ("ps1", "powershell"),
            ("tf", "tf"),
            ("proto", "proto"),
            ("graphql", "graphql"),
            ("dockerfile", "dockerfile"),
            ("makefile", "makefile"),
        ] {
            assert_eq!(
                convert_to_markdown("text/plain", extension, b"x = '```'\r\n"),
                format!("````{tag}\nx = '```'\n````\n"),
            );
        }
        assert_eq!(
            convert_to_markdown("application/yaml", "", b"a: 1\n"),
            "```yaml\na: 1\n```\n"
        );
    }

    #[test]
    fn markdown_is_unchanged_except_for_payloads() {
        let source = "# T\r\n\r\n\r\n- a  \n![x](data:image/png;base64,AAAABBBB) and `data:x`\n";
        assert_eq!(
            convert_to_markdown("text/markdown", "md", source.as_bytes()),
            "# T\n\n\n- a  \n![x] and `data:x`\n"
        );
    }

    #[test]
    fn encodings_are_detected_despite_a_wrong_label() {
        assert_eq!(
            convert_to_markdown("text/plain", "txt", b"\xFF\xFEh\0\xE9\0"),
            "hé\n"
        );
        assert_eq!(
            convert_to_markdown("text/plain", "txt", "Größe und Länge, schön".as_bytes()),
            "Größe und Länge, schön\n"
        );
        let mut hint = crate::formats::text::testing::test_hint("text/plain", "txt");
        hint.encoding = Some("shift_jis".to_owned());
        let conversion = convert_bytes(&hint, b"abc \xFF\xFF def", Limits::default());
        assert!(conversion.markdown.starts_with("abc ") && conversion.markdown.ends_with(" def\n"));
    }

    #[test]
    fn a_blank_file_has_no_output_and_no_failure() {
        for source in [&b""[..], b" \n\t\r\n ", b"\xEF\xBB\xBF", b"\x1b[0m\n"] {
            let hint = crate::formats::text::testing::test_hint("text/plain", "py");
            let conversion = convert_bytes(&hint, source, Limits::default());
            assert_eq!(
                (conversion.markdown.as_str(), conversion.failure),
                ("", None)
            );
        }
    }

    #[test]
    fn a_line_of_five_megabytes_is_cut_at_the_limit() {
        let source = "é".repeat(2_600_000);
        let (text, limit) = convert_until_limit("text/plain", "txt", source.as_bytes());
        assert_eq!((text.len(), limit), (5_000_001, Limit::Size));
        let (text, limit) = convert_until_limit("text/plain", "rs", source.as_bytes());
        assert_eq!(limit, Limit::Size);
        assert!(text.starts_with("```rust\né") && text.ends_with("é\n```\n"));
    }
}
