//! Word documents written byte by byte.

mod lists_and_styles;

use std::io::{Cursor, Write as _};

use proptest::prelude::*;

use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::{Damage, Failure, Limit, Limits};
use crate::markdown::Selection;

/// The offset of the text in the main stream.
const TEXT_OFFSET: usize = 1024;

/// A document in the making.
#[derive(Clone, Default)]
struct Doc {
    /// Pieces of text; narrow ones have one byte per character.
    pieces: Vec<(String, bool)>,
    /// Formats of paragraphs: number of characters, style, property modifications.
    paragraphs: Vec<(usize, u16, Vec<u8>)>,
    /// Formats of characters: number of characters, property modifications.
    characters: Vec<(usize, Vec<u8>)>,
    /// Characters of body, footnotes, headers, comments, endnotes.
    stories: Vec<usize>,
    /// Further tables by their number.
    tables: Vec<(usize, Vec<u8>)>,
    flags: u16,
}

fn put(stream: &mut [u8], at: usize, bytes: &[u8]) {
    stream[at..at + bytes.len()].copy_from_slice(bytes);
}

fn word(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap().to_le_bytes()
}

/// A page of 512 bytes: bounds of the runs, entries of this size, and the data to which each refers.
fn page(runs: &[(usize, Vec<u8>)], entry: usize) -> Vec<u8> {
    let mut page = vec![0; 512];
    let mut offset = TEXT_OFFSET;
    let mut free = 510;
    for (at, (length, data)) in runs.iter().enumerate() {
        put(&mut page, at * 4, &word(offset));
        offset += length;
        free = (free - data.len()) & !1;
        put(&mut page, free, data);
        page[(runs.len() + 1) * 4 + at * entry] = u8::try_from(free / 2).unwrap();
    }
    put(&mut page, runs.len() * 4, &word(offset));
    page[511] = u8::try_from(runs.len()).unwrap();
    page
}

impl Doc {
    fn narrow(text: &str) -> Self {
        Self {
            pieces: vec![(text.to_owned(), true)],
            ..Self::default()
        }
    }

    /// A table of one page.
    fn add_page(&mut self, table: usize, page: &[u8], main: &mut Vec<u8>) {
        main.resize(main.len().next_multiple_of(512), 0);
        let bounds = [word(0), word(usize::MAX >> 33), word(main.len() / 512)].concat();
        main.extend(page);
        self.tables.push((table, bounds));
    }

    /// The pages with the formats of paragraphs and characters.
    fn add_formats(&mut self, main: &mut Vec<u8>) {
        let paragraphs: Vec<(usize, Vec<u8>)> = self
            .paragraphs
            .iter()
            .map(|(length, style, properties)| {
                let mut data = [&style.to_le_bytes()[..], properties].concat();
                let head = if data.len() % 2 == 1 {
                    vec![u8::try_from(data.len().div_ceil(2)).unwrap()]
                } else {
                    vec![0, u8::try_from(data.len() / 2).unwrap()]
                };
                data.splice(..0, head);
                (*length, data)
            })
            .collect();
        let characters: Vec<(usize, Vec<u8>)> = self
            .characters
            .iter()
            .map(|(length, properties)| {
                let head = vec![u8::try_from(properties.len()).unwrap()];
                (*length, [head, properties.clone()].concat())
            })
            .collect();
        for (table, runs, entry) in [(13, paragraphs, 13), (12, characters, 1)] {
            if !runs.is_empty() {
                self.add_page(table, &page(&runs, entry), main);
            }
        }
    }

    fn bytes(mut self) -> Vec<u8> {
        let mut main = vec![0; TEXT_OFFSET];
        let (mut bounds, mut places) = (word(0).to_vec(), Vec::new());
        let mut count = 0;
        for (text, narrow) in &self.pieces {
            count += text.encode_utf16().count();
            bounds.extend(word(count));
            places.extend([0, 0]);
            if *narrow {
                places.extend(word((main.len() * 2) | 0x4000_0000));
                main.extend(encoding_rs::WINDOWS_1252.encode(text).0.iter());
            } else {
                places.extend(word(main.len()));
                main.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
            }
            places.extend([0, 0]);
        }
        let table = [bounds, places].concat();
        let clx = [&[1, 2, 0, 9, 9, 2][..], &word(table.len()), &table].concat();
        self.tables.push((33, clx));
        self.add_formats(&mut main);
        put(&mut main, 0, &0xA5EC_u16.to_le_bytes());
        put(&mut main, 2, &0x00C1_u16.to_le_bytes());
        put(&mut main, 0x0A, &(self.flags | 0x0200).to_le_bytes());
        let stories = if self.stories.is_empty() {
            vec![count]
        } else {
            self.stories.clone()
        };
        for (at, length) in [0x4C, 0x50, 0x54, 0x5C, 0x60].into_iter().zip(stories) {
            put(&mut main, at, &word(length));
        }
        let mut tables = Vec::new();
        for (number, data) in &self.tables {
            let pair = [word(tables.len()), word(data.len())].concat();
            put(&mut main, 154 + 8 * number, &pair);
            tables.extend(data);
        }
        let mut cfb = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        for (name, data) in [("/WordDocument", main), ("/1Table", tables)] {
            cfb.create_stream(name).unwrap().write_all(&data).unwrap();
        }
        cfb.flush().unwrap();
        cfb.into_inner().into_inner()
    }
}

fn hint(show_hidden: bool) -> ConversionHint {
    ConversionHint {
        mime: "application/msword".to_owned(),
        show_hidden,
        ..ConversionHint::default()
    }
}

fn convert_doc(bytes: Vec<u8>) -> Converted {
    convert(
        &mut Cursor::new(bytes),
        &hint(false),
        Limits::default(),
        Selection::All,
    )
}

/// A modification with an operand of one byte.
fn property(code: u16, value: u8) -> Vec<u8> {
    [&code.to_le_bytes()[..], &[value]].concat()
}

#[test]
fn pieces_of_both_widths_are_joined() {
    let doc = Doc {
        pieces: vec![
            ("Gr\u{f6}\u{df}e \u{2013} ".to_owned(), true),
            ("Ωmega 😀\rnext\u{b}line".to_owned(), false),
            ("\r".to_owned(), true),
        ],
        ..Doc::default()
    };
    let conversion = convert_doc(doc.bytes());
    assert_eq!(conversion.markdown, "Größe – Ωmega 😀\n\nnext\nline\n");
    assert_eq!(
        (conversion.converter.as_str(), conversion.failure),
        ("doc", None)
    );
}

#[test]
fn symbols_are_the_characters_that_their_font_shows() {
    let font = |name: &str| {
        let name: Vec<u8> = name
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        let entry = [&[0_u8; 39][..], &name].concat();
        [&[u8::try_from(entry.len()).unwrap()][..], &entry].concat()
    };
    let fonts = [
        &3_u16.to_le_bytes()[..],
        &[0, 0],
        &font("Arial"),
        &font("Symbol"),
        &font("Webdings"),
    ]
    .concat();
    let symbol = |font: u8, code: u8| vec![0x09, 0x6A, font, 0, code, 0xF0];
    let doc = Doc {
        characters: vec![
            (5, vec![]),
            (1, symbol(1, 0xA3)),
            (3, vec![]),
            (1, vec![0x4F, 0x4A, 1, 0]),
            (4, vec![]),
            (1, symbol(2, 0x41)),
        ],
        tables: vec![(15, fonts)],
        ..Doc::narrow("dose ( 5 mg a (\u{13} SYMBOL 179 \\f \"Symbol\" \u{15}\r")
    };
    let conversion = convert_doc(doc.bytes());
    assert_eq!(conversion.markdown, "dose ≤ 5 µg a \u{FFFD}≥\n");
    assert_eq!(
        conversion.warnings,
        ["characters of a symbol font are not shown"]
    );
}

#[test]
fn raised_digits_are_superscripts() {
    let doc = Doc {
        characters: vec![
            (2, vec![]),
            (1, property(0x2A48, 1)),
            (2, vec![]),
            (1, property(0x2A48, 2)),
        ],
        ..Doc::narrow("106 H2O\r")
    };
    assert_eq!(convert_doc(doc.bytes()).markdown, "10⁶ H2O\n");
}

#[test]
fn styles_levels_and_lists_make_headings_and_items() {
    let doc = Doc {
        paragraphs: vec![
            (6, 1, vec![]),
            (6, 0, property(0x2640, 2)),
            (
                5,
                0,
                [property(0x260A, 1), [0x0B, 0x46, 1, 0].to_vec()].concat(),
            ),
            (5, 0, vec![]),
        ],
        ..Doc::narrow("Title\rUnder\rItem\rText\r")
    };
    assert_eq!(
        convert_doc(doc.bytes()).markdown,
        "# Title\n\n### Under\n\n  - Item\n\nText\n"
    );
}

#[test]
fn characters_keep_their_formats_and_hidden_ones_are_dropped() {
    let doc = Doc {
        characters: vec![
            (5, property(0x0835, 1)),
            (3, vec![]),
            (6, property(0x083C, 1)),
            (4, property(0x0800, 1)),
            (4, property(0x0836, 1)),
        ],
        ..Doc::narrow("bold, and\u{a0}secretgoneends\r")
    };
    let doc = Doc {
        pieces: vec![("boldy & secretgoneends\r".to_owned(), true)],
        ..doc
    };
    let bytes = doc.bytes();
    let conversion = convert_doc(bytes.clone());
    assert_eq!(conversion.markdown, "**boldy** & *ends*\n");
    assert_eq!(
        conversion.warnings,
        ["hidden content dropped: 6 characters"]
    );
    let shown = convert(
        &mut Cursor::new(bytes),
        &hint(true),
        Limits::default(),
        Selection::All,
    );
    assert_eq!(shown.markdown, "**boldy** & secret*ends*\n");
}

#[test]
fn cells_and_rows_make_a_table() {
    let cell = |length| (length, 0, property(0x2416, 1));
    let row_end = (1, 0, [property(0x2416, 1), property(0x2417, 1)].concat());
    let doc = Doc {
        paragraphs: vec![
            (7, 0, vec![]),
            cell(2),
            cell(4),
            row_end.clone(),
            cell(1),
            cell(2),
            row_end,
            (6, 0, vec![]),
        ],
        ..Doc::narrow("before\ra\u{7}b\rc\u{7}\u{7}\u{7}d\u{7}\u{7}after\r")
    };
    assert_eq!(
        convert_doc(doc.bytes()).markdown,
        "before\n\n| a | b<br>c |\n|---|---|\n|  | d |\n\nafter\n"
    );
}

#[test]
fn fields_show_their_result_and_links_have_a_target() {
    let doc = Doc::narrow(
        "\u{13}PAGE \u{14}7\u{15}, \u{13} HYPERLINK \"https://a.example/\" \u{14}here\u{15}, \u{13}IF \u{13}X\u{14}y\u{15}\u{14}z\u{15}.\r",
    );
    assert_eq!(
        convert_doc(doc.bytes()).markdown,
        "7, [here](https://a.example/), z.\n"
    );
}

#[test]
fn notes_and_comments_follow_the_text() {
    let doc = Doc {
        stories: vec![10, 12, 7, 8],
        tables: vec![
            (2, [&word(4)[..], &word(10), &[0, 0]].concat()),
            (3, [word(0), word(11), word(12)].concat()),
            (5, [word(0), word(7), word(8)].concat()),
        ],
        ..Doc::narrow("body\u{2} end\r\u{2} the note\r\rheader\rcomment\r")
    };
    assert_eq!(
        convert_doc(doc.bytes()).markdown,
        "body[^1] end\n\n### Footnotes\n\n[^1]: the note\n\n### Comments\n\n- comment\n"
    );
}

#[test]
fn encrypted_damaged_and_foreign_files_are_reported() {
    let encrypted = Doc {
        flags: 0x0100,
        ..Doc::narrow("x\r")
    };
    assert_eq!(
        convert_doc(encrypted.bytes()).failure,
        Some(Failure::Encrypted)
    );
    assert_eq!(
        convert_doc(b"no compound file".to_vec()).failure,
        Some(Failure::Corrupt(Damage::Structure))
    );
    let limits = Limits {
        max_text_bytes: 10,
        ..Limits::default()
    };
    let long = Doc::narrow("some words\rand some more\r").bytes();
    let conversion = convert(&mut Cursor::new(long), &hint(false), limits, Selection::All);
    assert_eq!(conversion.stopped, Some(Limit::Size));
}

#[test]
fn word_95_documents_are_converted_to_plain_text() {
    let mut main = vec![0; 600];
    put(&mut main, 0, &0xA5DC_u16.to_le_bytes());
    put(&mut main, 2, &0x0068_u16.to_le_bytes());
    put(&mut main, 0x18, &word(512));
    put(&mut main, 0x1C, &word(522));
    put(&mut main, 0x34, &word(10));
    put(&mut main, 512, b"old\rw\xF6rds\r");
    let mut cfb = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    cfb.create_stream("/WordDocument")
        .unwrap()
        .write_all(&main)
        .unwrap();
    cfb.flush().unwrap();
    let conversion = convert_doc(cfb.into_inner().into_inner());
    assert_eq!(conversion.markdown, "old\n\nwörds\n");
}

fn sample() -> Vec<u8> {
    Doc {
        paragraphs: vec![(6, 1, vec![]), (3, 0, property(0x2416, 1)), (20, 0, vec![])],
        characters: vec![(5, property(0x0835, 1)), (30, property(0x083C, 1))],
        ..Doc::narrow("Title\ra\u{7}\u{7}\u{13}PAGE\u{14}7\u{15} and so on\r")
    }
    .bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_file_with_any_bytes_changed_gives_a_bounded_text(
        changes in proptest::collection::vec((0_usize..6000, any::<u8>()), 1..30),
        end in 512_usize..8000,
    ) {
        let mut file = sample();
        for (at, byte) in changes {
            if let Some(its) = file.get_mut(at) {
                *its = byte;
            }
        }
        file.truncate(end);
        let limits = Limits { wall_ms: 2000, ..Limits::default() };
        let conversion = convert(&mut Cursor::new(file), &hint(false), limits, Selection::All);
        prop_assert!(conversion.markdown.len() < 100_000);
    }
}
