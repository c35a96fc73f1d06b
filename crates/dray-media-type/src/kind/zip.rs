//! ZIP and formats that are based on it: Office documents, EPUB, packages.

use super::bytes::{find_from, is_at, le16, le32, to_index};
use super::sniff::SniffResult;
use super::types::{ArchiveKind, ContentKind, DocumentKind};

/// Most entries whose names are read; the part that names an Office format is among the first few.
const MAX_ENTRIES: usize = 256;

/// The signature of a local file header (APPNOTE 4.3.7).
const ENTRY_SIGNATURE: &[u8] = b"PK\x03\x04";

/// The flag of entries whose sizes are after the data (APPNOTE 4.4.4).
const SIZE_AFTER_DATA_FLAG: u16 = 1 << 3;

/// Detects the kind of a file that begins with a signature of ZIP.
pub(super) fn sniff(head: &[u8], extension: &str) -> SniffResult {
    // An empty archive consists of its end record; a split archive begins with the spanning marker (APPNOTE 4.3, 8.5).
    if !head.starts_with(ENTRY_SIGNATURE) {
        return SniffResult::of(ContentKind::Archive(ArchiveKind::Zip));
    }
    let mut names = ZipNames::default();
    let entries = ZipEntries { head, at: Some(0) };
    for (index, entry) in entries.take(MAX_ENTRIES).enumerate() {
        // EPUB and ODF require `mimetype` to be the first entry; elsewhere it is an ordinary file.
        if index == 0
            && entry.name == b"mimetype"
            && let Some(found) = by_media_type(entry.content)
        {
            return found;
        }
        names.record(entry.name);
    }
    names.to_result(extension)
}

/// Names of entries that distinguish Office documents, Java archives and Android packages.
#[derive(Default)]
struct ZipNames {
    content_types: bool,
    part: Option<DocumentKind>,
    manifest: bool,
    android: bool,
}

impl ZipNames {
    fn record(&mut self, name: &[u8]) {
        match name {
            b"[Content_Types].xml" => self.content_types = true,
            b"META-INF/MANIFEST.MF" => self.manifest = true,
            b"AndroidManifest.xml" => self.android = true,
            _ if name.starts_with(b"word/") => self.part = self.part.or(Some(DocumentKind::Docx)),
            _ if name.starts_with(b"xl/") => self.part = self.part.or(Some(DocumentKind::Xlsx)),
            _ if name.starts_with(b"ppt/") => self.part = self.part.or(Some(DocumentKind::Pptx)),
            _ => {}
        }
    }

    fn to_result(&self, extension: &str) -> SniffResult {
        if self.android {
            return SniffResult::of(ContentKind::Archive(ArchiveKind::Apk));
        }
        if self.content_types {
            // The part that identifies the format may be after the head; then the file name may select one of the
            // three Office formats.
            let named = match extension {
                "docx" | "docm" | "dotx" => Some(DocumentKind::Docx),
                "xlsx" | "xlsm" | "xltx" => Some(DocumentKind::Xlsx),
                "pptx" | "pptm" | "ppsx" => Some(DocumentKind::Pptx),
                _ => None,
            };
            if let Some(document) = self.part.or(named) {
                return SniffResult::of(ContentKind::Document(document));
            }
        }
        if self.manifest {
            return SniffResult::of(ContentKind::Archive(ArchiveKind::Jar));
        }
        SniffResult::of(ContentKind::Archive(ArchiveKind::Zip))
    }
}

/// The first entry of EPUB and open documents contains the uncompressed media type.
fn by_media_type(content: &[u8]) -> Option<SniffResult> {
    let known: [(&[u8], DocumentKind); 4] = [
        (b"application/epub+zip", DocumentKind::Epub),
        (
            b"application/vnd.oasis.opendocument.text",
            DocumentKind::Odt,
        ),
        (
            b"application/vnd.oasis.opendocument.spreadsheet",
            DocumentKind::Ods,
        ),
        (
            b"application/vnd.oasis.opendocument.presentation",
            DocumentKind::Odp,
        ),
    ];
    let content = content.trim_ascii();
    if let Some((_, document)) = known.iter().find(|(name, _)| content == *name) {
        return Some(SniffResult::of(ContentKind::Document(*document)));
    }
    let open = content.starts_with(b"application/vnd.oasis.opendocument.");
    open.then(|| SniffResult {
        extension: Some("odf"),
        ..SniffResult::typed(
            ContentKind::Document(DocumentKind::Other),
            "application/vnd.oasis.opendocument",
        )
    })
}

/// One entry as far as the head shows it.
struct ZipEntry<'head> {
    name: &'head [u8],
    /// The entry's stored bytes; empty if the size is after them.
    content: &'head [u8],
}

/// Iterates over the entries. The content of an entry whose size is given is skipped and not searched.
struct ZipEntries<'head> {
    head: &'head [u8],
    at: Option<usize>,
}

impl<'head> Iterator for ZipEntries<'head> {
    type Item = ZipEntry<'head>;

    fn next(&mut self) -> Option<ZipEntry<'head>> {
        let (head, at) = (self.head, self.at?);
        if !is_at(head, at, ENTRY_SIGNATURE) {
            return None;
        }
        let flags = le16(head, at + 6)?;
        let size = to_index(le32(head, at + 18)?);
        let name_start = at + 30;
        let name_end = name_start + usize::from(le16(head, at + 26)?);
        let start = name_end + usize::from(le16(head, at + 28)?);
        let name = head.get(name_start..name_end)?;
        // A streaming writer leaves the size zero and writes it after the data (APPNOTE 4.4.4), so the next signature
        // has to be searched for. A zero size without the bit is an empty entry.
        let has_size_after_data = flags & SIZE_AFTER_DATA_FLAG != 0 && size == 0;
        // On a 32-bit machine a false size could overflow the sum and lead back to an earlier entry.
        let end = start.saturating_add(if has_size_after_data { 0 } else { size });
        self.at = if has_size_after_data {
            find_from(head, start, ENTRY_SIGNATURE)
        } else {
            Some(end)
        };
        let content = head.get(start..end).unwrap_or_default();
        Some(ZipEntry { name, content })
    }
}
