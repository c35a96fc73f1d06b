//! Every fuzz target compiles, and passes for its corpus and for changed inputs of the corpus. The fuzzer itself runs
//! with `cargo xtask fuzz`.

use std::path::Path;

use dray_documents::formats::{ConversionHint, FORMAT_FAMILIES, OcrHint, convert};
use dray_documents::limits::Limits;
use dray_documents::markdown::Selection;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// The name of a target, and the function that runs it with one input.
type FuzzTarget = (&'static str, fn(&[u8]));

/// Declares the modules of the targets, and the list of all of them.
macro_rules! fuzz_targets {
    ($($name:ident $path:tt,)+) => {
        $(#[path = $path] mod $name;)+

        /// Every target.
        const ALL_TARGETS: &[FuzzTarget] = &[$((stringify!($name), $name::run)),+];
    };
}

fuzz_targets! {
    classify "../../fuzz_targets/classify.rs",
    client_hello "../../fuzz_targets/client_hello.rs",
    context "../../fuzz_targets/context.rs",
    csv "../../fuzz_targets/csv.rs",
    docx "../../fuzz_targets/docx.rs",
    eml "../../fuzz_targets/eml.rs",
    form "../../fuzz_targets/form.rs",
    frame "../../fuzz_targets/frame.rs",
    gzip "../../fuzz_targets/gzip.rs",
    html "../../fuzz_targets/html.rs",
    http2_stream "../../fuzz_targets/http2_stream.rs",
    json "../../fuzz_targets/json.rs",
    judge_answer "../../fuzz_targets/judge_answer.rs",
    location "../../fuzz_targets/location.rs",
    media "../../fuzz_targets/media.rs",
    msg "../../fuzz_targets/msg.rs",
    odf "../../fuzz_targets/odf.rs",
    pdf "../../fuzz_targets/pdf.rs",
    policy_file "../../fuzz_targets/policy_file.rs",
    proxy_head "../../fuzz_targets/proxy_head.rs",
    response_body "../../fuzz_targets/response_body.rs",
    response_head "../../fuzz_targets/response_head.rs",
    rtf "../../fuzz_targets/rtf.rs",
    socks "../../fuzz_targets/socks.rs",
    tar "../../fuzz_targets/tar.rs",
    tunnel_request "../../fuzz_targets/tunnel_request.rs",
    tunnel_response "../../fuzz_targets/tunnel_response.rs",
    url_text "../../fuzz_targets/url_text.rs",
    xlsx "../../fuzz_targets/xlsx.rs",
    xml "../../fuzz_targets/xml.rs",
    any_document "../../fuzz_targets/any_document.rs",
}

/// Number of changed inputs for each target, unless `DRAY_FUZZ_INPUTS` sets another one. A target for documents takes
/// milliseconds for one input.
const CHANGED_INPUTS: u64 = 200;
/// Most bytes of an input that is changed.
const MAX_INPUT_BYTES: usize = 24 << 10;
/// Seed of the changes, so that every run tries the same inputs, unless `DRAY_FUZZ_SEED` sets another one.
const CHANGE_SEED: u64 = 20_261_127;

/// The inputs of `fuzz/corpus/NAME`, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// An input with a few bytes changed, removed, repeated or inserted.
fn change(input: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut changed = input.to_vec();
    for _ in 0..random.random_range(1..=4) {
        let start = random.random_range(0..=changed.len());
        let end = (start + random.random_range(1..=8)).min(changed.len());
        match random.random_range(0..4) {
            0 if start < changed.len() => changed[start] = random.random(),
            1 => drop(changed.drain(start..end)),
            2 => changed.extend_from_within(start..end),
            // Bytes that end a part of a message in most formats.
            _ => changed.insert(start, *b"\r\n \0:;/<".get(end % 8).unwrap()),
        }
    }
    changed
}

/// The number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number")),
    )
}

#[test]
fn every_target_of_the_manifest_is_checked_here() {
    let manifest = include_str!("../../Cargo.toml");
    let listed = manifest.matches("\n[[bin]]\n").count();
    assert_eq!(listed, ALL_TARGETS.len());
    for (name, _) in ALL_TARGETS {
        let path = format!("path = \"fuzz_targets/{name}.rs\"");
        assert!(manifest.contains(&path), "{name}");
    }
}

#[test]
fn every_format_has_a_seed_that_its_converter_reads() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/any_document");
    let samples = FORMAT_FAMILIES.iter().flat_map(|family| family.samples);
    for (mime, extension) in samples {
        let seed = corpus.join(extension);
        let bytes = std::fs::read(&seed).unwrap_or_else(|error| panic!("{seed:?}: {error}"));
        let start = format!("{extension}\n");
        let document = bytes.strip_prefix(start.as_bytes());
        // The byte after the name chooses limits.
        let document = &document.unwrap_or_else(|| panic!("{seed:?} names no sample"))[1..];
        let hint = ConversionHint {
            mime: (*mime).to_owned(),
            extension: (*extension).to_owned(),
            ocr: Some(OcrHint {
                max_pictures: 1,
                languages: "eng".to_owned(),
            }),
            ..ConversionHint::default()
        };
        let mut input = std::io::Cursor::new(document);
        let converted = convert(&mut input, &hint, Limits::default(), Selection::All);
        // An OLE2 file of no other type holds an encrypted package.
        let is_encrypted = *extension == "ole";
        assert_eq!(converted.failure.is_some(), is_encrypted, "{converted:?}");
        let is_shown = !converted.markdown.is_empty() || !converted.pictures.is_empty();
        assert!(is_shown || is_encrypted, "{converted:?}");
    }
}

#[test]
fn every_target_passes_for_its_corpus_and_for_changed_inputs() {
    let only = std::env::var("DRAY_FUZZ_TARGETS").ok();
    let is_chosen = |name: &str| {
        let mut names = only.as_deref().map(|only| only.split(','));
        names
            .as_mut()
            .is_none_or(|names| names.any(|chosen| chosen == name))
    };
    let seed = number("DRAY_FUZZ_SEED").unwrap_or(CHANGE_SEED);
    let count = number("DRAY_FUZZ_INPUTS").unwrap_or(CHANGED_INPUTS);
    for (index, (name, run)) in ALL_TARGETS.iter().enumerate() {
        if !is_chosen(name) {
            continue;
        }
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(index as u64));
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has a corpus");
        for input in &inputs {
            run(input);
        }
        for number in 0..count {
            let input = &inputs[usize::try_from(number).unwrap() % inputs.len()];
            if input.len() > MAX_INPUT_BYTES {
                continue;
            }
            let changed = change(input, &mut random);
            if let Err(panic) = std::panic::catch_unwind(|| run(&changed)) {
                eprintln!("{name} fails for {:?}", changed.escape_ascii().to_string());
                std::panic::resume_unwind(panic);
            }
        }
    }
}
