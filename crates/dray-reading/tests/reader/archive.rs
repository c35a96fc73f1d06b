//! Archives through the complete tool: the listing, a file of an archive, and every refusal.

use std::io::{Cursor, Write as _};

use dray_documents::classify::Kind;
use dray_reading::policy::Policy;
use dray_reading::record::{Code, Outcome};
use dray_reading::request::Request;
use zip::write::SimpleFileOptions;

use super::fixture::{ReaderFixture, read, unframe};

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        archive
            .start_file(*name, SimpleFileOptions::default())
            .unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn sample() -> Vec<u8> {
    archive(&[
        ("docs/table.csv", b"a,b\n1,2\n"),
        ("empty.txt", b""),
        ("tool.exe", b"\x7fELF\x02\x01\x01"),
        ("broken.pdf", b"%PDF-1.7 words"),
    ])
}

fn of(member: &str) -> Request {
    Request {
        member: Some(member.to_owned()),
        ..Request::of_path("a.zip")
    }
}

#[tokio::test]
async fn an_archive_is_listed_and_a_file_of_it_is_read() {
    let fixture = ReaderFixture::with(&[("a.zip", &sample())]);
    let listing = fixture.read("a.zip").await;
    let (header, body) = unframe(&listing.output);
    assert!(
        header.starts_with("[Read attachment: a.zip (application/zip), converted to Markdown]")
    );
    assert!(body.contains("| docs/table.csv | file | 8 |"), "{body}");
    assert_eq!(
        (listing.outcome, listing.kind),
        (Outcome::Inline, Some(Kind::Archive))
    );

    let reader = fixture.reader(Policy::default());
    let record = read(&reader, &of("docs/table.csv")).await;
    let (header, body) = unframe(&record.output);
    assert!(
        header.starts_with(
            "[Read attachment: a.zip!/docs/table.csv (text/csv), converted to Markdown]"
        )
    );
    assert_eq!(body, "| a | b |\n|---|---|\n| 1 | 2 |");
    assert_eq!(record.path.as_deref(), Some("a.zip!/docs/table.csv"));
    assert_eq!(
        (record.mime.as_deref(), record.size_bytes),
        (Some("text/csv"), Some(8))
    );

    let by_search = Request {
        find: Some("2".to_owned()),
        ..of("docs/table.csv")
    };
    assert!(
        unframe(&read(&reader, &by_search).await.output)
            .1
            .contains("| 1 | 2 |")
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_refused_with_its_own_message() {
    let fixture = ReaderFixture::with(&[("a.zip", &sample()), ("b.txt", b"words")]);
    let reader = fixture.reader(Policy::default());
    let missing = read(&reader, &of("docs/x]y.csv")).await;
    assert_eq!(
        missing.output,
        "Error: a.zip holds no file 'docs/x\\u{5d}y.csv'. Read it without `member` for the list of its files."
    );
    assert_eq!(
        (missing.outcome, missing.error_code),
        (Outcome::Refuse, Some(Code::MemberNotFound))
    );
    let binary = read(&reader, &of("tool.exe")).await;
    assert!(
        binary
            .output
            .starts_with("Error: a.zip!/tool.exe is a binary (application/x-executable);")
    );
    assert_eq!(binary.error_code, Some(Code::KindNotAllowed));
    let empty = read(&reader, &of("empty.txt")).await;
    assert_eq!(
        (empty.outcome, empty.error_code),
        (Outcome::Note, Some(Code::Empty))
    );
    let broken = read(&reader, &of("broken.pdf")).await;
    assert_eq!(
        (broken.outcome, broken.error_code),
        (Outcome::Hint, Some(Code::Corrupt))
    );
    assert!(
        broken.output.contains("Unpack it from the archive"),
        "{}",
        broken.output
    );
    let text = Request {
        file_path: Some("b.txt".to_owned()),
        ..of("x")
    };
    let text = read(&reader, &text).await;
    assert_eq!(
        (text.outcome, text.error_code),
        (Outcome::Refuse, Some(Code::NotAnArchive))
    );
    assert!(
        text.output
            .starts_with("Error: b.txt is a text (text/plain), not an archive")
    );
}

#[tokio::test]
async fn a_kind_that_is_not_allowed_stays_refused_within_an_archive() {
    let fixture = ReaderFixture::with(&[("a.zip", &sample())]);
    let archives = Policy {
        allow_kinds: vec![Kind::Archive],
        ..Policy::default()
    };
    let record = read(&fixture.reader(archives), &of("docs/table.csv")).await;
    assert_eq!(record.error_code, Some(Code::KindNotAllowed));
    assert!(!record.output.contains('1'), "{}", record.output);
    let documents = Policy {
        allow_kinds: vec![Kind::Document, Kind::Text],
        ..Policy::default()
    };
    let record = read(&fixture.reader(documents), &of("docs/table.csv")).await;
    assert_eq!(
        (record.error_code, record.kind),
        (Some(Code::KindNotAllowed), Some(Kind::Archive))
    );
}

#[tokio::test]
async fn a_bomb_ends_with_its_limit_and_names_that_lead_out_are_never_written() {
    let bomb = archive(&[("../out.txt", &vec![b'0'; 8 << 20])]);
    let fixture = ReaderFixture::with(&[("a.zip", &bomb)]);
    let reader = fixture.reader(Policy::default());
    let record = read(&reader, &of("../out.txt")).await;
    assert_eq!(
        (record.outcome, record.error_code),
        (Outcome::Hint, Some(Code::LimitExceeded))
    );
    assert!(
        record
            .output
            .starts_with("Conversion stopped: compression ratio limit reached.")
    );
    let listing = read(&reader, &Request::of_path("a.zip")).await;
    assert!(listing.output.contains("| ../out.txt |"));
    let beside: Vec<_> = std::fs::read_dir(fixture.outside()).unwrap().collect();
    assert_eq!(beside.len(), 1, "only the workspace itself");
}
