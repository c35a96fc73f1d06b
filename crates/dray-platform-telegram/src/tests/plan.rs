//! Routes and steps.

use dray_platform::conformance::sample;
use dray_platform::{
    ChatLimits, ErrorKind, FilesStep, OutgoingDelivery, OutgoingFile, PlatformError, Route,
    SendFlags, SendOutcome, SendStep,
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

fn routes(steps: &[SendStep]) -> Vec<(Route, Vec<usize>)> {
    steps
        .iter()
        .map(|step| (step.route(), step.files().to_vec()))
        .collect()
}

/// The route of a delivery with one file.
fn route_of_single_file(file: OutgoingFile, flags: SendFlags) -> (Route, bool) {
    let delivery = OutgoingDelivery {
        flags,
        ..delivery(vec![file])
    };
    let steps = plan_steps(&delivery, &limits());
    assert_eq!(steps.len(), 1);
    (steps[0].route(), steps[0].is_lossy())
}

#[test]
fn every_kind_has_its_route() {
    let expected = [
        Route::Photo,
        Route::Photo,
        Route::Document,
        Route::Animation,
        Route::Photo,
        Route::Video,
        Route::Document,
        Route::Audio,
        Route::Audio,
    ];
    let routes: Vec<Route> = sample::every_kind()
        .into_iter()
        .map(|file| route_of_single_file(file, SendFlags::default()).0)
        .collect();
    assert_eq!(routes[..expected.len()], expected);
    assert!(
        routes[expected.len()..]
            .iter()
            .all(|route| *route == Route::Document)
    );
}

#[test]
fn only_a_file_that_telegram_recompresses_is_lossy() {
    for file in sample::every_kind() {
        let (route, lossy) = route_of_single_file(file, SendFlags::default());
        assert_eq!(lossy, matches!(route, Route::Photo | Route::Animation));
    }
}

#[test]
fn a_picture_that_is_too_large_or_too_narrow_is_sent_as_a_document() {
    let check =
        |file, route: Route| assert_eq!(route_of_single_file(file, SendFlags::default()).0, route);
    check(sample::png_file("a.png", 5000, 5000, 1), Route::Photo);
    check(sample::png_file("a.png", 5001, 5000, 1), Route::Document);
    check(sample::png_file("a.png", 2000, 100, 1), Route::Photo);
    check(sample::png_file("a.png", 100, 2001, 1), Route::Document);
    let large = OutgoingFile {
        size: 10_000_001,
        ..sample::png_file("a.png", 64, 64, 1)
    };
    check(large, Route::Document);
}

#[test]
fn only_sound_is_sent_as_a_voice_message() {
    let flags = SendFlags {
        as_voice: true,
        ..SendFlags::default()
    };
    let check = |file, route: Route| assert_eq!(route_of_single_file(file, flags).0, route);
    check(sample::opus_file("a.ogg"), Route::Voice);
    check(sample::mp3_file("a.mp3"), Route::Voice);
    check(sample::m4a_file("a.m4a"), Route::Voice);
    check(sample::png_file("a.png", 64, 64, 1), Route::Photo);
    assert_eq!(
        route_of_single_file(sample::opus_file("a.ogg"), SendFlags::default()).0,
        Route::Document
    );
}

#[test]
fn an_album_has_only_kinds_that_telegram_groups() {
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
    let expected = [
        (Route::Album, vec![1, 3, 7]),
        (Route::Document, vec![0, 2]),
        (Route::Animation, vec![4]),
        (Route::Audio, vec![5, 6]),
        (Route::Document, vec![8]),
    ];
    assert_eq!(routes(&steps), expected);
}

#[test]
fn an_album_has_at_most_ten_items_and_fits_one_request() {
    let pictures = (0..23)
        .map(|number| sample::png_file("p.png", 64, 64, number))
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
        [(Route::Document, vec![0, 1]), (Route::Document, vec![2])]
    );
}

#[test]
fn r_1_an_empty_file_does_not_drop_the_other_files() {
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
fn the_caption_is_in_the_first_step_or_before_it() {
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
fn a_refused_file_is_sent_by_another_route_once() {
    let all = delivery(vec![sample::opus_file("a.ogg"), sample::mp3_file("b.mp3")]);
    let refused = PlatformError::new(ErrorKind::UnsupportedKind, "");
    let next = |route: Route, files: Vec<usize>| {
        let step = SendStep::Files(FilesStep {
            route,
            files,
            text: "words".to_owned(),
            lossy: true,
        });
        let other = fallback_step(&all, &step, &refused)?;
        assert_eq!((other.text(), other.is_lossy()), ("words", false));
        Some(other.route())
    };
    assert_eq!(next(Route::Photo, vec![0]), Some(Route::Document));
    assert_eq!(next(Route::Album, vec![0, 1]), Some(Route::Document));
    assert_eq!(next(Route::Voice, vec![0]), Some(Route::Document));
    assert_eq!(next(Route::Voice, vec![1]), Some(Route::Audio));
    assert_eq!(next(Route::Audio, vec![1]), Some(Route::Document));
    assert_eq!(next(Route::Document, vec![0]), None);
    let text = SendStep::Text("words".to_owned());
    assert_eq!(fallback_step(&all, &text, &refused), None);
}

#[test]
fn r_13_a_file_that_may_be_visible_is_not_sent_by_another_route() {
    let all = delivery(vec![sample::jpeg_file("a.jpg", 1)]);
    let step = plan_steps(&all, &limits()).remove(0);
    let partial =
        PlatformError::new(ErrorKind::UnsupportedKind, "").with_outcome(SendOutcome::Partial);
    assert_eq!(fallback_step(&all, &step, &partial), None);
    let forbidden = PlatformError::new(ErrorKind::Forbidden, "");
    assert_eq!(fallback_step(&all, &step, &forbidden), None);
}
