//! Routes and steps.

use dray_platform::conformance::sample;
use dray_platform::{
    ChatLimits, ErrorKind, FilesStep, OutgoingDelivery, OutgoingFile, PlatformError, SendFlags,
    SendOutcome, SendStep,
};

use super::{TelegramOptions, target};
use crate::plan::{fallback_step, plan_steps};

fn delivery(files: Vec<OutgoingFile>) -> OutgoingDelivery {
    OutgoingDelivery {
        id: "d".to_owned(),
        target: target(1),
        message: String::new(),
        files,
        flags: SendFlags::default(),
    }
}

fn limits() -> ChatLimits {
    TelegramOptions::default().limits()
}

fn routes(steps: &[SendStep]) -> Vec<(&str, Vec<usize>)> {
    steps
        .iter()
        .map(|step| (step.route(), step.files().to_vec()))
        .collect()
}

/// The route of a file alone.
fn alone(file: OutgoingFile, flags: SendFlags) -> (String, bool) {
    let delivery = OutgoingDelivery {
        flags,
        ..delivery(vec![file])
    };
    let steps = plan_steps(&delivery, &limits());
    assert_eq!(steps.len(), 1);
    (steps[0].route().to_owned(), steps[0].is_lossy())
}

#[test]
fn every_kind_has_its_route() {
    let wanted = [
        "photo",
        "photo",
        "document",
        "animation",
        "photo",
        "video",
        "document",
        "audio",
        "audio",
    ];
    let found: Vec<String> = sample::every_kind()
        .into_iter()
        .map(|file| alone(file, SendFlags::default()).0)
        .collect();
    assert_eq!(found[..wanted.len()], wanted);
    assert!(
        found[wanted.len()..]
            .iter()
            .all(|route| route == "document")
    );
}

#[test]
fn only_what_is_recompressed_is_lossy() {
    for file in sample::every_kind() {
        let (route, lossy) = alone(file, SendFlags::default());
        assert_eq!(lossy, matches!(route.as_str(), "photo" | "animation"));
    }
}

#[test]
fn a_picture_of_odd_shape_or_size_is_a_document() {
    let check = |file, route: &str| assert_eq!(alone(file, SendFlags::default()).0, route);
    check(sample::png_file("a.png", 5000, 5000, 1), "photo");
    check(sample::png_file("a.png", 5001, 5000, 1), "document");
    check(sample::png_file("a.png", 2000, 100, 1), "photo");
    check(sample::png_file("a.png", 100, 2001, 1), "document");
    let large = OutgoingFile {
        size: 10_000_001,
        ..sample::png_file("a.png", 64, 64, 1)
    };
    check(large, "document");
}

#[test]
fn the_voice_switch_is_for_sound_alone() {
    let flags = SendFlags {
        as_voice: true,
        ..SendFlags::default()
    };
    let check = |file, route: &str| assert_eq!(alone(file, flags).0, route);
    check(sample::opus_file("a.ogg"), "voice");
    check(sample::mp3_file("a.mp3"), "voice");
    check(sample::m4a_file("a.m4a"), "voice");
    check(sample::png_file("a.png", 64, 64, 1), "photo");
    assert_eq!(
        alone(sample::opus_file("a.ogg"), SendFlags::default()).0,
        "document"
    );
}

#[test]
fn albums_hold_what_may_stand_together() {
    let files = vec![
        sample::binary_file("0.bin", 10),
        sample::png_file("1.png", 64, 64, 1),
        sample::binary_file("2.bin", 10),
        sample::mp4_file("3.mp4"),
        sample::gif_file("4.gif"),
        sample::mp3_file("5.mp3"),
        sample::mp3_file("6.mp3"),
        sample::jpeg_file("7.jpg", 1),
        sample::binary_file("8.bin", 10),
    ];
    let steps = plan_steps(&delivery(files), &limits());
    let wanted = [
        ("album", vec![1, 3, 7]),
        ("document", vec![0, 2]),
        ("animation", vec![4]),
        ("audio", vec![5, 6]),
        ("document", vec![8]),
    ];
    assert_eq!(routes(&steps), wanted);
}

#[test]
fn albums_have_ten_items_and_fit_one_request() {
    let pictures = (0..23)
        .map(|n| sample::png_file("p.png", 64, 64, n))
        .collect();
    let sizes: Vec<usize> = plan_steps(&delivery(pictures), &limits())
        .iter()
        .map(|step| step.files().len())
        .collect();
    assert_eq!(sizes, [10, 10, 3]);
    let large = |size| OutgoingFile {
        size,
        ..sample::binary_file("a.bin", 10)
    };
    let files = vec![large(30_000_000), large(20_000_000), large(1)];
    let steps = plan_steps(&delivery(files), &limits());
    assert_eq!(
        routes(&steps),
        [("document", vec![0, 1]), ("document", vec![2])]
    );
}

#[test]
fn r_1_an_empty_file_drops_none_of_its_siblings() {
    let files = vec![
        sample::binary_file("a.bin", 10),
        sample::memory_file("empty", ""),
        sample::binary_file("b.bin", 10),
    ];
    let steps = plan_steps(&delivery(files), &limits());
    let all: Vec<usize> = steps.iter().map(|step| step.files().len()).collect();
    assert_eq!(all, [1, 1, 1]);
}

#[test]
fn the_caption_stands_with_the_first_step_or_before_it() {
    let mut delivery = delivery(vec![
        sample::binary_file("a.bin", 10),
        sample::png_file("b.png", 64, 64, 1),
    ]);
    delivery.message = "😀".repeat(512);
    let texts = |delivery: &OutgoingDelivery| -> Vec<usize> {
        let steps = plan_steps(delivery, &limits());
        steps
            .iter()
            .map(|step| step.text().encode_utf16().count())
            .collect()
    };
    assert_eq!(texts(&delivery), [1024, 0]);
    delivery.message.push('.');
    assert_eq!(texts(&delivery), [1025, 0, 0]);
    delivery.message = "w ".repeat(4097);
    assert_eq!(texts(&delivery).len(), 5);
}

#[test]
fn what_the_server_does_not_take_goes_another_way_once() {
    let all = delivery(vec![sample::opus_file("a.ogg"), sample::mp3_file("b.mp3")]);
    let refused = PlatformError::new(ErrorKind::UnsupportedKind, "");
    let next = |route: &str, files: Vec<usize>| {
        let step = SendStep::Files(FilesStep {
            route: route.to_owned(),
            files,
            text: "words".to_owned(),
            lossy: true,
        });
        let other = fallback_step(&all, &step, &refused)?;
        assert_eq!((other.text(), other.is_lossy()), ("words", false));
        Some(other.route().to_owned())
    };
    assert_eq!(next("photo", vec![0]).as_deref(), Some("document"));
    assert_eq!(next("album", vec![0, 1]).as_deref(), Some("document"));
    assert_eq!(next("voice", vec![0]).as_deref(), Some("document"));
    assert_eq!(next("voice", vec![1]).as_deref(), Some("audio"));
    assert_eq!(next("audio", vec![1]).as_deref(), Some("document"));
    assert_eq!(next("document", vec![0]), None);
    let text = SendStep::Text("words".to_owned());
    assert_eq!(fallback_step(&all, &text, &refused), None);
}

#[test]
fn r_13_what_may_be_visible_goes_no_other_way() {
    let all = delivery(vec![sample::jpeg_file("a.jpg", 1)]);
    let step = plan_steps(&all, &limits()).remove(0);
    let partial = PlatformError::new(ErrorKind::UnsupportedKind, "").at(SendOutcome::Partial);
    assert_eq!(fallback_step(&all, &step, &partial), None);
    let gone = PlatformError::new(ErrorKind::Forbidden, "");
    assert_eq!(fallback_step(&all, &step, &gone), None);
}
