//! Mail messages (EML): the converter neither panics nor stalls and keeps to its limits.

#![no_main]

mod document;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| document::check("message/rfc822", "eml", bytes));
