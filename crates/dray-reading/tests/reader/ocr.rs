//! The text of scans and pictures, by the real program, and what is reported without it.

use std::io::{Cursor, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use dray_reading::ocr::OcrSettings;
use dray_reading::policy::Policy;
use dray_reading::reader::Reader;
use dray_reading::record::{Code, Outcome};
use dray_reading::request::Request;
use zip::write::SimpleFileOptions;

use super::fixture::{ReaderFixture, read, unframe};

/// `Invoice number 4711` and `The quick brown fox jumps`, 1000 by 300 pixels, as a TIFF file with one strip (Group 4).
const SCAN_TIFF: &[u8] = include_bytes!("../data/scan.tif");

/// Only the image strip, which a PDF can contain unchanged.
fn strip() -> &'static [u8] {
    let number = |at: usize, bytes: usize| {
        let little_endian = SCAN_TIFF.get(at..at + bytes).unwrap();
        little_endian
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let directory = number(4, 4);
    let value = |tag: usize| {
        let entries = (0..number(directory, 2)).map(|at| directory + 2 + 12 * at);
        let entry = entries
            .clone()
            .find(|entry| number(*entry, 2) == tag)
            .unwrap();
        number(entry + 8, 4)
    };
    SCAN_TIFF.get(value(273)..value(273) + value(279)).unwrap()
}

/// A PDF of pages, each with the content and the `XObjects` given.
fn pdf(pages: &[(&str, &str)], stream: &[u8], filter: &str) -> Vec<u8> {
    let mut objects: Vec<Vec<u8>> = vec![b"<< /Type /Catalog /Pages 2 0 R >>".to_vec()];
    let kids: Vec<String> = (0..pages.len())
        .map(|at| format!("{} 0 R", 5 + 2 * at))
        .collect();
    let kids = format!(
        "<< /Type /Pages /Kids [{}] /Count {} >>",
        kids.join(" "),
        pages.len()
    );
    objects.push(kids.into_bytes());
    objects.push(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_vec());
    let image = format!(
        "<< /Type /XObject /Subtype /Image /Width 1000 /Height 300 /BitsPerComponent 1 /ColorSpace /DeviceGray \
         /Filter /{filter} /DecodeParms << /K -1 /Columns 1000 /Rows 300 >> /Length {} >>\nstream\n",
        stream.len()
    );
    objects.push([image.as_bytes(), stream, b"\nendstream"].concat());
    for (at, (content, resources)) in pages.iter().enumerate() {
        let page = format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {} 0 R /Resources << /Font << /F 3 0 R >> {resources} >> >>",
            6 + 2 * at
        );
        objects.push(page.into_bytes());
        let content = format!(
            "<< /Length {} >>\nstream\n{content}\nendstream",
            content.len()
        );
        objects.push(content.into_bytes());
    }
    let mut file = b"%PDF-1.7\n".to_vec();
    let mut places = Vec::new();
    for (at, object) in objects.iter().enumerate() {
        places.push(file.len());
        writeln!(file, "{} 0 obj", at + 1).unwrap();
        file.extend_from_slice(object);
        file.extend_from_slice(b"\nendobj\n");
    }
    let start = file.len();
    write!(file, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).unwrap();
    for offset in places {
        writeln!(file, "{offset:010} 00000 n ").unwrap();
    }
    write!(
        file,
        "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n",
        objects.len() + 1
    )
    .unwrap();
    file
}

const TEXT_PAGE: (&str, &str) = ("BT /F 12 Tf 50 700 Td (Words of the cover page) Tj ET", "");
const PICTURE_PAGE: (&str, &str) = ("q 580 0 0 700 10 50 cm /I Do Q", "/XObject << /I 4 0 R >>");

fn scan() -> Vec<u8> {
    pdf(
        &[TEXT_PAGE, PICTURE_PAGE, TEXT_PAGE],
        strip(),
        "CCITTFaxDecode",
    )
}

fn reader(fixture: &ReaderFixture, settings: OcrSettings) -> Reader {
    fixture.reader(Policy::default()).with_ocr(settings)
}

fn by_program(program: &str) -> OcrSettings {
    OcrSettings {
        program: Some(program.into()),
        ..OcrSettings::default()
    }
}

/// A program of this text in the workspace.
fn script(fixture: &ReaderFixture, text: &str) -> OcrSettings {
    let path = fixture.root.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    by_program(path.to_str().unwrap())
}

#[tokio::test]
async fn a_scanned_page_is_read_in_its_place() {
    let fixture = ReaderFixture::with(&[("scan.pdf", &scan())]);
    let reader = reader(&fixture, OcrSettings::default());
    let record = read(&reader, &Request::of_path("scan.pdf")).await;
    assert_eq!(
        unframe(&record.output).1,
        "Words of the cover page\n\n\
         _(page 2 is a picture; its text was recognised by OCR and may have errors)_\n\n\
         Invoice number 4711 The quick brown fox jumps\n\nWords of the cover page"
    );
    assert_eq!(
        (record.outcome, record.error_code, record.truncated),
        (Outcome::Inline, None, false)
    );
    let of_page = Request {
        range: Some("page 3".to_owned()),
        ..Request::of_path("scan.pdf")
    };
    assert_eq!(
        unframe(&read(&reader, &of_page).await.output).1,
        "Words of the cover page"
    );
    let find = Request {
        find: Some("4711".to_owned()),
        ..Request::of_path("scan.pdf")
    };
    assert!(read(&reader, &find).await.output.contains("page 2"));
}

#[tokio::test]
async fn a_picture_is_read_even_within_an_archive() {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    archive
        .start_file("in/scan.tif", SimpleFileOptions::default())
        .unwrap();
    archive.write_all(SCAN_TIFF).unwrap();
    let archive = archive.finish().unwrap().into_inner();
    let fixture = ReaderFixture::with(&[("scan.tif", SCAN_TIFF), ("a.zip", &archive)]);
    let reader = reader(&fixture, OcrSettings::default());
    let member = Request {
        member: Some("in/scan.tif".to_owned()),
        ..Request::of_path("a.zip")
    };
    for request in [Request::of_path("scan.tif"), member] {
        let record = read(&reader, &request).await;
        assert_eq!(
            unframe(&record.output).1,
            "_(this file is a picture; its text was recognised by OCR and may have errors)_\n\n\
             Invoice number 4711 The quick brown fox jumps"
        );
        assert_eq!(record.mime.as_deref(), Some("image/tiff"));
    }
}

#[tokio::test]
async fn without_tesseract_the_result_names_the_package_to_install() {
    let fixture = ReaderFixture::with(&[
        ("scan.pdf", &scan()),
        ("only.pdf", &pdf(&[PICTURE_PAGE], strip(), "CCITTFaxDecode")),
        ("scan.tif", SCAN_TIFF),
    ]);
    let reader = reader(&fixture, by_program("/nowhere/tesseract"));
    let record = read(&reader, &Request::of_path("scan.pdf")).await;
    assert!(record.output.contains(
        "page\n\n_(page 2 is a picture; OCR is not available: install tesseract-ocr)_\n\nWords"
    ));
    assert!(record.warnings[0].starts_with("OCR is not available here: install tesseract-ocr"));
    let record = read(&reader, &Request::of_path("only.pdf")).await;
    assert_eq!(
        (record.outcome, record.error_code),
        (Outcome::Note, Some(Code::NoText))
    );
    assert!(
        record
            .output
            .contains("_(OCR is not available here: install tesseract-ocr")
    );
    let record = read(&reader, &Request::of_path("scan.tif")).await;
    assert_eq!(
        (record.outcome, record.error_code),
        (Outcome::Refuse, Some(Code::KindNotAllowed))
    );
    assert!(
        record
            .output
            .contains("OCR is not available here: install tesseract-ocr")
    );
}

#[tokio::test]
async fn a_missing_language_is_named() {
    let fixture = ReaderFixture::with(&[("scan.pdf", &scan())]);
    let settings = OcrSettings {
        languages: "tlh".to_owned(),
        ..OcrSettings::default()
    };
    let record = read(&reader(&fixture, settings), &Request::of_path("scan.pdf")).await;
    assert!(
        record
            .output
            .contains("OCR is not available: install the data of its languages"),
        "{}",
        record.output
    );
}

#[tokio::test]
async fn without_ocr_pictures_are_not_read() {
    let fixture = ReaderFixture::with(&[
        ("only.pdf", &pdf(&[PICTURE_PAGE], strip(), "CCITTFaxDecode")),
        ("scan.tif", SCAN_TIFF),
    ]);
    let record = fixture.read("only.pdf").await;
    assert_eq!(
        unframe(&record.output).1,
        "_(No extractable text found in this PDF -- it may be scanned or image-only. No OCR is performed in-process.)_"
    );
    assert_eq!(
        fixture.read("scan.tif").await.error_code,
        Some(Code::KindNotAllowed)
    );
}

#[tokio::test]
async fn an_endless_ocr_program_is_ended_and_the_text_is_marked() {
    let fixture = ReaderFixture::with(&[("scan.pdf", &scan())]);
    let settings = OcrSettings {
        timeout: Duration::from_millis(300),
        ..script(&fixture, "while :; do :; done")
    };
    let record = read(&reader(&fixture, settings), &Request::of_path("scan.pdf")).await;
    assert!(
        record
            .output
            .contains("_(page 2 is a picture; the time for OCR ended before it was read")
    );
    assert!(record.truncated);
}

#[tokio::test]
async fn pictures_beyond_the_limit_are_marked_as_not_recognised() {
    let pages = pdf(
        &[PICTURE_PAGE, PICTURE_PAGE, PICTURE_PAGE],
        strip(),
        "CCITTFaxDecode",
    );
    let fixture = ReaderFixture::with(&[("scan.pdf", &pages)]);
    let settings = OcrSettings {
        max_pictures: 2,
        ..script(&fixture, "echo recognised words")
    };
    let record = read(&reader(&fixture, settings), &Request::of_path("scan.pdf")).await;
    assert_eq!(
        record.output.matches("\nrecognised words\n").count(),
        2,
        "{}",
        record.output
    );
    assert!(
        record
            .output
            .contains("_(page 3 is a picture; the limit of pictures was reached before it")
    );
    assert!(record.truncated);
}

#[tokio::test]
async fn the_program_reads_nothing_of_its_user_and_writes_nothing() {
    let fixture = ReaderFixture::with(&[("scan.tif", SCAN_TIFF), ("secret", b"secret words\n")]);
    let secret = fixture.root.join("secret");
    let written = fixture.root.join("written");
    let text = format!(
        "echo before\nread line < {} && echo leaked $line\necho x > {}\necho after",
        secret.display(),
        written.display()
    );
    let record = read(
        &reader(&fixture, script(&fixture, &text)),
        &Request::of_path("scan.tif"),
    )
    .await;
    assert!(record.output.contains("before"), "{}", record.output);
    assert!(!record.output.contains("leaked"), "{}", record.output);
    assert!(!Path::new(&written).exists());
}

/// Tesseract interprets input that is not a picture as a list of files to open.
#[tokio::test]
async fn names_of_files_in_the_place_of_a_picture_are_never_handed_over() {
    let list = pdf(
        &[TEXT_PAGE, PICTURE_PAGE],
        b"/etc/hostname\nhttp://127.0.0.1/x.png\n",
        "DCTDecode",
    );
    let fixture = ReaderFixture::with(&[("list.pdf", &list)]);
    let settings = script(&fixture, "echo program ran");
    let record = read(&reader(&fixture, settings), &Request::of_path("list.pdf")).await;
    assert!(!record.output.contains("program ran"), "{}", record.output);
    assert_eq!(
        record.warnings,
        ["page 2 is a picture of a kind whose text cannot be recognised"]
    );
}
