//! Files for the demo, in the formats in which other programs write them.

use std::fmt::Write as _;

use dray_archive::tar::{self, NewEntry};

/// When the directories of a tar were made, in seconds since the epoch.
const DIRECTORY_MTIME: u64 = 1_610_612_736;

/// A picture of 1 × 1 pixels, the smallest that viewers accept.
pub(crate) const PIXEL_PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0,
    1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 10, b'I', b'D', b'A', b'T',
    0x78, 0x9c, 0x63, 0, 1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N',
    b'D', 0xae, 0x42, 0x60, 0x82,
];

/// A PDF of one page with one line of text, which must have no parentheses or backslashes (ISO 32000-1, 7.5).
pub(crate) fn one_line_pdf(line: &str) -> Vec<u8> {
    let page = format!("BT /F1 18 Tf 72 720 Td ({line}) Tj ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R \
         /Resources << /Font << /F1 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{page}\nendstream", page.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    let mut file = "%PDF-1.4\n".to_owned();
    let mut cross_references = String::new();
    for (index, object) in objects.iter().enumerate() {
        // Each entry of the table has exactly 20 bytes (ISO 32000-1, 7.5.4).
        let _ = writeln!(cross_references, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", index + 1);
    }
    let (table, count) = (file.len(), objects.len() + 1);
    let _ = write!(
        file,
        "xref\n0 {count}\n0000000000 65535 f \n{cross_references}trailer\n<< /Size {count} /Root 1 0 R >>\n\
         startxref\n{table}\n%%EOF\n"
    );
    file.into_bytes()
}

/// A plain tar of empty directories.
pub(crate) fn tar_of_directories(names: &[&str]) -> Vec<u8> {
    let mut archive = Vec::new();
    for name in names {
        let name = format!("{name}/");
        archive.extend_from_slice(&tar::encode(&NewEntry {
            flag: b'5',
            mode: 0o755,
            mtime: DIRECTORY_MTIME,
            ..NewEntry::file(name.as_bytes())
        }));
    }
    archive.extend_from_slice(&tar::END_BLOCKS);
    archive
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn every_entry_of_the_table_points_at_its_object() {
        let file = String::from_utf8(one_line_pdf("Crane 4 is back")).unwrap();
        let table = file.rfind("xref\n0 6").unwrap();
        assert!(file.ends_with(&format!(
            "startxref\n{}\n%%EOF\n",
            file.find("xref\n").unwrap()
        )));
        let entries = file[table..].lines().skip(3).take(5);
        for (index, entry) in entries.enumerate() {
            let place: usize = entry[..10].parse().unwrap();
            assert!(file[place..].starts_with(&format!("{} 0 obj\n", index + 1)));
            assert_eq!(entry.len(), 19);
        }
    }

    #[test]
    fn a_tar_of_directories_is_read_by_tar() {
        let mut tar = Command::new("tar")
            .args(["-tvf", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let bytes = tar_of_directories(&["tmp", "workspace"]);
        assert_eq!(bytes.len(), 2048);
        tar.stdin.take().unwrap().write_all(&bytes).unwrap();
        let listed = tar.wait_with_output().unwrap();
        assert!(listed.status.success());
        let listed = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(lines.len(), 2, "{listed}");
        assert!(lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with(" tmp/"));
        assert!(lines[1].ends_with(" workspace/"));
    }
}
