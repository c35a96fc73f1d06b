//! PDF files: the converter neither panics nor stalls and keeps to its limits, for any input.

#![no_main]

mod document;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| document::check("application/pdf", "pdf", bytes));
