//! Container formats.

use super::build::{entry, iso_box, ogg};
use super::*;

#[test]
fn office_documents_are_known_by_their_parts() {
    for (part, document, extension) in [
        ("word/document.xml", DocumentKind::Docx, "docx"),
        ("xl/workbook.xml", DocumentKind::Xlsx, "xlsx"),
        ("ppt/presentation.xml", DocumentKind::Pptx, "pptx"),
    ] {
        let bytes = zip(&[
            ("[Content_Types].xml", b"<Types/>"),
            ("_rels/.rels", b""),
            (part, b"x"),
        ]);
        let found = whole(&bytes, "anything.bin");
        assert_eq!(
            (found.kind, found.extension),
            (ContentKind::Document(document), Some(extension))
        );
    }
}

#[test]
fn entries_with_a_data_descriptor_are_walked() {
    let bytes = [
        entry("[Content_Types].xml", b"<Types/>", 8),
        entry("xl/workbook.xml", b"x", 8),
    ]
    .concat();
    assert_eq!(kind(&bytes, "a"), ContentKind::Document(DocumentKind::Xlsx));
}

#[test]
fn the_name_selects_the_office_format_when_the_parts_are_after_the_head() {
    let bytes = zip(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("docProps/thumbnail.jpeg", b"x"),
    ]);
    assert_eq!(
        kind(&bytes, "a.pptx"),
        ContentKind::Document(DocumentKind::Pptx)
    );
    assert_eq!(
        kind(&bytes, "a.zip"),
        ContentKind::Archive(ArchiveKind::Zip)
    );
    // Without the content types the name proves nothing.
    assert_eq!(
        kind(&zip(&[("a.txt", b"x")]), "a.docx"),
        ContentKind::Archive(ArchiveKind::Zip)
    );
}

#[test]
fn an_archive_that_contains_a_document_stays_an_archive() {
    let inner = zip(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("word/document.xml", b"x"),
    ]);
    assert_eq!(
        kind(&zip(&[("letter.docx", &inner)]), "a.zip"),
        ContentKind::Archive(ArchiveKind::Zip)
    );
}

#[test]
fn open_documents_and_books_are_recognised_by_their_first_member() {
    for (media_type, document) in [
        ("application/epub+zip", DocumentKind::Epub),
        ("application/vnd.oasis.opendocument.text", DocumentKind::Odt),
        (
            "application/vnd.oasis.opendocument.spreadsheet",
            DocumentKind::Ods,
        ),
        (
            "application/vnd.oasis.opendocument.presentation",
            DocumentKind::Odp,
        ),
        (
            "application/vnd.oasis.opendocument.graphics",
            DocumentKind::Other,
        ),
    ] {
        let bytes = zip(&[("mimetype", media_type.as_bytes()), ("content.xml", b"x")]);
        assert_eq!(
            kind(&bytes, "a"),
            ContentKind::Document(document),
            "{media_type}"
        );
    }
    // Only the first entry counts.
    let late = zip(&[("a", b"x"), ("mimetype", b"application/epub+zip")]);
    assert_eq!(
        kind(&late, "a.epub"),
        ContentKind::Archive(ArchiveKind::Zip)
    );
}

#[test]
fn packages_and_archives_are_known() {
    let cases: [(Vec<u8>, ArchiveKind); 9] = [
        (
            zip(&[
                ("AndroidManifest.xml", b"x"),
                ("META-INF/MANIFEST.MF", b"x"),
            ]),
            ArchiveKind::Apk,
        ),
        (zip(&[("META-INF/MANIFEST.MF", b"x")]), ArchiveKind::Jar),
        (b"PK\x05\x06\0\0".to_vec(), ArchiveKind::Zip),
        (b"\x1F\x8B\x08\0".to_vec(), ArchiveKind::Gzip),
        (b"BZh91AY&SY\x80".to_vec(), ArchiveKind::Bzip2),
        (b"\xFD7zXZ\0\0".to_vec(), ArchiveKind::Xz),
        (b"7z\xBC\xAF\x27\x1C".to_vec(), ArchiveKind::SevenZip),
        (b"Rar!\x1A\x07\x01\0".to_vec(), ArchiveKind::Rar),
        (
            [vec![b'a'; 257], b"ustar\0".to_vec()].concat(),
            ArchiveKind::Tar,
        ),
    ];
    for (bytes, archive) in cases {
        assert_eq!(kind(&bytes, "x"), ContentKind::Archive(archive));
    }
}

#[test]
fn an_archive_from_before_posix_is_recognised_by_its_checksum() {
    let mut header = vec![0; 512];
    header[..5].copy_from_slice(b"a.txt");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    assert_eq!(kind(&header, "x"), ContentKind::Archive(ArchiveKind::Tar));
    header[0] = b'b';
    assert_eq!(kind(&header, "x"), ContentKind::Binary);
}

#[test]
fn opus_is_distinguished_from_other_ogg_with_its_channels() {
    assert_eq!(
        kind(&ogg(b"OpusHead\x01\x01\x38\x01"), "v.ogg"),
        ContentKind::Audio(AudioKind::OggOpus { channels: 1 })
    );
    assert_eq!(
        kind(&ogg(b"\x01vorbis\0"), "v.ogg"),
        ContentKind::Audio(AudioKind::OggOther)
    );
    assert_eq!(
        kind(&ogg(b"\x80theora\x03"), "v.ogg"),
        ContentKind::Video(VideoKind::Ogg)
    );
    assert!(whole(&ogg(b"\x01vorbis\0"), "v.opus").disagrees);
    assert_eq!(
        kind(b"OggS", "v.ogg"),
        ContentKind::Audio(AudioKind::OggOther)
    );
}

#[test]
fn brands_distinguish_video_audio_and_images() {
    for (brands, expected) in [
        (
            "isom\0\0\0\0isomiso2avc1mp41",
            ContentKind::Video(VideoKind::Mp4(VideoCodec::Unknown)),
        ),
        (
            "mp42\0\0\0\0isommp42",
            ContentKind::Video(VideoKind::Mp4(VideoCodec::Unknown)),
        ),
        ("mp42\0\0\0\0M4A mp42", ContentKind::Audio(AudioKind::M4a)),
        ("M4A \0\0\0\0", ContentKind::Audio(AudioKind::M4a)),
        ("qt  \0\0\0\0qt  ", ContentKind::Video(VideoKind::Quicktime)),
        ("3gp4\0\0\0\0isom", ContentKind::Video(VideoKind::ThreeGp)),
        ("heic\0\0\0\0mif1", ContentKind::Image(ImageKind::Heic)),
        ("mif1\0\0\0\0mif1heic", ContentKind::Image(ImageKind::Heic)),
        ("mif1\0\0\0\0mif1avif", ContentKind::Image(ImageKind::Avif)),
        ("avif\0\0\0\0", ContentKind::Image(ImageKind::Avif)),
    ] {
        assert_eq!(
            kind(&iso_box(b"ftyp", brands.as_bytes()), "x"),
            expected,
            "{brands:?}"
        );
    }
    assert_eq!(
        kind(&iso_box(b"moov", b"\0\0\0\0"), "x"),
        ContentKind::Video(VideoKind::Quicktime)
    );
    assert_eq!(
        kind(&iso_box(b"wide", b"\x80"), "x"),
        ContentKind::Video(VideoKind::Quicktime)
    );
}

#[test]
fn the_video_codec_is_read_if_the_index_comes_first() {
    let film = |codes: &[&[u8]]| {
        let tracks: Vec<u8> = codes
            .iter()
            .flat_map(|code| {
                iso_box(
                    b"stsd",
                    &[b"\0\0\0\0\0\0\0\x01\0\0\0\x56".as_slice(), code, &[0; 70]].concat(),
                )
            })
            .collect();
        [iso_box(b"ftyp", b"isom\0\0\0\0"), iso_box(b"moov", &tracks)].concat()
    };
    for (codes, codec) in [
        (vec![b"mp4a".as_slice(), b"avc1"], VideoCodec::H264),
        (vec![b"hvc1".as_slice(), b"mp4a"], VideoCodec::Other),
        (vec![b"mp4a".as_slice()], VideoCodec::Unknown),
        (vec![], VideoCodec::Unknown),
    ] {
        assert_eq!(
            kind(&film(&codes), "x.mp4"),
            ContentKind::Video(VideoKind::Mp4(codec))
        );
    }
}

#[test]
fn webm_is_distinguished_from_matroska() {
    let header = |kind: &[u8]| {
        [
            b"\x1A\x45\xDF\xA3\x9F\x42\x86\x81\x01\x42\x82".as_slice(),
            kind,
        ]
        .concat()
    };
    assert_eq!(
        kind(&header(b"\x84webm"), "x"),
        ContentKind::Video(VideoKind::Webm)
    );
    assert_eq!(
        kind(&header(b"\x88matroska"), "x"),
        ContentKind::Video(VideoKind::Matroska)
    );
    assert_eq!(
        kind(b"\x1A\x45\xDF\xA3", "x"),
        ContentKind::Video(VideoKind::Matroska)
    );
}

#[test]
fn webp_has_dimensions_in_all_its_forms() {
    let riff = |chunk: &[u8]| [b"RIFF\0\0\0\0WEBP".as_slice(), chunk].concat();
    let extended = |flags: u8| {
        riff(
            &[
                b"VP8X\x0A\0\0\0".as_slice(),
                &[flags, 0, 0, 0, 9, 0, 0, 19, 0, 0],
            ]
            .concat(),
        )
    };
    let lossless = riff(b"VP8L\0\0\0\0\x2F\x09\xC0\x04\0");
    let lossy = riff(b"VP8 \0\0\0\0\0\0\0\x9D\x01\x2A\x0A\0\x14\0");
    for (bytes, animated) in [
        (extended(0), false),
        (extended(2), true),
        (lossless, false),
        (lossy, false),
    ] {
        let found = whole(&bytes, "x.webp");
        assert_eq!(
            (found.kind, found.dimensions),
            (
                ContentKind::Image(ImageKind::Webp { animated }),
                Some((10, 20))
            )
        );
    }
    assert_eq!(
        kind(b"RIFF\0\0\0\0AVI LIST", "x"),
        ContentKind::Video(VideoKind::Avi)
    );
}
