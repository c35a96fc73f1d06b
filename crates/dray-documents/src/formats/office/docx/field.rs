//! Fields. The result of a field is shown and its instruction is not; a `HYPERLINK` instruction makes a link.

/// The position inside a complex field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::formats::office) enum Field {
    /// The instruction so far, between the beginning of the field and its separator.
    Instruction(String),
    /// The result, between separator and end, with the link of the field.
    Result(Option<String>),
}

/// Most bytes of an instruction that are read.
const MAX_INSTRUCTION_BYTES: usize = 16 * 1024;

impl Field {
    /// Appends to the field's code until it has [`MAX_INSTRUCTION_BYTES`]; the rest is ignored.
    pub(in crate::formats::office) fn append_instruction(&mut self, text: &str) {
        if let Self::Instruction(so_far) = self
            && so_far.len() < MAX_INSTRUCTION_BYTES
        {
            so_far.push_str(text);
        }
    }
}

/// The target of a `HYPERLINK` instruction; `None` for other fields and for positions within the document.
pub(in crate::formats::office) fn hyperlink_target(instruction: &str) -> Option<String> {
    let mut tokens = FieldTokens(instruction);
    if !tokens.next()?.0.eq_ignore_ascii_case("hyperlink") {
        return None;
    }
    let mut target = None;
    let mut anchor = None;
    while let Some((word, quoted)) = tokens.next() {
        match word.as_str() {
            "\\l" if !quoted => anchor = tokens.next().map(|(word, _)| word),
            // These two switches have an argument: a tooltip and the name of a frame.
            "\\o" | "\\t" if !quoted => {
                tokens.next();
            }
            _ if !quoted && word.starts_with('\\') => {}
            _ => {
                target.get_or_insert(word);
            }
        }
    }
    let target = target.filter(|url| !url.is_empty())?;
    Some(match anchor {
        Some(anchor) => format!("{target}#{anchor}"),
        None => target,
    })
}

/// Words of an instruction: quoted or up to white space. Within quotes a backslash marks the next character.
struct FieldTokens<'a>(&'a str);

impl FieldTokens<'_> {
    fn next(&mut self) -> Option<(String, bool)> {
        let rest = self.0.trim_start();
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut word = String::new();
            let mut chars = quoted.char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        self.0 = quoted.get(at + 1..).unwrap_or_default();
                        return Some((word, true));
                    }
                    '\\' => word.extend(chars.next().map(|(_, character)| character)),
                    _ => word.push(c),
                }
            }
            self.0 = "";
            return Some((word, true));
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.0 = after;
        (!word.is_empty()).then(|| (word.to_owned(), false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hyperlink_instruction_names_its_target() {
        for (instruction, target) in [
            (
                " HYPERLINK \"https://a.example/x\" ",
                Some("https://a.example/x"),
            ),
            ("hyperlink https://a.example/", Some("https://a.example/")),
            (
                "HYPERLINK \"https://a.example/\" \\l \"top\" \\o \"a tip\"",
                Some("https://a.example/#top"),
            ),
            ("HYPERLINK \\l \"_Toc1\"", None),
            ("PAGEREF _Toc1 \\h", None),
            ("HYPERLINK", None),
            ("", None),
            ("HYPERLINK \"never closed", Some("never closed")),
        ] {
            assert_eq!(
                hyperlink_target(instruction).as_deref(),
                target,
                "{instruction}"
            );
        }
    }
}
