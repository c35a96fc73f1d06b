//! The receipt of a transfer, for people and for scripts.

use dray_presentation::name;
use dray_proto::v1;
use dray_types::hex::hex_digits;
use serde_json::{Value, json};

/// A receipt as scripts see it.
pub(crate) fn receipt_json(receipt: &v1::TransferReceipt) -> Value {
    json!({
        "operation": receipt.operation,
        "transport": receipt.transport,
        "attempts": receipt.attempts,
        "skipped": receipt.skipped,
        "bytes": receipt.bytes,
        "sha256": hex_digits(&receipt.sha256),
        "integrity": receipt.integrity,
        "atomic": receipt.atomic,
        "resumed": receipt.resumed,
        "milliseconds": receipt.milliseconds,
        "error": receipt.error,
        "content_warning": receipt.content_warning,
    })
}

/// A receipt for people, with a space before it.
pub(crate) fn receipt_line(receipt: &v1::TransferReceipt) -> String {
    let tries = match receipt.attempts {
        0 | 1 => String::new(),
        more => format!(", {more} tries"),
    };
    let resumed = if receipt.resumed { ", resumed" } else { "" };
    // A file that was there already has no transport, and a tar without files has no proof.
    let transport = match receipt.transport.as_str() {
        "" => "no transfer",
        transport => transport,
    };
    let integrity = match receipt.integrity.as_str() {
        "" => "none",
        integrity => integrity,
    };
    let warning = content_remark(receipt).map_or_else(String::new, |remark| format!(", {remark}"));
    format!(
        "  ({transport} in {} ms, integrity {integrity}{tries}{resumed}{warning})",
        receipt.milliseconds
    )
}

/// A remark on a secret in the text that was copied; `None` for none.
pub(crate) fn content_remark(receipt: &v1::TransferReceipt) -> Option<String> {
    let finding = name::shown_text(&receipt.content_warning, 64);
    (!finding.is_empty()).then(|| format!("contains a secret ({finding})"))
}
