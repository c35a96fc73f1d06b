//! Presentations written record by record.

use std::io::{Cursor, Read as _, Write as _};

use proptest::prelude::*;

use crate::formats::{ConversionHint, Converted, convert};
use crate::limits::{Damage, Failure, Limits};
use crate::markdown::{Selection, Span, Unit};

fn record(kind: u16, instance: u16, data: &[u8]) -> Vec<u8> {
    let head = instance << 4 | 0xF;
    let length = u32::try_from(data.len()).unwrap();
    [
        &head.to_le_bytes()[..],
        &kind.to_le_bytes(),
        &length.to_le_bytes(),
        data,
    ]
    .concat()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn header(kind: u32) -> Vec<u8> {
    record(0x0F9F, 0, &words(&[kind]))
}

fn wide(text: &str) -> Vec<u8> {
    let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    record(0x0FA0, 0, &bytes)
}

fn narrow(text: &str) -> Vec<u8> {
    record(0x0FA8, 0, text.as_bytes())
}

/// A shape at a place, with the content of its text.
fn shape(top: i16, text: &[u8]) -> Vec<u8> {
    let place: Vec<u8> = [top, 0, 9, 9]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let parts = [record(0xF010, 0, &place), record(0xF00D, 0, text)].concat();
    record(0xF004, 0, &parts)
}

/// A slide or page of notes.
fn slide(kind: u16, hidden: bool, notes: u32, shapes: &[Vec<u8>]) -> Vec<u8> {
    let mut atom = vec![0; 24];
    atom[16..20].copy_from_slice(&notes.to_le_bytes());
    let mut show = vec![0; 16];
    show[10] = if hidden { 4 } else { 0 };
    let group = record(0xF003, 0, &shapes.concat());
    let drawing = record(0x040C, 0, &record(0xF002, 0, &group));
    record(
        kind,
        0,
        &[record(0x03EF, 0, &atom), record(0x03F9, 0, &show), drawing].concat(),
    )
}

/// An entry of a list of slides.
fn entry(object: u32, identifier: u32, texts: &[u8]) -> Vec<u8> {
    let persist = record(0x03F3, 0, &words(&[object, 0, 0, identifier, 0]));
    [&persist, texts].concat()
}

/// A file of persistent objects from number 1, the document first, after an older edit.
fn file(objects: &[Vec<u8>], token: u32) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut offsets = Vec::new();
    for object in objects {
        offsets.push(u32::try_from(stream.len()).unwrap());
        stream.extend(object);
    }
    let count = u32::try_from(objects.len()).unwrap();
    let mut edit = |before: u32, first: u32, offsets: &[u32]| {
        let directory = u32::try_from(stream.len()).unwrap();
        let count = u32::try_from(offsets.len()).unwrap();
        let entries = [words(&[first | count << 20]), words(offsets)].concat();
        stream.extend(record(0x1772, 0, &entries));
        let at = u32::try_from(stream.len()).unwrap();
        stream.extend(record(
            0x0FF5,
            0,
            &words(&[0, 0, before, directory, 1, 0, 0]),
        ));
        at
    };
    // The older edit has other offsets for the same objects.
    let older = edit(0, 1, &vec![4; usize::try_from(count).unwrap()]);
    let last = edit(older, 1, &offsets);
    let user = record(0x0FF6, 0, &words(&[20, token, last]));
    let mut cfb = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for (name, data) in [("/PowerPoint Document", stream), ("/Current User", user)] {
        cfb.create_stream(name).unwrap().write_all(&data).unwrap();
    }
    cfb.flush().unwrap();
    cfb.into_inner().into_inner()
}

fn deck() -> Vec<Vec<u8>> {
    let outline = [
        header(0),
        wide("The title"),
        header(1),
        narrow("first\rsecond\u{b}line"),
    ]
    .concat();
    let list = |instance, entries: &[Vec<u8>]| record(0x0FF0, instance, &entries.concat());
    let document = [
        list(1, &[entry(9, 1, &[])]),
        list(
            0,
            &[
                entry(3, 256, &outline),
                entry(2, 257, &[header(4), narrow("lost text")].concat()),
            ],
        ),
        list(2, &[entry(4, 700, &[])]),
    ]
    .concat();
    let reference = |index| record(0x0F9E, 0, &words(&[index]));
    let group = record(
        0xF003,
        0,
        &[
            shape(100, &[]),
            shape(0, &[header(4), wide("in a group")].concat()),
        ]
        .concat(),
    );
    vec![
        record(0x03E8, 0, &document),
        slide(0x03EE, true, 0, &[]),
        slide(
            0x03EE,
            false,
            700,
            &[
                group,
                shape(50, &reference(1)),
                shape(10, &[header(4), narrow("above")].concat()),
                shape(90, &reference(0)),
            ],
        ),
        slide(
            0x03F0,
            false,
            0,
            &[
                shape(0, &[header(2), narrow("say this")].concat()),
                shape(0, &[header(4), narrow("not a note")].concat()),
            ],
        ),
    ]
}

fn hint() -> ConversionHint {
    ConversionHint {
        mime: "application/vnd.ms-powerpoint".to_owned(),
        ..ConversionHint::default()
    }
}

fn convert_ppt(bytes: Vec<u8>, selection: Selection) -> Converted {
    convert(
        &mut Cursor::new(bytes),
        &hint(),
        Limits::default(),
        selection,
    )
}

#[test]
fn slides_come_in_order_with_titles_places_notes_and_hidden_ones_marked() {
    let conversion = convert_ppt(file(&deck(), 0xE391_C05F), Selection::All);
    assert_eq!(
        conversion.markdown,
        "## Slide 1\n\n### The title\n\nabove\n\n- first\n- second\n  line\n\nin a group\n\n> Notes: say this\n\n\
         ## Slide 2 (hidden)\n\nlost text\n"
    );
    assert_eq!(
        (conversion.failure, conversion.warnings),
        (None, Vec::new())
    );
    assert_eq!(conversion.parts_seen, 2);
}

#[test]
fn a_range_chooses_slides() {
    let selection = Selection::Parts {
        unit: Unit::Slide,
        span: Span { first: 2, last: 2 },
    };
    let conversion = convert_ppt(file(&deck(), 0xE391_C05F), selection);
    assert_eq!(conversion.markdown, "## Slide 2 (hidden)\n\nlost text\n");
}

#[test]
fn encrypted_and_damaged_files_are_reported() {
    let failure = |bytes| convert_ppt(bytes, Selection::All).failure;
    assert_eq!(
        failure(file(&deck(), 0xF3D1_C4DF)),
        Some(Failure::Encrypted)
    );
    assert_eq!(
        failure(file(&[record(0x0FFF, 0, &[])], 0xE391_C05F)),
        Some(Failure::Corrupt(Damage::MissingPart))
    );
    let mut gone = deck();
    gone[1] = record(0x0FFF, 0, &[]);
    let conversion = convert_ppt(file(&gone, 0xE391_C05F), Selection::All);
    assert!(conversion.markdown.contains("lost text"));
    assert_eq!(conversion.warnings, ["slide 2 is damaged"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_file_with_any_bytes_changed_gives_a_bounded_text(
        changes in proptest::collection::vec((0_usize..4000, any::<u8>()), 1..30),
        end in 512_usize..6000,
    ) {
        let mut file = file(&deck(), 0xE391_C05F);
        for (at, byte) in changes {
            if let Some(its) = file.get_mut(at) {
                *its = byte;
            }
        }
        file.truncate(end);
        let limits = Limits { wall_ms: 2000, ..Limits::default() };
        let conversion = convert(&mut Cursor::new(file), &hint(), limits, Selection::All);
        prop_assert!(conversion.markdown.len() < 100_000);
    }
}

#[test]
fn a_file_for_two_versions_is_read_in_the_newer_one() {
    let newer = file(&deck(), 0xE391_C05F);
    let mut newer = cfb::CompoundFile::open(Cursor::new(newer)).unwrap();
    let mut dual = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    dual.create_storage("/PP97_DUALSTORAGE").unwrap();
    for name in ["/PowerPoint Document", "/Current User"] {
        let mut data = Vec::new();
        newer
            .open_stream(name)
            .unwrap()
            .read_to_end(&mut data)
            .unwrap();
        let newer_name = format!("/PP97_DUALSTORAGE{name}");
        dual.create_stream(newer_name)
            .unwrap()
            .write_all(&data)
            .unwrap();
        let mut older = dual.create_stream(name).unwrap();
        older.write_all(b"records of PowerPoint 95").unwrap();
    }
    dual.flush().unwrap();
    let conversion = convert_ppt(dual.into_inner().into_inner(), Selection::All);
    assert_eq!(conversion.failure, None);
    assert!(
        conversion.markdown.contains("### The title"),
        "{}",
        conversion.markdown
    );
}
