//! Tests of detection by content: each format, text that resembles a format, and arbitrary bytes.

use proptest::prelude::*;

use super::*;

mod build;
mod containers;

use build::{gif, mp3_frame, png, zip};

/// Detects the kind of a file from all of its bytes.
fn whole(bytes: &[u8], name: &str) -> DetectedKind {
    detect_kind(bytes, name, u64::try_from(bytes.len()).unwrap())
}

fn kind(bytes: &[u8], name: &str) -> ContentKind {
    whole(bytes, name).kind
}

/// Bytes of an image, and the expected kind, media type and dimensions.
type Case<'bytes> = (&'bytes [u8], ImageKind, &'static str, Option<(u32, u32)>);

#[test]
fn images_are_detected_with_their_dimensions() {
    let jpeg = [
        b"\xFF\xD8\xFF\xE0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".as_slice(),
        b"\xFF\xFF\xC2\0\x11\x08\x01\x02\x03\x04\x03",
    ]
    .concat();
    let bmp = [
        b"BM".as_slice(),
        &[0; 8],
        &54_u32.to_le_bytes(),
        &40_u32.to_le_bytes(),
        &7_i32.to_le_bytes(),
        &(-9_i32).to_le_bytes(),
    ]
    .concat();
    let old_bmp = [
        b"BM".as_slice(),
        &[0; 8],
        &26_u32.to_le_bytes(),
        &12_u32.to_le_bytes(),
        &[3, 0, 4, 0],
    ]
    .concat();
    let cases: [Case<'_>; 6] = [
        (
            &png(640, 480),
            ImageKind::Png,
            "image/png",
            Some((640, 480)),
        ),
        (&jpeg, ImageKind::Jpeg, "image/jpeg", Some((0x304, 0x102))),
        (&bmp, ImageKind::Bmp, "image/bmp", Some((7, 9))),
        (&old_bmp, ImageKind::Bmp, "image/bmp", Some((3, 4))),
        (b"II*\0\x08\0\0\0", ImageKind::Tiff, "image/tiff", None),
        (b"MM\0*\0\0\0\x08", ImageKind::Tiff, "image/tiff", None),
    ];
    for (bytes, image, media_type, dimensions) in cases {
        let found = whole(bytes, "x");
        assert_eq!(
            (found.kind, found.media_type),
            (ContentKind::Image(image), media_type)
        );
        assert_eq!(found.dimensions, dimensions, "{image:?}");
    }
}

#[test]
fn a_jpeg_without_a_frame_header_has_no_dimensions() {
    for bytes in [
        b"\xFF\xD8\xFF".as_slice(),
        b"\xFF\xD8\xFF\xDA\0\x08",
        b"\xFF\xD8\xFF\xE1\xFF\xFFExif",
        b"\xFF\xD8\xFF\xE0\0\0",
    ] {
        let found = detect_kind(bytes, "x.jpg", 1 << 20);
        assert_eq!(
            (found.kind, found.dimensions),
            (ContentKind::Image(ImageKind::Jpeg), None)
        );
    }
}

#[test]
fn a_gif_is_animated_with_several_frames_or_a_loop_extension() {
    for (bytes, animated) in [
        (gif(1, false), false),
        (gif(2, false), true),
        (gif(1, true), true),
        (gif(0, false), false),
        (gif(2, false)[..20].to_vec(), false),
    ] {
        let found = detect_kind(&bytes, "x.gif", 1 << 20);
        assert_eq!(
            (found.kind, found.dimensions),
            (
                ContentKind::Image(ImageKind::Gif { animated }),
                Some((5, 6))
            )
        );
    }
}

#[test]
fn text_that_begins_like_magic_is_text() {
    for text in [
        "BM is a car maker, and so is Audi, Benz and others",
        "MZ was a president",
        "BZhello",
        "FORM of address",
        "GIF is a format",
        "PK is a wizard",
        "RIFF raff",
        "ID3 tags are",
        "%PD",
        "#!relative",
        "#! not a path",
        "the wide world",
    ] {
        let found = whole(text.as_bytes(), "a.txt");
        assert_eq!(
            (found.kind, found.media_type),
            (ContentKind::Text, "text/plain"),
            "{text}"
        );
        assert!(!found.disagrees);
    }
}

#[test]
fn the_file_name_selects_the_media_type_of_text() {
    for (name, media_type) in [
        ("a.md", "text/markdown"),
        ("a.CSV", "text/csv"),
        ("a.json", "application/json"),
        ("a.yml", "application/yaml"),
        ("a.vcf", "text/vcard"),
        ("a.toml", "application/toml"),
        ("a.py", "text/x-python"),
        ("a.unheardof", "text/plain"),
        ("Makefile", "text/plain"),
    ] {
        let found = whole("größe,1\n".as_bytes(), name);
        assert_eq!(
            (found.kind, found.media_type, found.disagrees),
            (ContentKind::Text, media_type, false),
            "{name}"
        );
    }
}

#[test]
fn a_character_that_is_cut_at_the_end_of_the_head_is_still_text() {
    let head = "é".as_bytes();
    assert_eq!(
        detect_kind(&[b"abc", &head[..1]].concat(), "a.txt", 5).kind,
        ContentKind::Text
    );
    assert_eq!(
        whole(&[b"abc", &head[..1]].concat(), "a.txt").kind,
        ContentKind::Binary
    );
    let long = [vec![b'a'; 8191], head.to_vec(), vec![0xFF; 9]].concat();
    assert_eq!(kind(&long, "a.txt"), ContentKind::Text);
    assert_eq!(kind(b"abc\0def", "a.txt"), ContentKind::Binary);
    assert_eq!(kind(b"caf\xE9 noir", "a.txt"), ContentKind::Binary);
}

#[test]
fn formats_that_can_hold_scripts_are_documents_by_content_and_by_name() {
    for text in [
        "<svg xmlns='x'/>",
        "\u{feff}<?xml version='1.0'?>\n<!-- made -->\n<svg:svg/>",
        "<!DOCTYPE svg PUBLIC '-//W3C//DTD SVG 1.1//EN' 'x'><svg/>",
        "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a '>'>]><svg>",
    ] {
        let found = whole(text.as_bytes(), "a.png");
        assert_eq!(
            (found.kind, found.media_type),
            (ContentKind::Document(DocumentKind::Svg), "image/svg+xml"),
            "{text}"
        );
        assert!(found.disagrees);
    }
    for text in [
        "<!doctype HTML>",
        " <html lang='de'>",
        "<!-- x --><script>",
        "<?xml version='1.0'?><html xmlns='x'>",
        "<P>hi",
    ] {
        assert_eq!(
            kind(text.as_bytes(), "a.txt"),
            ContentKind::Document(DocumentKind::Html),
            "{text}"
        );
    }
    assert_eq!(
        kind(b"just words", "a.svg"),
        ContentKind::Document(DocumentKind::Svg)
    );
    assert_eq!(
        kind(b"just words", "a.HTM"),
        ContentKind::Document(DocumentKind::Html)
    );
    assert_eq!(
        kind(b"\x1F\x8B\x08\0", "a.svgz"),
        ContentKind::Document(DocumentKind::Svg)
    );
    assert_eq!(kind(b"<?xml version='1.0'?><a/>", "x"), ContentKind::Text);
    assert_eq!(
        whole(b"<?xml version='1.0'?><a/>", "x").media_type,
        "application/xml"
    );
    assert_eq!(kind(b"<anything>", "x"), ContentKind::Text);
}

#[test]
fn programs_are_flagged_under_any_name() {
    let class = b"\xCA\xFE\xBA\xBE\0\0\0\x34\0".as_slice();
    let fat = b"\xCA\xFE\xBA\xBE\0\0\0\x02\0".as_slice();
    let cases: [(&[u8], ExecutableKind); 9] = [
        (b"\x7FELF\x02\x01\x01\0", ExecutableKind::Elf),
        (b"MZ\x90\0\x03\0", ExecutableKind::Pe),
        (b"\xCF\xFA\xED\xFE\x07\0\0\x01", ExecutableKind::MachO),
        (fat, ExecutableKind::MachO),
        (class, ExecutableKind::Other),
        (b"\0asm\x01\0\0\0", ExecutableKind::Other),
        (b"dex\n035\0", ExecutableKind::Other),
        (b"#!/bin/sh\nrm x\n", ExecutableKind::Script),
        (b"#! /usr/bin/env python3\n", ExecutableKind::Script),
    ];
    for (bytes, executable) in cases {
        let found = whole(bytes, "holiday.jpg");
        assert_eq!(
            (found.kind, found.disagrees),
            (ContentKind::Executable(executable), true)
        );
    }
    assert!(!whole(b"#!/bin/sh\n", "run.sh").disagrees);
    assert!(!whole(b"MZ\x90\0", "setup.exe").disagrees);
}

#[test]
fn a_class_is_distinguished_from_mach_o_by_the_oldest_class_version() {
    for (count, executable) in [
        (1, ExecutableKind::MachO),
        (44, ExecutableKind::MachO),
        (45, ExecutableKind::Other),
        // The minor version comes first: this is version 45.3.
        (0x0003_002D, ExecutableKind::Other),
        (65, ExecutableKind::Other),
    ] {
        let bytes = [b"\xCA\xFE\xBA\xBE".as_slice(), &u32::to_be_bytes(count)].concat();
        assert_eq!(
            kind(&bytes, "x"),
            ContentKind::Executable(executable),
            "{count}"
        );
    }
}

#[test]
fn printable_signatures_are_marked_so_that_text_may_win() {
    for (bytes, printable) in [
        (b"MZ\x90\0".as_slice(), true),
        (b"MZ was a president", true),
        (b"ID3 tags are", true),
        (b"RIFF raff", true),
        (b"BZh9", true),
        (b"FORM    AIFF", true),
        (b"RIFF\0\0\0\0WAVE", false),
        (b"\x7FELF", false),
        (b"\xCA\xFE\xBA\xBE", false),
    ] {
        let Some(Signature::Format(format)) = find_signature(bytes) else {
            panic!("no format in {bytes:?}");
        };
        assert_eq!(format.printable, printable, "{bytes:?}");
    }
    // The text begins like bzip2, whose fourth byte is a digit.
    assert_eq!(find_signature(b"BZhello"), None);
    assert_eq!(find_signature(b"the wide world"), None);
}

#[test]
fn audio_formats_are_detected() {
    let frames = [mp3_frame(), mp3_frame()].concat();
    let cases: [(&[u8], AudioKind); 9] = [
        (b"ID3\x04\0\0\0\0\0\0\0", AudioKind::Mp3),
        (&frames, AudioKind::Mp3),
        (b"fLaC\0\0\0\x22", AudioKind::Flac),
        (b"#!AMR\n\x3C", AudioKind::Amr),
        (b"\xFF\xF1\x50\x80", AudioKind::Aac),
        (b"RIFF\x24\0\0\0WAVEfmt ", AudioKind::Wav),
        (b"FORM\0\0\0\x12AIFFCOMM", AudioKind::Aiff),
        (b"MThd\0\0\0\x06\0\x01", AudioKind::Midi),
        (b"\0\0\0\x1CftypM4A \0\0\0\0", AudioKind::M4a),
    ];
    for (bytes, audio) in cases {
        assert_eq!(kind(bytes, "x"), ContentKind::Audio(audio));
    }
    // UTF-16 text begins like an MP3 frame, and a frame without a second one after it is a coincidence.
    assert_eq!(kind(b"\xFF\xFEa\0b\0", "a.txt"), ContentKind::Binary);
    let lonely = [mp3_frame(), vec![0; 64]].concat();
    assert_eq!(kind(&lonely, "x"), ContentKind::Binary);
}

#[test]
fn the_bytes_decide_and_a_name_that_disagrees_is_reported() {
    for (bytes, name, disagrees) in [
        (png(1, 1), "a.png", false),
        (png(1, 1), "a.jpg", true),
        (png(1, 1), "a.txt", true),
        (png(1, 1), "a.unheardof", false),
        (png(1, 1), "a", false),
        (b"some words".to_vec(), "a.pdf", true),
        (b"\0\x01\x02\x03".to_vec(), "a.mp4", true),
        (b"\0\x01\x02\x03".to_vec(), "a.bin", false),
        (zip(&[("a.txt", b"x")]), "a.zip", false),
        (zip(&[("a.txt", b"x")]), "a.docx", true),
    ] {
        assert_eq!(whole(&bytes, name).disagrees, disagrees, "{name}");
    }
}

#[test]
fn a_file_without_bytes_is_empty() {
    let found = detect_kind(b"", "a.png", 0);
    assert_eq!((found.kind, found.disagrees), (ContentKind::Empty, false));
    // A head that could not be read is not an empty file.
    assert_eq!(detect_kind(b"", "a.txt", 9).kind, ContentKind::Binary);
}

#[test]
fn rare_formats_keep_their_media_type() {
    let found = whole(b"\0\0\x01\0\x01\0\x10\x10\0\0\x01\0\x04\0", "a.ico");
    assert_eq!(
        (found.kind, found.media_type),
        (
            ContentKind::Image(ImageKind::Other),
            "image/vnd.microsoft.icon"
        )
    );
    let found = whole(b"8BPS\0\x01\0\0", "a.psd");
    assert_eq!(
        (found.kind, found.extension),
        (ContentKind::Image(ImageKind::Other), Some("psd"))
    );
    let found = whole(b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1\0\0", "a.XLS");
    assert_eq!(
        (found.kind, found.media_type),
        (
            ContentKind::Document(DocumentKind::Xls),
            "application/vnd.ms-excel"
        )
    );
    assert_eq!(kind(b"\x07\x08\x09\x80", "a.png"), ContentKind::Binary);
}

proptest! {
    #[test]
    fn every_file_has_a_kind(
        magic in prop::sample::select(build::DEEP_STARTS),
        rest in prop::collection::vec(any::<u8>(), 0..200),
        name in "[a-z]{0,3}(\\.[a-z0-9]{0,5})?",
        more: bool,
    ) {
        let bytes = [magic, &rest].concat();
        let size = u64::try_from(bytes.len()).unwrap() + u64::from(more);
        let found = detect_kind(&bytes, &name, size);
        prop_assert!(found.media_type.contains('/'));
        prop_assert_eq!(found.kind == ContentKind::Empty, size == 0);
        prop_assert!(found.dimensions.is_none_or(|(width, height)| width > 0 && height > 0));
        prop_assert!(found.extension.is_none_or(|extension| !extension.is_empty()));
    }

    #[test]
    fn a_head_of_any_length_does_not_panic(cut in 0_usize..400) {
        for bytes in build::samples() {
            let head = &bytes[..cut.min(bytes.len())];
            detect_kind(head, "a.bin", u64::try_from(bytes.len()).unwrap());
        }
    }

    #[test]
    fn plain_words_are_always_text(text in "[a-zA-Z0-9 ,.\n]{1,300}") {
        prop_assert!(matches!(kind(text.as_bytes(), "a.txt"), ContentKind::Text));
    }
}
