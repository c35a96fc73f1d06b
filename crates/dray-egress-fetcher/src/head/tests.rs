//! Tests of response heads, rule by rule.

use http::{HeaderValue, StatusCode};

use super::*;

const HEAD_LIMIT_BYTES: u64 = 1000;

fn head(status: u16, fields: &[(&str, &[u8])]) -> Parts {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = StatusCode::from_u16(status).unwrap();
    for (name, value) in fields {
        parts.headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
    }
    parts
}

fn check_framing(fields: &[(&str, &[u8])], expected: Result<BodyFraming, Code>) {
    let judged = judge_head(&head(200, fields), HEAD_LIMIT_BYTES).map(|judged| match judged {
        HeadDecision::Body(plan) => plan.framing,
        HeadDecision::Redirect(_) => panic!("the head must not be a redirect"),
    });
    assert_eq!(judged, expected, "{fields:?}");
}

#[test]
fn r_3_transfer_encoding_is_absent_or_exactly_chunked() {
    check_framing(&[], Ok(BodyFraming::Close));
    check_framing(
        &[("transfer-encoding", b"chunked")],
        Ok(BodyFraming::Chunked),
    );
    for wrong in [
        "xchunked",
        "chunked, gzip",
        "gzip, chunked",
        "chunked, chunked",
        "Chunked",
        "chunked;q=1",
        "identity",
        "",
    ] {
        check_framing(
            &[("transfer-encoding", wrong.as_bytes())],
            Err(Code::MalformedResponse),
        );
    }
    check_framing(
        &[
            ("transfer-encoding", b"chunked"),
            ("transfer-encoding", b"chunked"),
        ],
        Err(Code::MalformedResponse),
    );
}

#[test]
fn r_3_transfer_encoding_excludes_content_length_and_http_1_0() {
    check_framing(
        &[("transfer-encoding", b"chunked"), ("content-length", b"5")],
        Err(Code::MalformedResponse),
    );
    let mut old = head(200, &[("transfer-encoding", b"chunked")]);
    old.version = Version::HTTP_10;
    assert_eq!(
        judge_head(&old, HEAD_LIMIT_BYTES),
        Err(Code::MalformedResponse)
    );
    old.version = Version::HTTP_2;
    assert_eq!(
        judge_head(&old, HEAD_LIMIT_BYTES),
        Err(Code::MalformedResponse),
        "HTTP/2 does not have the field"
    );
    old.headers.clear();
    let judged = judge_head(&old, HEAD_LIMIT_BYTES);
    assert!(matches!(judged, Ok(HeadDecision::Body(plan)) if plan.framing == BodyFraming::Framed));
    old.version = Version::HTTP_3;
    assert_eq!(
        judge_head(&old, HEAD_LIMIT_BYTES),
        Err(Code::MalformedResponse),
        "R-2"
    );
}

#[test]
fn r_4_content_length_is_one_plain_number() {
    check_framing(&[("content-length", b"7")], Ok(BodyFraming::Length(7)));
    check_framing(
        &[("content-length", b"7"), ("content-length", b"7")],
        Ok(BodyFraming::Length(7)),
    );
    for wrong in [
        "+7",
        "-7",
        "0x7",
        "7 ",
        "7,7",
        "7, 8",
        "",
        "18446744073709551616",
        "7a",
    ] {
        check_framing(
            &[("content-length", wrong.as_bytes())],
            Err(Code::MalformedResponse),
        );
    }
    check_framing(
        &[("content-length", b"7"), ("content-length", b"8")],
        Err(Code::MalformedResponse),
    );
}

#[test]
fn r_4_a_length_above_the_limit_is_refused_before_the_body() {
    check_framing(
        &[("content-length", b"1000")],
        Ok(BodyFraming::Length(1000)),
    );
    check_framing(&[("content-length", b"1001")], Err(Code::TooLarge));
    check_framing(
        &[("content-length", b"9223372036854775808")],
        Err(Code::TooLarge),
    );
}

#[test]
fn r_5_every_status_is_read_redirected_or_refused() {
    for status in 200..=999 {
        let judged = judge_head(&head(status, &[("location", b"/next")]), HEAD_LIMIT_BYTES);
        match status {
            206 => assert_eq!(judged, Err(Code::UnexpectedPartial)),
            200..=299 => assert!(matches!(judged, Ok(HeadDecision::Body(_))), "{status}"),
            301 | 302 | 303 | 307 | 308 => {
                assert_eq!(
                    judged,
                    Ok(HeadDecision::Redirect(vec![b"/next".to_vec()])),
                    "{status}"
                );
            }
            _ => assert_eq!(judged, Err(Code::HttpStatus(status)), "{status}"),
        }
    }
    assert_eq!(
        judge_head(&head(101, &[]), HEAD_LIMIT_BYTES),
        Err(Code::MalformedResponse)
    );
}

#[test]
fn r_5_204_and_205_have_no_body_to_read() {
    for status in [204, 205] {
        let Ok(HeadDecision::Body(plan)) = judge_head(
            &head(status, &[("content-length", b"5000")]),
            HEAD_LIMIT_BYTES,
        ) else {
            panic!("{status}");
        };
        assert_eq!(plan.framing, BodyFraming::Empty);
    }
}

#[test]
fn r_5_a_206_passes_only_as_the_whole() {
    let range = |value: &[u8]| match judge_head(
        &head(206, &[("content-range", value)]),
        HEAD_LIMIT_BYTES,
    ) {
        Ok(HeadDecision::Body(plan)) => plan.whole,
        Ok(HeadDecision::Redirect(_)) => panic!("the head must not be a redirect"),
        Err(code) => {
            assert_eq!(code, Code::UnexpectedPartial);
            None
        }
    };
    assert_eq!(range(b"bytes 0-9/10"), Some(10));
    for wrong in [
        "bytes 0-8/10",
        "bytes 1-9/10",
        "bytes 0-9/*",
        "bytes */10",
        "bytes 0--1/0",
        "bytes 0-18446744073709551615/0",
        "items 0-9/10",
        "",
    ] {
        assert_eq!(range(wrong.as_bytes()), None, "{wrong}");
    }
    let twice = head(
        206,
        &[
            ("content-range", b"bytes 0-9/10"),
            ("content-range", b"bytes 0-9/10"),
        ],
    );
    assert_eq!(
        judge_head(&twice, HEAD_LIMIT_BYTES),
        Err(Code::UnexpectedPartial)
    );
}

#[test]
fn a_416_confirms_a_body_within_the_limit_alone() {
    for (received, expected) in [(1000, Ok(Some(1000))), (1001, Err(Code::TooLarge))] {
        let resume = BodyResumption {
            received,
            total: None,
            coding: None,
            validator: HeaderValue::from_static("\"a\""),
        };
        let range = format!("bytes */{received}");
        let parts = head(416, &[("content-range", range.as_bytes())]);
        let judged =
            judge_remainder(&parts, HEAD_LIMIT_BYTES, &resume).map(|judged| match judged {
                HeadDecision::Body(plan) => plan.whole,
                HeadDecision::Redirect(_) => panic!("the head must not be a redirect"),
            });
        assert_eq!(judged, expected);
    }
}

#[test]
fn b_4_one_known_coding_or_none() {
    let coding = |fields: &[(&str, &[u8])]| match judge_head(&head(200, fields), HEAD_LIMIT_BYTES) {
        Ok(HeadDecision::Body(plan)) => Ok(plan.coding),
        Ok(HeadDecision::Redirect(_)) => panic!("the head must not be a redirect"),
        Err(code) => Err(code),
    };
    assert_eq!(coding(&[]), Ok(None));
    assert_eq!(coding(&[("content-encoding", b" Identity ")]), Ok(None));
    assert_eq!(
        coding(&[("content-encoding", b"x-GZIP")]),
        Ok(Some(ContentCoding::Gzip))
    );
    assert_eq!(
        coding(&[("content-encoding", b"deflate,")]),
        Ok(Some(ContentCoding::Deflate))
    );
    assert_eq!(
        coding(&[("content-encoding", b"BR")]),
        Ok(Some(ContentCoding::Brotli))
    );
    assert_eq!(
        coding(&[("content-encoding", b" zstd ")]),
        Ok(Some(ContentCoding::Zstandard))
    );
    for wrong in [
        "dcb",
        "dcz",
        "br, zstd",
        "compress",
        "gzip, gzip",
        "identity, gzip",
        "x",
    ] {
        assert_eq!(
            coding(&[("content-encoding", wrong.as_bytes())]),
            Err(Code::UnsupportedEncoding),
            "{wrong}"
        );
    }
    assert_eq!(
        coding(&[("content-encoding", b"gzip"), ("content-encoding", b"gzip")]),
        Err(Code::UnsupportedEncoding)
    );
}

#[test]
fn r_6_redirect_lookalikes_are_ignored() {
    let fields: &[(&str, &[u8])] = &[
        ("location", b"http://169.254.169.254/"),
        ("refresh", b"0; url=http://169.254.169.254/"),
        ("content-location", b"/other"),
        ("link", b"</other>; rel=next"),
        ("alt-svc", b"h3=\":443\""),
        ("set-cookie", b"a=b"),
        ("strict-transport-security", b"max-age=1"),
    ];
    let Ok(HeadDecision::Body(plan)) = judge_head(&head(200, fields), HEAD_LIMIT_BYTES) else {
        panic!("a 200 must have a body");
    };
    assert_eq!(plan.labels, ResponseLabels::default());
}
