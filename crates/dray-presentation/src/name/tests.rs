//! Clean, shown and numbered names, and names in headers and keys.

use proptest::prelude::*;

use super::*;

#[test]
fn cleaning_follows_the_rules_of_the_inbound_side() {
    for (raw, expected) in [
        ("report.csv", "report.csv"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\evil.exe", "evil.exe"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("dir/", "dir"),
        ("", "file"),
        ("/", "file"),
        (" \t\n ", "file"),
        ("\u{202e}\u{200b}", "file"),
        (".bashrc", "_bashrc"),
        ("...x", "_x"),
        ("..", "_"),
        ("e\u{301}.txt", "é.txt"),
        ("cod\u{202e}gpj.exe", "codgpj.exe"),
        ("a\0b\r\nc\u{85}\u{2028}.txt", "abc.txt"),
        ("  a b.txt ", "a b.txt"),
        ("$(rm -rf ~);`x`&.sh", "$(rm -rf ~);`x`&.sh"),
        ("报告.pdf", "报告.pdf"),
    ] {
        assert_eq!(clean_name(raw), expected, "{raw:?}");
    }
}

#[test]
fn windows_devices_get_a_suffix() {
    for (raw, expected) in [
        ("CON", "CON_"),
        ("con.txt", "con_.txt"),
        ("Nul.tar.gz", "Nul_.tar.gz"),
        ("COM1", "COM1_"),
        ("lpt³.log", "lpt³_.log"),
        ("CONIN$", "CONIN$_"),
        ("aux .c", "aux_ .c"),
        ("CONSOLE", "CONSOLE"),
        ("COM10", "COM10"),
        ("com", "com"),
    ] {
        assert_eq!(clean_name(raw), expected, "{raw:?}");
    }
}

#[test]
fn a_long_name_keeps_its_extension_and_whole_characters() {
    let cleaned = clean_name(format!("{}.tar.gz", "報".repeat(100)));
    assert!(
        cleaned.len() <= MAX_CLEAN_NAME_BYTES
            && cleaned.len() > MAX_CLEAN_NAME_BYTES - 3
            && cleaned.ends_with("報.tar.gz")
    );
    let cleaned = clean_name(format!("a.{}", "x".repeat(300)));
    assert_eq!(cleaned.len(), MAX_CLEAN_NAME_BYTES);
}

#[test]
fn invalid_bytes_become_an_underscore() {
    assert_eq!(clean_name(b"a\xFF\xFEb.txt"), "a__b.txt");
    assert_eq!(shown_text(b"a\xFFb", 10), "a\u{FFFD}b");
}

#[test]
fn r_15_shown_text_cannot_control_a_terminal() {
    assert_eq!(
        shown_text(
            "a\u{1b}[31m\n\u{85}\u{2028}\u{202e}\u{9b}z",
            MAX_SHOWN_CHARACTERS
        ),
        "a?[31m?????z"
    );
    assert_eq!(
        shown_text("👩\u{200D}👧", MAX_SHOWN_CHARACTERS),
        "👩\u{200D}👧"
    );
    assert_eq!(shown_text("abcdef", 4), "abc…");
    assert_eq!(shown_text("abcd", 4), "abcd");
    assert_eq!(shown_text("abcd", 0), "");
    assert_eq!(shown_name("/home/u/secret/a\n.pdf"), "a?.pdf");
    assert_eq!(shown_name("///"), "file");
}

#[test]
fn r_15_a_name_in_a_prompt_has_no_bracket_and_an_end() {
    assert_eq!(for_prompt("a]b[c.txt"), "a_b_c.txt");
    let long = for_prompt(format!("{}.pdf", "é".repeat(90)));
    assert_eq!(long, format!("{}.pdf", "é".repeat(90)));
    let long = for_prompt(format!("{}.pdf", "x".repeat(190)));
    assert_eq!(
        (long.chars().count(), long.ends_with("x.pdf")),
        (MAX_PROMPT_NAME_CHARACTERS, true)
    );
    assert_eq!(upload_name("x/[1].csv"), "_1_.csv");
}

#[test]
fn numbers_are_before_the_extension() {
    assert_eq!(numbered_name("report.csv", 2), "report_2.csv");
    assert_eq!(numbered_name("a.tar.gz", 3), "a_3.tar.gz");
    assert_eq!(numbered_name("Makefile", 2), "Makefile_2");
    assert_eq!(numbered_name(".env", 2), ".env_2");
    assert_eq!(cli_numbered("report.pdf", 2), "report (2).pdf");
    let long = numbered_name(&format!("{}.csv", "é".repeat(140)), 12);
    assert!(long.len() <= MAX_FILE_NAME_BYTES && long.ends_with("é_12.csv"));
}

#[test]
fn the_part_name_fits_a_file_system() {
    assert_eq!(
        part_file_name("report.csv", "7f3a"),
        b".report.csv.7f3a.part"
    );
    let long = part_file_name("é".repeat(200), "0123456789abcdef");
    assert!(long.len() <= MAX_FILE_NAME_BYTES && str::from_utf8(&long).is_ok());
    let bytes = part_file_name(vec![0xFF; 300], "n");
    assert_eq!(bytes.len(), MAX_FILE_NAME_BYTES);
    let nonce = part_file_name("a", &"n".repeat(500));
    assert!(nonce.len() <= MAX_FILE_NAME_BYTES && nonce.ends_with(b".part"));
}

#[test]
fn names_are_split_into_stem_and_extension() {
    for (name, stem, extension) in [
        ("a.txt", "a", ".txt"),
        ("a.TAR.gz", "a", ".TAR.gz"),
        (".tar.gz", ".tar", ".gz"),
        ("v1.2", "v1", ".2"),
        ("a.", "a.", ""),
        (".hidden", ".hidden", ""),
        ("Mr. Smith", "Mr. Smith", ""),
        (
            "a.an extension far too long to be one",
            "a.an extension far too long to be one",
            "",
        ),
    ] {
        assert_eq!(split_stem(name), (stem, extension), "{name}");
    }
    assert_eq!(extension_of("/x.d/a.B.GZ"), "gz");
    assert_eq!(extension_of("/x.d/a"), "");
}

#[test]
fn object_keys_are_ascii() {
    for (name, key) in [
        ("report.csv", "report.csv"),
        ("Q3 report (final).csv", "Q3_report_final_.csv"),
        ("报告.pdf", "file.pdf"),
        ("../../etc/passwd", "passwd"),
        (".env", "_env"),
        ("a?b=c&d#e.txt", "a_b_c_d_e.txt"),
    ] {
        assert_eq!(ascii_safe(name), key, "{name}");
    }
}

#[test]
fn r_15_a_name_cannot_break_out_of_a_header() {
    assert_eq!(
        attachment_disposition("a b.pdf"),
        "attachment; filename=\"a b.pdf\""
    );
    assert_eq!(
        attachment_disposition("报告.pdf"),
        "attachment; filename=\"file.pdf\"; filename*=UTF-8''%E6%8A%A5%E5%91%8A.pdf"
    );
    assert_eq!(
        attachment_disposition("a\"b\\c%41.txt"),
        "attachment; filename=\"a\\\"b\\\\c%41.txt\"; filename*=UTF-8''a%22b%5Cc%2541.txt"
    );
    assert_eq!(
        attachment_disposition("x\r\nSubject: a=b.txt"),
        "attachment; filename=\"xSubject_a_b.txt\"; filename*=UTF-8''x%0D%0ASubject%3A%20a%3Db.txt"
    );
}

proptest! {
    #[test]
    fn a_clean_name_is_safe_and_cleaning_does_not_change_it(raw in prop::collection::vec(any::<u8>(), 0..400)) {
        sound(&clean_name(&raw))?;
    }

    #[test]
    fn any_text_becomes_a_clean_name(raw in "(\\.|/|CON|é|e\u{301}|報|\u{202e}|\u{ad}| |[a-z.\\\\]|\\PC){0,120}(\\.[a-z]{1,30})?") {
        sound(&clean_name(&raw))?;
    }

    #[test]
    fn lengths_are_kept(raw in "\\PC{0,300}", n: u32, max in 0_usize..250) {
        prop_assert!(numbered_name(&raw, n).len() <= MAX_FILE_NAME_BYTES);
        prop_assert!(cli_numbered(&raw, n).len() <= MAX_FILE_NAME_BYTES);
        prop_assert!(part_file_name(&raw, "abc").len() <= MAX_FILE_NAME_BYTES);
        prop_assert!(shown_text(&raw, max).chars().count() <= max);
        prop_assert!(for_prompt(&raw).chars().count() <= MAX_PROMPT_NAME_CHARACTERS);
        let key = ascii_safe(&raw);
        prop_assert!(key.is_ascii() && !key.is_empty() && key.len() <= 150 && !key.starts_with('.') && !key.contains('/'));
    }

    #[test]
    fn no_header_contains_a_line_end_or_an_open_quote(raw in "(\\PC|\r|\n|\"|\\\\|\0){0,40}") {
        prop_assert!(!attachment_disposition(&raw).contains(char::is_control));
        // The quoted value ends at its closing quote.
        let value = attachment_disposition(&raw);
        let value = value.split_once("filename=\"").unwrap().1;
        let mut escaped = false;
        let end = value.bytes().position(|byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        });
        let rest = &value[end.unwrap() + 1..];
        prop_assert!(rest.is_empty() || rest.starts_with("; filename*=UTF-8''"));
        prop_assert!(value.is_ascii());
    }
}

/// The properties of every cleaned name.
fn sound(name: &str) -> Result<(), TestCaseError> {
    prop_assert!(
        !name.is_empty() && name.len() <= MAX_CLEAN_NAME_BYTES,
        "{name:?}"
    );
    prop_assert!(
        !name.starts_with('.') && !name.contains(['/', '\\']),
        "{name:?}"
    );
    prop_assert!(
        !name.chars().any(crate::chars::is_control_or_format),
        "{name:?}"
    );
    prop_assert_eq!(clean_name(name), name);
    prop_assert_eq!(clean_name(upload_name(name)), upload_name(name));
    Ok(())
}
