//! Files of every format: no converter panics or stalls, and each keeps to its limits. The first line of an input names
//! the extension of a sample; of any other line the first byte chooses one.

#![no_main]

mod document;

use dray_documents::formats::FORMAT_FAMILIES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let samples: Vec<_> = FORMAT_FAMILIES
        .iter()
        .flat_map(|family| family.samples)
        .collect();
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    let (Some(name), Some(file)) = (parts.next(), parts.next()) else {
        return;
    };
    let named = samples
        .iter()
        .find(|(_, extension)| extension.as_bytes() == name);
    let chosen = name.first().map_or(0, |byte| usize::from(*byte)) % samples.len();
    let (mime, extension) = named.unwrap_or(&samples[chosen]);
    document::check(mime, extension, file);
});
