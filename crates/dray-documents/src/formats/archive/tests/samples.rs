//! Archives made for tests, block by block where a library would refuse to write them.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;

/// A time that every entry has.
pub(super) const MODIFIED_SECONDS: u64 = 1_700_000_000;

/// A ZIP file of files, or directories where a name ends in `/`.
pub(super) fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let time = zip::DateTime::from_date_and_time(2031, 3, 14, 9, 30, 0).unwrap();
    let options = SimpleFileOptions::default().last_modified_time(time);
    for (name, content) in files {
        if name.ends_with('/') {
            archive.add_directory(*name, options).unwrap();
        } else {
            archive.start_file(*name, options).unwrap();
            archive.write_all(content).unwrap();
        }
    }
    archive.finish().unwrap().into_inner()
}

/// Sets the general purpose bit "encrypted" of every entry, in both of its headers.
pub(super) fn encrypted(mut zip: Vec<u8>) -> Vec<u8> {
    for (magic, flags) in [(b"PK\x03\x04", 6), (b"PK\x01\x02", 8)] {
        let starts: Vec<usize> = (0..zip.len() - 4)
            .filter(|at| zip[*at..].starts_with(magic))
            .collect();
        for start in starts {
            zip[start + flags] |= 1;
        }
    }
    zip
}

/// One entry of a tar archive: header, content, padding.
pub(super) fn tar_entry(name: &str, kind: u8, link: &str, content: &[u8]) -> Vec<u8> {
    tar_header(name.as_bytes(), kind, link, content.len() as u64)
        .into_iter()
        .chain(content.iter().copied())
        .chain(std::iter::repeat_n(0, (512 - content.len() % 512) % 512))
        .collect()
}

/// A header that declares this many bytes, which need not be true.
pub(super) fn tar_header(name: &[u8], kind: u8, link: &str, bytes: u64) -> Vec<u8> {
    let mut header = vec![0; 512];
    let mut put = |at: usize, value: &[u8]| header[at..at + value.len()].copy_from_slice(value);
    put(0, &name[..name.len().min(100)]);
    put(100, b"0000644\0");
    put(124, format!("{bytes:011o}\0").as_bytes());
    put(136, format!("{MODIFIED_SECONDS:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    sign(header)
}

/// Writes the checksum of a header.
pub(super) fn sign(mut header: Vec<u8>) -> Vec<u8> {
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A tar archive of these entries.
pub(super) fn tar_of(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

/// A POSIX extended header with these records.
pub(super) fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len();
        while length != rest.len() + length.to_string().len() {
            length = rest.len() + length.to_string().len();
        }
        content.push_str(&length.to_string());
        content.push_str(&rest);
    }
    tar_entry("PaxHeaders/0", b'x', "", content.as_bytes())
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

pub(super) fn zstandard(bytes: &[u8]) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(bytes, level)
}

/// `docs/a.txt` with the text `words out of xz`, packed by the program `xz`.
pub(super) fn xz_sample() -> Vec<u8> {
    let digits = XZ_SAMPLE.concat();
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

const XZ_SAMPLE: &[&str] = &[
    "fd377a585a000004e6d6b4460200210116000000742fe5a3e027ff00755d00321bc88e74d382c9e84897d8a9a07c198debc7",
    "b0da70f7abbe6df05def78e0e408281b92cad03a6ff59cbf6e891407f891586e924886d92f6ad9741380ccefeaafdf7b4290",
    "ffcbf5354f03c474d619b15b2fd50d3446686ee07bede6479d549d6356d2607e48f0db800a4f2ea26d68b5b48ce1ff000000",
    "0000f7c2cbd099bfe7e0000191018050000000a0eaa9b1c467fb020000000004595a",
];
