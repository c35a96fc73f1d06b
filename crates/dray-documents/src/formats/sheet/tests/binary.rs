//! XLSB, written record by record (MS-XLSB 2.1).

use std::io::{Cursor, Write as _};

use super::super::super::office::tests::{converted, markdown};
use super::drawing::{drawing_part, shape};

const XLSB: &str = "application/vnd.ms-excel.sheet.binary.macroEnabled.12";
const XLS: &str = "application/vnd.ms-excel";

/// Appends a record: its type in one or two bytes, its length in groups of seven bits.
fn put(out: &mut Vec<u8>, kind: u16, data: &[u8]) {
    let low = u8::try_from(kind & 0x7F).unwrap();
    if kind < 0x80 {
        out.push(low);
    } else {
        out.extend([low | 0x80, u8::try_from(kind >> 7).unwrap()]);
    }
    let mut rest = data.len();
    loop {
        let group = u8::try_from(rest & 0x7F).unwrap();
        rest >>= 7;
        if rest == 0 {
            out.push(group);
            break;
        }
        out.push(group | 0x80);
    }
    out.extend(data);
}

fn wide(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut out = u32::try_from(units.len()).unwrap().to_le_bytes().to_vec();
    out.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    out
}

fn cell(column: u32, value: &[u8]) -> Vec<u8> {
    [&column.to_le_bytes()[..], &[0; 4], value].concat()
}

/// A workbook of one sheet with the given records as its data.
fn xlsb(hidden: u32, rows: &[(u16, Vec<u8>)]) -> Vec<u8> {
    xlsb_with(hidden, &[], rows, &[])
}

/// Like [`xlsb`], with records before the data, and a part with styles.
fn xlsb_with(
    hidden: u32,
    before: &[(u16, Vec<u8>)],
    rows: &[(u16, Vec<u8>)],
    styles: &[(u16, Vec<u8>)],
) -> Vec<u8> {
    xlsb_package(hidden, before, rows, styles, &[])
}

/// Like [`xlsb_with`], with further parts.
fn xlsb_package(
    hidden: u32,
    before: &[(u16, Vec<u8>)],
    rows: &[(u16, Vec<u8>)],
    styles: &[(u16, Vec<u8>)],
    more: &[(&str, &[u8])],
) -> Vec<u8> {
    let mut book = Vec::new();
    put(&mut book, 0x0083, &[]);
    put(&mut book, 0x008F, &[]);
    let mut bundle = hidden.to_le_bytes().to_vec();
    bundle.extend(1_u32.to_le_bytes());
    bundle.extend(wide("rId1"));
    bundle.extend(wide("Binary"));
    put(&mut book, 0x009C, &bundle);
    put(&mut book, 0x0090, &[]);
    put(&mut book, 0x009D, &[]);
    put(&mut book, 0x0084, &[]);
    let mut sheet = Vec::new();
    put(&mut sheet, 0x0081, &[]);
    put(&mut sheet, 0x0094, &[0xFF; 16]);
    for (kind, data) in before {
        put(&mut sheet, *kind, data);
    }
    put(&mut sheet, 0x0091, &[]);
    for (kind, data) in rows {
        put(&mut sheet, *kind, data);
    }
    put(&mut sheet, 0x0092, &[]);
    let mut looks = Vec::new();
    for (kind, data) in styles {
        put(&mut looks, *kind, data);
    }
    let relations = super::relations(&[
        ("rId1", "worksheet", "worksheets/sheet1.bin"),
        ("rId2", "styles", "styles.bin"),
    ]);
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let parts = [
        ("xl/workbook.bin", book.as_slice()),
        ("xl/_rels/workbook.bin.rels", relations.as_bytes()),
        ("xl/worksheets/sheet1.bin", sheet.as_slice()),
        ("xl/styles.bin", looks.as_slice()),
    ];
    for (name, content) in parts.iter().chain(more) {
        if content.is_empty() {
            continue;
        }
        zip.start_file(*name, zip::write::SimpleFileOptions::default())
            .unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn a_binary_workbook_reads_cell_by_cell_to_the_last_corner() {
    let rows = [
        (0x0000, 0_u32.to_le_bytes().to_vec()),
        (0x0006, cell(0, &wide("Größe"))),
        (0x0004, cell(1, &[1])),
        (0x0000, 1_048_575_u32.to_le_bytes().to_vec()),
        (0x0005, cell(16_383, &0.5_f64.to_le_bytes())),
        (0x0003, cell(0, &[0x07])),
    ];
    assert_eq!(
        markdown(XLSB, &xlsb(1, &rows)),
        "## Binary (hidden)\n\n| Größe | TRUE |  |\n|---|---|---|\n|  |  |  |\n| #DIV/0! |  | 0.5 |\n"
    );
}

#[test]
fn comments_links_and_shapes_of_a_binary_workbook_are_shown() {
    let area = |row: u32, column: u32| [row, row, column, column].map(u32::to_le_bytes).concat();
    let mut comments = Vec::new();
    put(&mut comments, 632, &wide("Ann"));
    let head = [&0_u32.to_le_bytes()[..], &area(1, 1), &[0; 16]].concat();
    put(&mut comments, 635, &head);
    put(&mut comments, 637, &[&[0_u8][..], &wide("why?")].concat());
    let link = [area(0, 0), wide("rL"), wide(""), wide(""), wide("")].concat();
    let relations = super::relations(&[
        ("rL", "hyperlink", "https://a.example/"),
        ("rC", "comments", "comments1.bin"),
        ("rD", "drawing", "drawing.xml"),
    ]);
    let drawing = drawing_part(&shape(3, "", &["valid until May"]));
    let rows = [
        (0x0000, 0_u32.to_le_bytes().to_vec()),
        (0x0006, cell(0, &wide("go"))),
    ];
    let bytes = xlsb_package(
        0,
        &[(494, link)],
        &rows,
        &[],
        &[
            ("xl/worksheets/_rels/sheet1.bin.rels", relations.as_bytes()),
            ("xl/worksheets/comments1.bin", comments.as_slice()),
            ("xl/worksheets/drawing.xml", drawing.as_bytes()),
        ],
    );
    assert_eq!(
        markdown(XLSB, &bytes),
        "## Binary\n\n| [go](https://a.example/) |\n|---|\n\n- B2: Ann: why?\n\nvalid until May\n"
    );
}

#[test]
fn an_impossible_record_damages_only_its_sheet() {
    let rows = [
        (0x0000, 0_u32.to_le_bytes().to_vec()),
        (0x0006, cell(0, &wide("before"))),
        (0x0003, cell(1, &[0xEE])),
    ];
    let conversion = converted(XLSB, &xlsb(0, &rows));
    assert_eq!(conversion.failure, None);
    assert_eq!(conversion.warnings, ["sheet 1 is damaged"]);
    assert!(conversion.markdown.starts_with("## Binary\n\n| before |"));
}

/// A style of cells: number format, font and fill by number.
fn cell_format(code: u16, font: u16, fill: u16) -> Vec<u8> {
    let mut out = Vec::new();
    for part in [0, code, font, fill, 0, 0, 0, 0] {
        out.extend(part.to_le_bytes());
    }
    out
}

/// A font of a colour of the palette.
fn font(index: u8) -> Vec<u8> {
    [&[0; 12][..], &[1 << 1, index], &[0; 6], &wide("Sans")].concat()
}

#[test]
fn hidden_parts_of_a_binary_workbook_are_left_out() {
    let styled = |column: u32, style: u8, value: &[u8]| {
        [&column.to_le_bytes()[..], &[style, 0, 0, 0], value].concat()
    };
    let row =
        |number: u32, flags: u8| [&number.to_le_bytes()[..], &[0; 7], &[flags], &[0; 5]].concat();
    let code = [&170_u16.to_le_bytes()[..], &wide(";;;")].concat();
    let styles = [
        (44, code),
        (43, font(8)),
        (43, font(9)),
        (45, [0; 68].to_vec()),
        (617, 4_u32.to_le_bytes().to_vec()),
        (47, cell_format(0, 0, 0)),
        (47, cell_format(170, 0, 0)),
        (47, cell_format(10, 0, 0)),
        (47, cell_format(0, 1, 0)),
        (618, Vec::new()),
    ];
    let columns = [
        &1_u32.to_le_bytes()[..],
        &1_u32.to_le_bytes(),
        &[0; 8],
        &1_u16.to_le_bytes(),
    ];
    let rows = [
        (0, row(0, 0)),
        (6, styled(0, 0, &wide("seen"))),
        (6, styled(1, 0, &wide("in a hidden column"))),
        (6, styled(2, 1, &wide("of no format"))),
        (5, styled(3, 2, &0.123_456_f64.to_le_bytes())),
        (6, styled(4, 3, &wide("white"))),
        (0, row(1, 0x10)),
        (6, styled(0, 0, &wide("in a hidden row"))),
        (0, row(2, 0x20)),
        (6, styled(0, 0, &wide("in a row without a height"))),
    ];
    let before = [(390, Vec::new()), (60, columns.concat()), (391, Vec::new())];
    let conversion = converted(XLSB, &xlsb_with(0, &before, &rows, &styles));
    assert_eq!(
        conversion.markdown,
        "## Binary\n\n| seen | 12.35% |\n|---|---|\n"
    );
    assert_eq!(conversion.warnings, ["hidden content dropped: 5 cells"]);
}

#[test]
fn a_binary_workbook_may_define_its_palette() {
    let mut styles = vec![
        (43, font(8)),
        (43, font(16)),
        (45, [0; 68].to_vec()),
        (617, 2_u32.to_le_bytes().to_vec()),
        (47, cell_format(0, 0, 0)),
        (47, cell_format(0, 1, 0)),
        (618, Vec::new()),
        (565, Vec::new()),
    ];
    // Dark red in the default palette, white in this one.
    styles.extend((0..64).map(|index| {
        let level = if index == 16 { 0xFF } else { 0 };
        (475, vec![level, level, level, 0xFF])
    }));
    styles.push((566, Vec::new()));
    let rows = [
        (0, 0_u32.to_le_bytes().to_vec()),
        (
            6,
            [&0_u32.to_le_bytes()[..], &[0; 4], &wide("seen")].concat(),
        ),
        (
            6,
            [&1_u32.to_le_bytes()[..], &[1, 0, 0, 0], &wide("secret")].concat(),
        ),
    ];
    let conversion = converted(XLSB, &xlsb_with(0, &[], &rows, &styles));
    assert_eq!(conversion.markdown, "## Binary\n\n| seen |\n|---|\n");
    assert_eq!(conversion.warnings, ["hidden content dropped: 1 cell"]);
}

/// An OLE2 file with a stream of old records.
fn xls(cells: &[(u16, u16)]) -> Vec<u8> {
    let cells: Vec<(u16, u16, u16)> = cells
        .iter()
        .map(|(row, column)| (*row, *column, 0))
        .collect();
    xls_with(&[], &cells)
}

/// Like [`xls`], with records before the sheet; each cell has a style.
fn xls_with(records: &[(u16, Vec<u8>)], cells: &[(u16, u16, u16)]) -> Vec<u8> {
    xls_of_records(records, cells, &[])
}

/// Like [`xls_with`], with records after the cells.
fn xls_of_records(
    records: &[(u16, Vec<u8>)],
    cells: &[(u16, u16, u16)],
    after: &[(u16, Vec<u8>)],
) -> Vec<u8> {
    let put = |out: &mut Vec<u8>, kind: u16, data: &[u8]| {
        out.extend(kind.to_le_bytes());
        out.extend(u16::try_from(data.len()).unwrap().to_le_bytes());
        out.extend(data);
    };
    let begin = [0x00, 0x06, 0x05, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut stream = Vec::new();
    put(&mut stream, 0x809, &begin);
    for (kind, data) in records {
        put(&mut stream, *kind, data);
    }
    let place = stream.len() + 4 + 11 + 4;
    let mut sheet = u32::try_from(place).unwrap().to_le_bytes().to_vec();
    sheet.extend([0, 0, 3, 0, b'O', b'l', b'd']);
    put(&mut stream, 0x85, &sheet);
    put(&mut stream, 0x0A, &[]);
    put(&mut stream, 0x809, &begin);
    // The sheet claims more rows than the memory limit allows.
    put(
        &mut stream,
        0x200,
        &[0, 0, 0, 0, 255, 255, 255, 127, 0, 0, 0, 1, 0, 0],
    );
    for (row, column, style) in cells {
        let mut cell = row.to_le_bytes().to_vec();
        cell.extend(column.to_le_bytes());
        cell.extend(style.to_le_bytes());
        cell.extend(7.5_f64.to_le_bytes());
        put(&mut stream, 0x203, &cell);
    }
    for (kind, data) in after {
        put(&mut stream, *kind, data);
    }
    put(&mut stream, 0x0A, &[]);
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream("/Workbook")
        .unwrap()
        .write_all(&stream)
        .unwrap();
    file.flush().unwrap();
    file.into_inner().into_inner()
}

#[test]
fn far_cells_of_an_old_workbook_are_shown_without_the_empty_cells_between() {
    assert_eq!(
        markdown(XLS, &xls(&[(1, 1), (1, 2)])),
        "## Old\n\n| 7.5 | 7.5 |\n|---|---|\n"
    );
    let far = xls(&[(0, 0), (65_535, 255), (65_535, 0), (3, 255)]);
    let conversion = converted(XLS, &far);
    assert_eq!(conversion.failure, None);
    assert_eq!(
        conversion.markdown,
        "## Old\n\n| 7.5 |  |\n|---|---|\n|  |  |\n|  |  |\n|  | 7.5 |\n|  |  |\n| 7.5 | 7.5 |\n"
    );
}

/// The records of a shape with a text: its type and id, the length of the text, and the text in two parts.
fn text_shape(kind: u8, id: u8, parts: [&str; 2]) -> Vec<(u16, Vec<u8>)> {
    let mut text = vec![0; 18];
    text[10] = u8::try_from(parts.concat().chars().count()).unwrap();
    let wide: Vec<u8> = parts[0].encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        (0x5D, vec![0x15, 0, 0x12, 0, kind, 0, id, 0]),
        (0x1B6, text),
        (0x3C, [&[1][..], &wide].concat()),
        (0x3C, [&[0][..], parts[1].as_bytes()].concat()),
        (0x3C, vec![0; 16]),
    ]
}

#[test]
fn comments_of_an_old_workbook_have_cell_author_and_text() {
    let note = (
        0x1C,
        [&[2, 0, 1, 0, 0, 0, 9, 0, 3, 0, 0][..], b"Ann"].concat(),
    );
    let records = [text_shape(0x19, 9, ["größer ", "than?"]), vec![note]].concat();
    let conversion = converted(XLS, &xls_of_records(&[], &[(0, 0, 0)], &records));
    assert_eq!(
        conversion.markdown,
        "## Old\n\n| 7.5 |\n|---|\n\n- B3: Ann: größer than?\n"
    );
    assert!(conversion.warnings.is_empty(), "{:?}", conversion.warnings);
    let with_box = xls_of_records(&[], &[(0, 0, 0)], &text_shape(6, 9, ["box", ""]));
    assert_eq!(
        converted(XLS, &with_box).warnings,
        ["text boxes of XLS are not shown"]
    );
}

#[test]
fn cells_of_an_old_workbook_without_visible_text_are_hidden_cells() {
    // Number format, font, and the pattern and colour of the fill.
    let format = |font: u16, code: u16, pattern: u32, color: u16| {
        let mut out = [font.to_le_bytes(), code.to_le_bytes()].concat();
        out.extend([0; 10]);
        out.extend((pattern << 26).to_le_bytes());
        out.extend(color.to_le_bytes());
        out
    };
    let font = |color: u16| [&[0; 4][..], &color.to_le_bytes(), &[0; 10]].concat();
    let code = |id: u16, code: &str| {
        let length = u16::try_from(code.len()).unwrap();
        [
            &id.to_le_bytes()[..],
            &length.to_le_bytes(),
            &[0],
            code.as_bytes(),
        ]
        .concat()
    };
    let records = [
        (0x31, font(0x7FFF)),
        (0x31, font(9)),
        (0x41E, code(170, ";;;")),
        (0x41E, code(171, "0.00 \"m\"")),
        (0xE0, format(0, 0, 0, 0)),
        (0xE0, format(0, 170, 0, 0)),
        (0xE0, format(1, 0, 0, 0)),
        (0xE0, format(0, 171, 0, 0)),
        // White on dark blue.
        (0xE0, format(1, 171, 1, 18)),
    ];
    let cells = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4)];
    let conversion = converted(XLS, &xls_with(&records, &cells));
    assert_eq!(
        conversion.markdown,
        "## Old\n\n| 7.5 | 7.50 m | 7.50 m |\n|---|---|---|\n"
    );
    assert_eq!(conversion.warnings, ["hidden content dropped: 2 cells"]);
}
