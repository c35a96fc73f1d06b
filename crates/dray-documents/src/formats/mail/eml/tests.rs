//! EML files as people send them, and broken ones.

use std::fmt::Write as _;

use crate::formats::text::testing::{convert_bytes, convert_to_markdown, test_hint};
use crate::limits::{Limit, Limits};

fn eml(source: &str) -> String {
    convert_to_markdown("message/rfc822", "eml", source.as_bytes())
}

#[test]
fn headers_are_decoded_and_listed() {
    let text = eml(
        "Received: from x\r\nFrom: =?utf-8?Q?J=C3=BCrgen?= <j@a.example>\r\nTo: \"Doe, Jane\" <jane@b.example>,\r\n\
         \tplain@c.example\r\nCc: Team: a@d.example, b@d.example;\r\nDate: Fri, 14 Mar 2031 09:30:00 +0100\r\n\
         Subject: =?iso-2022-jp?B?GyRCRnxLXBsoQg==?= and\r\n more *stars*\r\n\r\nHello\r\n",
    );
    assert_eq!(
        text,
        "- From: Jürgen <j@a.example>\n- To: Doe, Jane <jane@b.example>, plain@c.example\n\
         - Cc: a@d.example, b@d.example\n- Date: 2031-03-14T09:30:00+01:00\n- Subject: 日本 and more \\*stars\\*\n\nHello\n"
    );
}

#[test]
fn a_plain_body_keeps_its_lines_and_quotes() {
    let text =
        eml("Subject: s\n\nHi,\n# no heading\n\n> said\n> > before\n>\n> again\nbye\n-- \nme\n");
    assert_eq!(
        text,
        "- Subject: s\n\nHi,\n\\# no heading\n\n> said\n> >\n> > before\n>\n> again\n\nbye\n\\--\nme\n"
    );
}

#[test]
fn plain_text_wins_over_html_and_attachments_are_listed() {
    let text = eml(
        "Subject: s\r\nContent-Type: multipart/mixed; boundary=\"o u\"\r\n\r\nfor old readers\r\n--o u\r\n\
         Content-Type: multipart/alternative; boundary=in\r\n\r\n--in\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\
         Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe=\r\n!\r\n--in\r\nContent-Type: text/html\r\n\r\n<p>html</p>\r\n\
         --in--\r\n--o u\r\nContent-Type: application/pdf; name=\"a.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Disposition: attachment; filename*=utf-8''%C3%BC.pdf\r\n\r\nSGVsbG8=\r\n--o u\r\nContent-Type: message/rfc822\r\n\r\n\
         Subject: inner\r\n\r\nnever shown\r\n--o u\r\nContent-Type: text/plain; name=notes.txt\r\n\
         Content-Disposition: attachment\r\n\r\n12345\r\n--o u--\r\n",
    );
    assert_eq!(
        text,
        "- Subject: s\n\nGrüße!\n\n### Attachments\n\n- ü.pdf (application/pdf, 5 bytes)\n\
         - inner (message/rfc822, 29 bytes)\n- notes.txt (text/plain, 5 bytes)\n"
    );
}

#[test]
fn html_is_shown_without_a_plain_text_part() {
    let text = eml(
        "Subject: s\nContent-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html; charset=utf-8\n\
         Content-Transfer-Encoding: base64\n\nPGgxPkg8L2gxPjxwIGhpZGRlbj54PC9wPjxwPsOpPC9wPg==\n--b\nContent-Type: image/png; name=i.png\n\
         Content-Transfer-Encoding: base64\n\nAAAA\n--b--\n",
    );
    assert_eq!(
        text,
        "- Subject: s\n\n# H\n\né\n\n### Attachments\n\n- i.png (image/png, 3 bytes)\n"
    );
}

#[test]
fn blank_alternatives_do_not_count() {
    let text = eml(
        "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n \n--b\nContent-Type: text/html\n\n<b>x</b>\n--b--\n",
    );
    assert_eq!(text, "**x**\n");
}

#[test]
fn a_page_is_shown_where_the_plain_text_is_only_a_note_about_it() {
    let story = "word ".repeat(80);
    let mail = |note: &str| {
        eml(&format!(
            "Content-Type: multipart/alternative; boundary=b\n\n--b\nContent-Type: text/plain\n\n{note}\n--b\n\
             Content-Type: text/html\n\n<p>{story}</p>\n--b--\n"
        ))
    };
    assert_eq!(
        mail("Please view this in a browser."),
        format!("{}\n", story.trim())
    );
    let text = "said ".repeat(60);
    assert_eq!(mail(&text), format!("{}\n", text.trim()));
}

#[test]
fn the_encoding_of_a_legacy_body_that_is_declared_as_ascii_is_detected() {
    let source = b"Subject: s\nContent-Type: text/plain; charset=us-ascii\n\nGr\xF6\xDFe und L\xE4nge, sch\xF6n und gr\xFCn";
    assert_eq!(
        convert_to_markdown("message/rfc822", "eml", source),
        "- Subject: s\n\nGröße und Länge, schön und grün\n"
    );
}

#[test]
fn broken_messages_show_their_readable_parts() {
    for (source, text) in [
        ("", ""),
        ("\n\n", ""),
        ("Subject: s", "- Subject: s\n"),
        ("From x@y Mon\nSubject: s\n\nb", "- Subject: s\n\nb\n"),
        (
            "Subject: s\nContent-Type: multipart/mixed\n\ntext",
            "- Subject: s\n\ntext\n",
        ),
        (
            "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nopen end",
            "open end\n",
        ),
        (
            "Date: someday\nTo:\nContent-Type: ;;;\n\nx",
            "- Date: someday\n\nx\n",
        ),
        ("\nonly a body", "only a body\n"),
    ] {
        assert_eq!(eml(source), text, "{source:?}");
    }
}

#[test]
fn parts_of_any_depth_and_number_are_read_within_the_limits() {
    let mut source = String::from("Subject: s\n");
    for level in 0..20_000 {
        let _ = write!(
            source,
            "Content-Type: multipart/mixed; boundary=b{level}\n\n--b{level}\n"
        );
    }
    source.push_str("\ndeep");
    let conversion = convert_bytes(
        &test_hint("message/rfc822", "eml"),
        source.as_bytes(),
        Limits::default(),
    );
    assert_eq!(
        (conversion.failure, conversion.markdown.as_str()),
        (None, "- Subject: s\n")
    );
    assert_eq!(
        conversion.warnings,
        ["parts nested too deeply are not shown"]
    );

    let nested = "Content-Type: message/rfc822\n\n".repeat(50_000);
    let conversion = convert_bytes(
        &test_hint("message/rfc822", "eml"),
        nested.as_bytes(),
        Limits::default(),
    );
    assert!(
        conversion.markdown.starts_with("### Attachments"),
        "{}",
        conversion.markdown
    );

    let many = format!(
        "Content-Type: multipart/mixed; boundary=b\n\n{}",
        "--b\nX: y\n\nz\n".repeat(60_000)
    );
    let conversion = convert_bytes(
        &test_hint("message/rfc822", "eml"),
        many.as_bytes(),
        Limits::default(),
    );
    assert_eq!(
        conversion.failure,
        Some(crate::limits::Failure::Stopped(Limit::Element))
    );
}

#[test]
fn headers_in_the_encoding_of_the_body_are_readable() {
    let mail = |charset: &str| {
        let mut bytes = Vec::new();
        let text = format!(
            "From: Иван <i@a.example>\r\nSubject: Привет, как дела\r\nContent-Type: text/plain{charset}\r\n\r\n\
             Привет всем, это письмо\r\n"
        );
        bytes.extend_from_slice(&encoding_rs::WINDOWS_1251.encode(&text).0);
        convert_to_markdown("message/rfc822", "eml", &bytes)
    };
    for charset in ["; charset=windows-1251", "", "; charset=us-ascii"] {
        assert_eq!(
            mail(charset),
            "- From: Иван <i@a.example>\n- Subject: Привет, как дела\n\nПривет всем, это письмо\n",
            "{charset}"
        );
    }
}

#[test]
fn headers_beside_a_body_of_utf_8_are_readable_too() {
    let mut bytes = b"Subject: ".to_vec();
    bytes.extend_from_slice(
        &encoding_rs::WINDOWS_1252
            .encode("Größe und Länge prüfen, bitte schön")
            .0,
    );
    let body = "Größe и много других слов ".repeat(9);
    bytes.extend_from_slice(
        format!("\nContent-Type: text/plain; charset=utf-8\n\n{body}\n").as_bytes(),
    );
    let text = convert_to_markdown("message/rfc822", "eml", &bytes);
    assert!(
        text.starts_with("- Subject: Größe und Länge prüfen, bitte schön\n\nGröße и"),
        "{text}"
    );
}

#[test]
fn a_body_of_utf_7_is_decoded() {
    assert_eq!(
        eml(
            "Subject: =?utf-7?Q?Fr+APY-sche?=\nContent-Type: text/plain; charset=UTF-7\n\nFr+APY-sche +ACI-da+ACI-\n"
        ),
        "- Subject: Frösche\n\nFrösche \"da\"\n"
    );
}

#[test]
fn a_date_of_an_unknown_zone_stays_as_it_is_written() {
    for zone in ["CEST", "A"] {
        assert_eq!(
            eml(&format!(
                "Date: Thu, 10 Jul 1997 14:53:31 {zone}\nSubject: s\n\nb\n"
            )),
            format!("- Date: Thu, 10 Jul 1997 14:53:31 {zone}\n- Subject: s\n\nb\n")
        );
    }
    assert_eq!(
        eml("Date: Thu, 10 Jul 1997 14:53:31 EDT (summer)\nSubject: s\n\nb\n"),
        "- Date: 1997-07-10T14:53:31-04:00\n- Subject: s\n\nb\n"
    );
}
