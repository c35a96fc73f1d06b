//! Numbers of lists, and what styles say.

use super::{Doc, convert_doc, property, put, word};

/// A level of a list: first number, format, and text, in which `\0` and `\u{1}` are the numbers of levels.
fn list_level(start: u32, format: u8, text: &str) -> Vec<u8> {
    let mut level = vec![0; 28];
    put(&mut level, 0, &start.to_le_bytes());
    level[4] = format;
    // One byte of properties of characters, and two of paragraphs.
    put(&mut level, 24, &[1, 2]);
    let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = u16::try_from(units.len() / 2).unwrap().to_le_bytes();
    [&level[..], &[9; 3], &length, &units].concat()
}

#[test]
fn items_have_the_numbers_that_a_person_sees() {
    let mut levels = vec![list_level(1, 0, "\0."), list_level(1, 4, "(\u{1})")];
    levels.resize(9, list_level(1, 23, "x"));
    let mut list = vec![0; 28];
    put(&mut list, 0, &77_u32.to_le_bytes());
    let lists = [&[1, 0][..], &list, &levels.concat()].concat();
    let reference = |overrides: u8| {
        let mut reference = vec![0; 16];
        put(&mut reference, 0, &77_u32.to_le_bytes());
        reference[12] = overrides;
        reference
    };
    // The second reference begins level 0 at 5.
    let overrides = [[0xFF; 4], [0xFF; 4], word(5), word(0x10)].concat();
    let references = [word(2).to_vec(), reference(0), reference(1), overrides].concat();
    let item = |length, list: u8, level: u8| {
        let properties = [property(0x260A, level), vec![0x0B, 0x46, list, 0]].concat();
        (length, 0, properties)
    };
    let doc = Doc {
        paragraphs: vec![
            item(4, 1, 0),
            item(4, 1, 1),
            item(4, 1, 1),
            item(6, 1, 0),
            item(5, 2, 0),
        ],
        tables: vec![(73, lists), (74, references)],
        ..Doc::narrow("One\rSub\rTwo\rThree\rFive\r")
    };
    assert_eq!(
        convert_doc(doc.bytes()).markdown,
        "1. One\n   - (a) Sub\n   - (b) Two\n2. Three\n5. Five\n"
    );
}

/// A style sheet of these styles: kind, and the properties of its paragraphs and characters.
fn style_sheet(styles: &[(u8, &[u8], &[u8])]) -> Vec<u8> {
    let mut sheet = vec![4, 0, u8::try_from(styles.len()).unwrap(), 0, 10, 0];
    let group = |data: &[u8]| {
        let mut group = vec![u8::try_from(data.len()).unwrap(), 0];
        group.extend(data);
        group.resize(group.len().next_multiple_of(2), 0);
        group
    };
    for (kind, of_paragraphs, of_characters) in styles {
        // No base style, and a name of one letter.
        let mut style = vec![
            0,
            0,
            0xF0 | kind,
            0xFF,
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            0,
            b'N',
            0,
            0,
            0,
        ];
        if *kind == 1 {
            style.extend(group(&[&[0_u8, 0][..], of_paragraphs].concat()));
        }
        style.extend(group(of_characters));
        sheet.extend([u8::try_from(style.len()).unwrap(), 0]);
        sheet.extend(style);
    }
    sheet
}

#[test]
fn text_that_a_style_hides_is_dropped() {
    let hide = property(0x083C, 1);
    let list = [0x0B, 0x46, 1, 0];
    let styles = style_sheet(&[
        (1, &[], &[]),
        (1, &[], &hide),
        (2, &[], &hide),
        (1, &list, &[]),
    ]);
    let doc = Doc {
        paragraphs: vec![
            (7, 1, vec![]),
            (8, 0, vec![]),
            (5, 3, vec![]),
            (5, 1, vec![]),
        ],
        characters: vec![
            (7, vec![]),
            (2, vec![0x30, 0x4A, 2, 0]),
            (11, vec![]),
            (2, property(0x083C, 0)),
            (2, property(0x083C, 0x81)),
        ],
        tables: vec![(1, styles)],
        ..Doc::narrow("secret\rno seen\ritem\rabcd\r")
    };
    let conversion = convert_doc(doc.bytes());
    assert_eq!(conversion.markdown, "seen\n\n- item\n\nabcd\n");
    assert_eq!(
        conversion.warnings,
        ["hidden content dropped: 8 characters"]
    );
}
