//! Search within a document: where a text occurs, with its page or sheet, its heading and its surroundings
//! (read-attachment 13.6).

use dray_documents::markdown::{Part, SearchLines};

/// Most hits that one search lists; the others are counted.
const MAX_SHOWN_HITS: usize = 50;
/// Characters around a hit that are shown, to either side.
const CONTEXT_CHARACTERS: usize = 120;
/// Longest text that is searched for, in characters.
const MAX_QUERY_CHARACTERS: usize = 200;
/// Lines of the note that readers are shown in place of lines that only a search reads.
const NOTE_LINES: usize = 2;

/// Returns the hits as Markdown: their number, then one list item for each. The comparison ignores case, and white
/// space in `query` matches any white space. Lines count in the text that readers are shown, without `search_lines`.
pub fn find(markdown: &str, parts: &[Part], search_lines: &[SearchLines], query: &str) -> String {
    // A model writes the query. The time is proportional to its length times that of the document, so the length is
    // limited.
    let query: String = query.chars().take(MAX_QUERY_CHARACTERS).collect();
    let query = normalize_query(&query);
    let mut out = Vec::new();
    let mut total = 0_usize;
    let mut heading = String::new();
    let mut offset = 0;
    for (index, line) in markdown.split('\n').enumerate() {
        if line.starts_with('#') {
            line.trim_start_matches('#').trim().clone_into(&mut heading);
        }
        for (before, hit, after) in find_hits(line, &query) {
            total += 1;
            if out.len() < MAX_SHOWN_HITS {
                let location =
                    location_text(parts, offset, &line_text(search_lines, index + 1), &heading);
                out.push(format!("- {location}: {before}{hit}{after}"));
            }
        }
        offset += line.len() + 1;
    }
    let count = match total {
        0 => return "_(No hits)_\n".to_owned(),
        1 => "_(1 hit)_".to_owned(),
        more if more > MAX_SHOWN_HITS => {
            format!("_({more} hits, the first {MAX_SHOWN_HITS} shown)_")
        }
        more => format!("_({more} hits)_"),
    };
    format!("{count}\n\n{}\n", out.join("\n"))
}

/// The location of a hit, in the words of the `range` parameter.
fn location_text(parts: &[Part], offset: usize, line: &str, heading: &str) -> String {
    let part = parts.iter().take_while(|part| part.start <= offset).last();
    let part = part.map(|part| match &part.title {
        Some(title) => format!("{} {title}, ", part.unit.word()),
        None => format!("{} {}, ", part.unit.word(), part.number),
    });
    let heading = if heading.is_empty() {
        String::new()
    } else {
        format!(", under “{heading}”")
    };
    format!("{}{line}{heading}", part.unwrap_or_default())
}

/// The place of a line as readers find it: its line in the text that they are shown, or its row, which a range of rows
/// shows.
fn line_text(search_lines: &[SearchLines], line: usize) -> String {
    let mut shown_line = line;
    for lines in search_lines.iter().take_while(|lines| lines.first <= line) {
        if let Some(row) = lines.rows.get(line - lines.first) {
            return format!("row {row}");
        }
        if line - lines.first < lines.count {
            let last_shown = shown_line.saturating_sub(line - lines.first + 1);
            return format!("after line {last_shown}");
        }
        shown_line = (shown_line + NOTE_LINES).saturating_sub(lines.count);
    }
    format!("line {shown_line}")
}

/// Every match in a line, with the text around it.
fn find_hits(line: &str, query: &str) -> Vec<(String, String, String)> {
    if query.is_empty() {
        return Vec::new();
    }
    // `offsets` maps each byte of the folded text to its character in the line.
    let mut folded = String::with_capacity(line.len());
    let mut offsets = Vec::with_capacity(line.len());
    for (offset, character) in line.char_indices() {
        let before = folded.len();
        if character.is_whitespace() {
            folded.push(' ');
        } else {
            folded.extend(character.to_lowercase());
        }
        offsets.extend(std::iter::repeat_n(offset, folded.len() - before));
    }
    offsets.push(line.len());
    folded
        .match_indices(query)
        .filter_map(|(at, matched)| {
            // The lower case of one character can be several characters (`İ`), which have the same offset. A hit can
            // end between them.
            let start = *offsets.get(at)?;
            let end = *offsets.get(at + matched.len())?;
            let end = line.ceil_char_boundary(end.max(start));
            Some((
                context_before(line.get(..start)?),
                line.get(start..end)?.to_owned(),
                context_after(line.get(end..)?),
            ))
        })
        .collect()
}

fn normalize_query(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

fn context_before(text: &str) -> String {
    let all = text.chars().count();
    if all <= CONTEXT_CHARACTERS {
        return text.trim_start().to_owned();
    }
    let shortened: String = text.chars().skip(all - CONTEXT_CHARACTERS).collect();
    format!("…{shortened}")
}

fn context_after(text: &str) -> String {
    if text.chars().count() <= CONTEXT_CHARACTERS {
        return text.trim_end().to_owned();
    }
    let shortened: String = text.chars().take(CONTEXT_CHARACTERS).collect();
    format!("{shortened}…")
}

#[cfg(test)]
mod tests {
    use dray_documents::markdown::Unit;

    use super::*;

    fn page(number: u32, start: usize) -> Part {
        Part {
            unit: Unit::Page,
            number,
            title: None,
            start,
        }
    }

    #[test]
    fn hits_come_with_page_line_and_heading() {
        let text = "# Intro\n\nThe Budget is tight.\n\n# End\n\nno budget, NO BUDGET\n";
        let hits_text = find(text, &[page(1, 0), page(2, 31)], &[], "budget");
        assert_eq!(
            hits_text,
            "_(3 hits)_\n\n- page 1, line 3, under “Intro”: The Budget is tight.\n\
             - page 2, line 7, under “End”: no budget, NO BUDGET\n\
             - page 2, line 7, under “End”: no budget, NO BUDGET\n"
        );
    }

    #[test]
    fn characters_that_change_length_when_folded_do_not_shift_hits() {
        assert_eq!(find("İİİ straße x\n", &[], &[], "STRASSE"), "_(No hits)_\n");
        assert_eq!(
            find("İİİ ziel x\n", &[], &[], "Ziel"),
            "_(1 hit)_\n\n- line 1: İİİ ziel x\n"
        );
        assert_eq!(
            find("a\u{a0}b\n", &[], &[], " a   b "),
            "_(1 hit)_\n\n- line 1: a\u{a0}b\n"
        );
        assert_eq!(find("anything", &[], &[], "  "), "_(No hits)_\n");
    }

    #[test]
    fn many_hits_are_counted_and_long_lines_cut() {
        let text = "x".repeat(1000);
        let hits_text = find(&text, &[], &[], "x");
        assert!(hits_text.starts_with("_(1000 hits, the first 50 shown)_\n"));
        assert!(
            hits_text
                .lines()
                .all(|line| line.chars().count() < 2 * CONTEXT_CHARACTERS + 40)
        );
    }

    #[test]
    fn hits_in_lines_that_readers_are_not_shown_have_their_row() {
        let text = "| n |\n|---|\n| 1 |\n| 2 |\n| 3 |\n\n```\na\nb\nc\n```\n\nend\n";
        let search_lines = [
            SearchLines {
                first: 4,
                count: 2,
                rows: vec![3, 7],
            },
            SearchLines {
                first: 9,
                count: 2,
                rows: Vec::new(),
            },
        ];
        for (query, location) in [
            ("1", "line 3: | 1 |"),
            ("3", "row 7: | 3 |"),
            ("a", "line 8: a"),
            ("c", "after line 8: c"),
            ("end", "line 13: end"),
        ] {
            let hits = find(text, &[], &search_lines, query);
            assert_eq!(hits, format!("_(1 hit)_\n\n- {location}\n"));
        }
    }

    proptest::proptest! {
        #[test]
        fn search_never_panics(text in "\\PC{0,80}", query in "\\PC{0,6}") {
            let hits_text = find(&text, &[], &[], &query);
            proptest::prop_assert!(hits_text.ends_with('\n'));
        }
    }
}
