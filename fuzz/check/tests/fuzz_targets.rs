//! Every fuzz target compiles, and passes for its corpus and for changed inputs of the corpus. The fuzzer itself runs
//! with `cargo xtask fuzz`.

#[path = "../../fuzz_targets/classify.rs"]
mod classify;
#[path = "../../fuzz_targets/client_hello.rs"]
mod client_hello;
#[path = "../../fuzz_targets/context.rs"]
mod context;
#[path = "../../fuzz_targets/csv.rs"]
mod csv;
#[path = "../../fuzz_targets/docx.rs"]
mod docx;
#[path = "../../fuzz_targets/eml.rs"]
mod eml;
#[path = "../../fuzz_targets/form.rs"]
mod form;
#[path = "../../fuzz_targets/frame.rs"]
mod frame;
#[path = "../../fuzz_targets/gzip.rs"]
mod gzip;
#[path = "../../fuzz_targets/html.rs"]
mod html;
#[path = "../../fuzz_targets/http2_stream.rs"]
mod http2_stream;
#[path = "../../fuzz_targets/json.rs"]
mod json;
#[path = "../../fuzz_targets/judge_answer.rs"]
mod judge_answer;
#[path = "../../fuzz_targets/location.rs"]
mod location;
#[path = "../../fuzz_targets/media.rs"]
mod media;
#[path = "../../fuzz_targets/msg.rs"]
mod msg;
#[path = "../../fuzz_targets/odf.rs"]
mod odf;
#[path = "../../fuzz_targets/pdf.rs"]
mod pdf;
#[path = "../../fuzz_targets/policy_file.rs"]
mod policy_file;
#[path = "../../fuzz_targets/proxy_head.rs"]
mod proxy_head;
#[path = "../../fuzz_targets/response_body.rs"]
mod response_body;
#[path = "../../fuzz_targets/response_head.rs"]
mod response_head;
#[path = "../../fuzz_targets/rtf.rs"]
mod rtf;
#[path = "../../fuzz_targets/socks.rs"]
mod socks;
#[path = "../../fuzz_targets/tar.rs"]
mod tar;
#[path = "../../fuzz_targets/tunnel_request.rs"]
mod tunnel_request;
#[path = "../../fuzz_targets/tunnel_response.rs"]
mod tunnel_response;
#[path = "../../fuzz_targets/url_text.rs"]
mod url_text;
#[path = "../../fuzz_targets/xlsx.rs"]
mod xlsx;
#[path = "../../fuzz_targets/xml.rs"]
mod xml;

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// The name of a target, and the function that runs it with one input.
type FuzzTarget = (&'static str, fn(&[u8]));

/// Every target.
const ALL_TARGETS: [FuzzTarget; 30] = [
    ("classify", classify::run),
    ("client_hello", client_hello::run),
    ("context", context::run),
    ("csv", csv::run),
    ("docx", docx::run),
    ("eml", eml::run),
    ("form", form::run),
    ("frame", frame::run),
    ("gzip", gzip::run),
    ("html", html::run),
    ("http2_stream", http2_stream::run),
    ("json", json::run),
    ("judge_answer", judge_answer::run),
    ("location", location::run),
    ("media", media::run),
    ("msg", msg::run),
    ("odf", odf::run),
    ("pdf", pdf::run),
    ("policy_file", policy_file::run),
    ("proxy_head", proxy_head::run),
    ("response_body", response_body::run),
    ("response_head", response_head::run),
    ("rtf", rtf::run),
    ("socks", socks::run),
    ("tar", tar::run),
    ("tunnel_request", tunnel_request::run),
    ("tunnel_response", tunnel_response::run),
    ("url_text", url_text::run),
    ("xlsx", xlsx::run),
    ("xml", xml::run),
];

/// Number of changed inputs for each target, unless `DRAY_FUZZ_INPUTS` sets another one. A target for documents takes
/// milliseconds for one input.
const CHANGED_INPUTS: u64 = 200;
/// Most bytes of an input that is changed.
const MAX_INPUT_BYTES: usize = 16 << 10;
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
    for (index, (name, run)) in ALL_TARGETS.into_iter().enumerate() {
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
