//! Paths and addresses of others in sentences for a model (read-attachment 11.2).

use icu_properties::props::{DefaultIgnorableCodePoint, GeneralCategory};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Longest path in a sentence, in characters.
const MAX_PATH_CHARACTERS: usize = 300;

/// Escapes a path for use outside a frame: characters that could imitate structure, reverse text or hide are written as
/// `\u{…}`, and the middle of a long path is left out.
pub fn escape_path(path: &str) -> String {
    let escaped: Vec<String> = path.chars().map(escape).collect();
    let length = |parts: &[String]| parts.iter().map(|part| part.chars().count()).sum::<usize>();
    if length(&escaped) <= MAX_PATH_CHARACTERS {
        return escaped.concat();
    }
    let half = (MAX_PATH_CHARACTERS - 1) / 2;
    let mut head = String::new();
    let mut left = half;
    for part in &escaped {
        let chars = part.chars().count();
        // An escape is kept or left out completely; a part of `\u{202e}` would have another meaning.
        if chars > left {
            break;
        }
        left -= chars;
        head.push_str(part);
    }
    let mut tail = Vec::new();
    let mut left = half;
    for part in escaped.iter().rev() {
        let chars = part.chars().count();
        if chars > left {
            break;
        }
        left -= chars;
        tail.push(part.as_str());
    }
    tail.reverse();
    format!("{head}…{}", tail.concat())
}

fn escape(character: char) -> String {
    let category = CodePointMapData::<GeneralCategory>::new().get(character);
    let hidden = matches!(
        category,
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    );
    // Joiners, fillers, tags, variation selectors: complete sentences can be hidden in them.
    let invisible = CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character);
    if hidden || invisible || matches!(character, '`' | '[' | ']') {
        format!("\\u{{{:x}}}", u32::from(character))
    } else {
        character.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_cannot_imitate_structure() {
        assert_eq!(escape_path("a\nb"), "a\\u{a}b");
        assert_eq!(escape_path("x] -- [y`"), "x\\u{5d} -- \\u{5b}y\\u{60}");
        for hidden in "\u{202e}\u{2066}\u{200b}\u{200d}\u{feff}\u{ad}\u{2028}\u{2029}\u{85}\u{7f}\u{1b}\u{e0041}\u{e0002}\u{180e}\u{61c}\u{fe0f}\u{e0100}\u{34f}\u{3164}\u{115f}".chars() {
            let escaped = escape_path(&hidden.to_string());
            assert_eq!(escaped, format!("\\u{{{:x}}}", u32::from(hidden)));
        }
        assert_eq!(escape_path("Größe 报告 é'\".pdf"), "Größe 报告 é'\".pdf");
    }

    #[test]
    fn long_paths_lose_their_middle() {
        assert_eq!(escape_path(&"a".repeat(300)).chars().count(), 300);
        let escaped = escape_path(&format!("start{}end", "x".repeat(400)));
        assert_eq!(escaped.chars().count(), 299);
        assert!(
            escaped.starts_with("startx") && escaped.ends_with("xend") && escaped.contains('…')
        );
        let escaped = escape_path(&"\u{202e}".repeat(400));
        assert!(escaped.chars().count() <= 300);
        assert!(
            !escaped.replace("\\u{202e}", "").contains('\\'),
            "no escape is cut"
        );
    }
}
