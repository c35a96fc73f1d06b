//! Containers made for tests.

use std::io::{Cursor, Write as _};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// A ZIP with these parts in this order; the names in `stored` are not deflated.
pub(super) fn zip(parts: &[(&str, &[u8])], stored: &[&str]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in parts {
        let method = if stored.contains(name) {
            CompressionMethod::Stored
        } else {
            CompressionMethod::Deflated
        };
        let options = SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub(super) const TRANSITIONAL_RELATIONSHIP: &str =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument";
pub(super) const STRICT_RELATIONSHIP: &str =
    "http://purl.oclc.org/ooxml/officeDocument/relationships/officeDocument";

/// Relationships of a package with this main part.
pub(super) fn rels(kind: &str, target: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
        <Relationship Id="r0" Type="http://example.invalid/thumbnail" Target="docProps/thumbnail.jpeg"/>
        <Relationship Id="r1" Type="{kind}" Target="{target}"/></Relationships>"#
    )
}

/// Content types with an override for this part.
pub(super) fn types(part: &str, content_type: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
        <Default Extension="xml" ContentType="application/xml"/>
        <Override PartName="{part}" ContentType="{content_type}"/></Types>"#
    )
}

/// An office package with the types last, as many producers write it.
pub(super) fn package(kind: &str, part: &str, content_type: &str) -> Vec<u8> {
    zip(
        &[
            (part.trim_start_matches('/'), b"<main/>"),
            ("_rels/.rels", rels(kind, part).as_bytes()),
            ("[Content_Types].xml", types(part, content_type).as_bytes()),
        ],
        &[],
    )
}

/// An OLE2 file with these streams.
pub(super) fn compound(streams: &[&str]) -> Vec<u8> {
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for path in streams {
        if let Some((storage, _)) = path.trim_start_matches('/').rsplit_once('/') {
            file.create_storage_all(format!("/{storage}")).unwrap();
        }
        let mut stream = file.create_stream(path).unwrap();
        stream.write_all(b"content").unwrap();
    }
    file.flush().unwrap();
    file.into_inner().into_inner()
}
