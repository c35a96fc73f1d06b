//! Converts files and prints duration and memory as JSON, one object for each file.
//!
//! `documents [--rounds N] FILE…`; for measurements (`cargo xtask bench documents`).

use std::io::Cursor;
use std::time::Instant;

use dray_documents::formats::{ConversionHint, convert};
use dray_documents::limits::Limits;
use dray_documents::markdown::Selection;

#[expect(clippy::print_stdout, reason = "this program prints its result")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut rounds = 1_usize;
    if arguments.next_if(|first| first == "--rounds").is_some() {
        rounds = arguments.next().ok_or("--rounds needs a number")?.parse()?;
    }
    for path in arguments {
        println!("{}", one(&path, rounds.max(1))?);
    }
    Ok(())
}

/// Converts one file `rounds` times.
fn one(path: &str, rounds: usize) -> Result<String, Box<dyn std::error::Error>> {
    let bytes = std::fs::read(path)?;
    let hint = hint(path);
    let mut micros = Vec::with_capacity(rounds);
    let mut last = None;
    for _ in 0..rounds {
        let mut input = Cursor::new(&bytes);
        let begun = Instant::now();
        last = Some(convert(
            &mut input,
            &hint,
            Limits::default(),
            Selection::All,
        ));
        micros.push(u64::try_from(begun.elapsed().as_micros())?);
    }
    micros.sort_unstable();
    let converted = last.ok_or("no round was made")?;
    Ok(serde_json::to_string(&serde_json::json!({
        "file": path,
        "micros": micros.get(micros.len() / 2),
        "slowest": micros.last(),
        "peak_kib": peak(),
        "converted": converted,
    }))?)
}

/// Peak memory of this process in KiB; `None` where the kernel does not report it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The type by the file name, which is correct for files of a corpus.
fn hint(path: &str) -> ConversionHint {
    let extension = path
        .rsplit_once('.')
        .map(|(_, extension)| extension.to_ascii_lowercase())
        .unwrap_or_default();
    let office = "application/vnd.openxmlformats-officedocument";
    let open = "application/vnd.oasis.opendocument";
    let mime = match extension.as_str() {
        "pdf" => "application/pdf".to_owned(),
        "doc" => "application/msword".to_owned(),
        "ppt" => "application/vnd.ms-powerpoint".to_owned(),
        "docx" => format!("{office}.wordprocessingml.document"),
        "xlsx" => format!("{office}.spreadsheetml.sheet"),
        "pptx" => format!("{office}.presentationml.presentation"),
        "xls" => "application/vnd.ms-excel".to_owned(),
        "xlsb" => "application/vnd.ms-excel.sheet.binary.macroenabled.12".to_owned(),
        "odt" => format!("{open}.text"),
        "ods" => format!("{open}.spreadsheet"),
        "odp" => format!("{open}.presentation"),
        "epub" => "application/epub+zip".to_owned(),
        "html" | "htm" => "text/html".to_owned(),
        "csv" => "text/csv".to_owned(),
        "tsv" => "text/tab-separated-values".to_owned(),
        "json" => "application/json".to_owned(),
        "xml" => "application/xml".to_owned(),
        "rtf" => "application/rtf".to_owned(),
        "eml" => "message/rfc822".to_owned(),
        "msg" => "application/vnd.ms-outlook".to_owned(),
        "ipynb" => "application/x-ipynb+json".to_owned(),
        _ => "text/plain".to_owned(),
    };
    ConversionHint {
        mime,
        extension,
        ..ConversionHint::default()
    }
}
