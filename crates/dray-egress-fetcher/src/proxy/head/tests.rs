//! Tests of heads that have one reading, and of heads that smuggle a request.

use super::*;

fn parse(lines: &[&str]) -> Result<ProxyRequest, HeadError> {
    parse_as(RequestRecipient::Proxy, lines)
}

fn parse_as(recipient: RequestRecipient, lines: &[&str]) -> Result<ProxyRequest, HeadError> {
    let head = format!("{}\r\n\r\n", lines.join("\r\n"));
    parse_head(head.as_bytes(), recipient)
}

fn parse_refused(lines: &[&str]) -> HeadError {
    parse(lines).unwrap_err()
}

const CONNECT_LINE: &str = "CONNECT files.example.org:443 HTTP/1.1";
const GET_LINE: &str = "GET http://files.example.org/a HTTP/1.1";
const POST_LINE: &str = "POST http://files.example.org/a HTTP/1.1";
const HOST_FIELD: &str = "Host: files.example.org";

#[test]
fn a_tunnel_and_a_url_are_read() {
    let tunnel = parse(&[CONNECT_LINE, "Host: files.example.org:443"]).unwrap();
    assert_eq!(
        tunnel.target,
        RequestTarget::Authority("files.example.org:443".to_owned())
    );
    assert_eq!(tunnel.framing, RequestFraming::Empty);
    let url = tunnel.url(|_| false).unwrap();
    assert!(url.https() && tunnel.has_fitting_host(&url));
    assert!(!tunnel.url(|port| port == 443).unwrap().https());
    let get = parse(&[GET_LINE, HOST_FIELD, "X-Odd: \u{e9}"]).unwrap();
    assert_eq!(get.url(|_| false).unwrap().path(), "/a");
    let old = parse(&["CONNECT files.example.org:443 HTTP/1.0"]).unwrap();
    assert!(old.is_http_10 && old.has_fitting_host(&url));
    let zero = parse(&[CONNECT_LINE, HOST_FIELD, "Content-Length: 0"]).unwrap();
    assert_eq!(zero.framing, RequestFraming::Empty);
    for line in [
        "CONNECT files.example.org:80 HTTP/1.1",
        "CONNECT files.example.org:8443 HTTP/1.1",
    ] {
        let tunnel = parse(&[line, HOST_FIELD]).unwrap();
        assert!(
            tunnel.has_fitting_host(&tunnel.url(|_| false).unwrap()),
            "{line}"
        );
    }
}

#[test]
fn a_host_field_that_names_another_host_does_not_fit() {
    for field in [
        "Host: other.example.org",
        "Host: files.example.org:444",
        "Host: 127.0.0.1",
        "Host:",
        "Host: files.example.org\u{e9}",
        "Host: files.example.org:",
        "Host: files.example.org:443:443",
    ] {
        let request = parse(&[CONNECT_LINE, field]).unwrap();
        let url = request.url(|_| false).unwrap();
        assert!(!request.has_fitting_host(&url), "{field}");
    }
}

/// How the body of a `POST_LINE` with these fields is framed.
fn framing(fields: &[&str]) -> Result<RequestFraming, HeadError> {
    let mut lines = vec![POST_LINE, HOST_FIELD];
    lines.extend(fields);
    parse(&lines).map(|request| request.framing)
}

#[test]
fn a_body_has_a_length_or_chunks() {
    let largest = "Content-Length: 9223372036854775807";
    assert!(framing(&[largest, "X_Content_Length: 5"]).is_ok());
    // A blank at the end of a value does not belong to it (RFC 9110, section 5.5).
    for length in ["Content-Length: 5", "Content-Length: 5 "] {
        assert_eq!(framing(&[length]), Ok(RequestFraming::Length(5)));
    }
    let chunked = "Transfer-Encoding: chunked";
    assert_eq!(framing(&[chunked]), Ok(RequestFraming::Chunked));
    let old = "POST http://files.example.org/a HTTP/1.0";
    assert_eq!(parse_refused(&[old, chunked]), HeadError::Coding);
    for field in ["Content-Length: 5", chunked] {
        let lines = [CONNECT_LINE, HOST_FIELD, field];
        assert_eq!(parse_refused(&lines), HeadError::Framing);
    }
}

#[test]
#[rustfmt::skip]
fn every_form_of_request_smuggling_is_refused() {
    for (fields, expected) in [
        (&["Content-Length: 5", "Transfer-Encoding: chunked"][..], HeadError::Framing),
        (&["Content-Length: 5", "Content-Length: 5"], HeadError::Framing),
        (&["Content-Length: 5", "Content-Length: 6"], HeadError::Framing),
        (&["Content-Length: 5, 5"], HeadError::Framing),
        (&["Content-Length: +5"], HeadError::Framing),
        (&["Content-Length: 0x5"], HeadError::Framing),
        (&["Content-Length:"], HeadError::Framing),
        (&["Content-Length: 18446744073709551616"], HeadError::Framing),
        (&["Content-Length: 9223372036854775808"], HeadError::Framing),
        (&["Content_Length: 5"], HeadError::Name),
        (&["content_length: 0", "Content-Length: 5"], HeadError::Name),
        (&["Transfer_Encoding: chunked"], HeadError::Name),
        (&["_Transfer_Encoding: chunked"], HeadError::Name),
        (&["Host_: other.example.org"], HeadError::Name),
        (&["Transfer-Encoding: xchunked"], HeadError::Coding),
        (&["Transfer-Encoding: gzip, chunked"], HeadError::Coding),
        (&["Transfer-Encoding: chunked, identity"], HeadError::Coding),
        (&["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], HeadError::Framing),
        (&["Transfer-Encoding: \u{b}chunked"], HeadError::Syntax),
        (&["Transfer-Encoding : chunked"], HeadError::Syntax),
        (&["Content-Length : 5"], HeadError::Syntax),
        (&["X: y\r\n Content-Length: 5"], HeadError::Folded),
        (&["X: y\r\n\tContent-Length: 5"], HeadError::Folded),
        (&["X: y\nContent-Length: 5"], HeadError::BareLineEnd),
        (&["X: y\rContent-Length: 5"], HeadError::BareLineEnd),
        (&["X: y\0Content-Length: 5"], HeadError::Syntax),
    ] {
        assert_eq!(framing(fields).unwrap_err(), expected, "{fields:?}");
    }
}

#[test]
fn heads_that_are_not_proxy_requests_are_refused() {
    for (lines, expected) in [
        (&["GET / HTTP/1.1", HOST_FIELD][..], HeadError::Target),
        (
            &["GET //files.example.org/ HTTP/1.1", HOST_FIELD],
            HeadError::Target,
        ),
        (&["OPTIONS * HTTP/1.1", HOST_FIELD], HeadError::Target),
        (
            &["GET files.example.org:80 HTTP/1.1", HOST_FIELD],
            HeadError::Target,
        ),
        (&[GET_LINE], HeadError::Host),
        (&[GET_LINE, HOST_FIELD, HOST_FIELD], HeadError::Host),
        (&["PRI * HTTP/2.0"], HeadError::Version),
        (&["GET http://files.example.org/"], HeadError::Syntax),
        (
            &["GET  http://files.example.org/ HTTP/1.1", HOST_FIELD],
            HeadError::Syntax,
        ),
        (
            &["GET http://files.example.org/a b HTTP/1.1", HOST_FIELD],
            HeadError::Version,
        ),
        (&["", GET_LINE, HOST_FIELD], HeadError::Syntax),
        (
            &[
                CONNECT_LINE,
                HOST_FIELD,
                "Proxy-Authorization: a",
                "Proxy-Authorization: b",
            ],
            HeadError::Credentials,
        ),
    ] {
        let error = parse_refused(lines);
        // The parser calls a third word of the request line a wrong version or wrong syntax, by its version.
        let is_either = matches!(error, HeadError::Syntax | HeadError::Version)
            && matches!(expected, HeadError::Syntax | HeadError::Version);
        assert!(error == expected || is_either, "{lines:?}: {error:?}");
    }
}

#[test]
fn u_3_targets_are_read_by_the_rules_of_a_url() {
    for (line, code) in [
        (
            "GET https://files.example.org/ HTTP/1.1",
            Code::UnsupportedScheme,
        ),
        (
            "GET ftp://files.example.org/ HTTP/1.1",
            Code::UnsupportedScheme,
        ),
        (
            "GET http://u:p@files.example.org/ HTTP/1.1",
            Code::UrlCredentials,
        ),
        ("GET http://2130706433/ HTTP/1.1", Code::AmbiguousHost),
        ("CONNECT files.example.org HTTP/1.1", Code::InvalidUrl),
        ("CONNECT a%0d%0aX:443 HTTP/1.1", Code::InvalidUrl),
        (
            "CONNECT http://files.example.org/ HTTP/1.1",
            Code::InvalidUrl,
        ),
    ] {
        let request = parse(&[line, HOST_FIELD]).unwrap();
        assert_eq!(request.url(|_| false).unwrap_err(), code, "{line}");
    }
}

#[test]
fn size_and_number_of_fields_are_bounded() {
    let long = format!("X: {}", "a".repeat(MAX_HEAD_BYTES));
    assert_eq!(
        parse_refused(&[GET_LINE, HOST_FIELD, &long]),
        HeadError::TooLarge
    );
    let mut many = vec![GET_LINE, HOST_FIELD];
    many.extend(std::iter::repeat_n("X: y", MAX_FIELDS - 1));
    assert!(parse(&many).is_ok());
    many.push("X: y");
    assert_eq!(parse_refused(&many), HeadError::TooLarge);
}

#[test]
fn the_end_of_a_head_is_found_for_any_chunks() {
    let text = b"GET http://files.example.org/ HTTP/1.1\r\nHost: x\r\n\r\nrest";
    let mut found = None;
    for length in 1..=text.len() {
        found = found.or(head_length(&text[..length], length - 1));
    }
    assert_eq!(found, Some(text.len() - 4));
    assert_eq!(head_length(text, 0), found);
    assert_eq!(head_length(b"GET", 0), None);
}

#[test]
fn a_beginning_is_refused_with_the_byte_that_breaks_a_rule_for_any_chunks() {
    for (text, refused_at, error) in [
        (
            "GET / HTTP/1.1\nHost: a\n",
            15_usize,
            HeadError::BareLineEnd,
        ),
        ("GET / HTTP/1.1\r\nHost: a\n", 24, HeadError::BareLineEnd),
        ("GET / HTTP/1.1\rHost: a\r\n", 16, HeadError::BareLineEnd),
        ("GET / HTTP/1.1\r\nA: b\r\n c\r\n", 23, HeadError::Folded),
    ] {
        let bytes = text.as_bytes();
        for chunk in 1..=bytes.len() {
            let mut searched = 0;
            let mut ends = (chunk..bytes.len()).step_by(chunk).chain([bytes.len()]);
            let refused = ends.find_map(|end| {
                let checked = check_beginning(&bytes[..end], searched);
                searched = end;
                checked.err().map(|error| (end, error))
            });
            // The first chunk that has the byte.
            let end = refused_at.div_ceil(chunk) * chunk;
            assert_eq!(
                refused,
                Some((end.min(bytes.len()), error)),
                "{text:?} {chunk}"
            );
        }
    }
    let valid = b"GET / HTTP/1.1\r\nHost: a\r\n\r";
    for (end, searched) in (1..=valid.len()).flat_map(|end| (0..end).map(move |from| (end, from))) {
        assert_eq!(check_beginning(&valid[..end], searched), Ok(()));
    }
}

/// The URL of a `GET` inside a tunnel to `files.example.org:443`, and whether its `Host` field fits.
fn url_inside_tunnel(target: &str, host: &str) -> Result<(String, bool), Option<Code>> {
    let lines = [&format!("GET {target} HTTP/1.1"), &format!("Host: {host}")];
    let lines: Vec<&str> = lines.iter().map(|line| line.as_str()).collect();
    let request = parse_as(RequestRecipient::Server, &lines).map_err(|_| None)?;
    let tunnel = CanonicalUrl::of_authority("files.example.org:443", true).unwrap();
    let url = request.url_in_tunnel(&tunnel)?;
    Ok((url.to_string(), request.has_fitting_host(&url)))
}

#[test]
fn a_request_inside_a_tunnel_stays_with_its_host_and_port() {
    let own = "files.example.org";
    for (target, url) in [
        ("/a?b=c", "https://files.example.org/a?b=c"),
        (
            "//other.example.org/a",
            "https://files.example.org//other.example.org/a",
        ),
        (
            "/@other.example.org",
            "https://files.example.org/@other.example.org",
        ),
        ("https://files.example.org/a", "https://files.example.org/a"),
        (
            "https://FILES.example.org:443/a",
            "https://files.example.org/a",
        ),
    ] {
        assert_eq!(
            url_inside_tunnel(target, own),
            Ok((url.to_owned(), true)),
            "{target}"
        );
    }
    for target in [
        "https://other.example.org/a",
        "https://files.example.org:8443/a",
        "http://files.example.org/a",
        "http://files.example.org:443/a",
        "https://127.0.0.1/a",
        "*",
        "files.example.org:443",
    ] {
        assert_eq!(url_inside_tunnel(target, own), Err(None), "{target}");
    }
    assert_eq!(
        url_inside_tunnel("/a?b=\\d&c=%5c", own),
        Ok(("https://files.example.org/a?b=%5Cd&c=%5c".to_owned(), true))
    );
    for target in ["/a\\b?c", "/a#?\\", "https://files.example.org\\?c"] {
        let read = url_inside_tunnel(target, own);
        assert_eq!(read, Err(Some(Code::InvalidUrl)), "{target}");
    }
    let credentials = url_inside_tunnel("https://user@files.example.org/a", own);
    assert_eq!(credentials, Err(Some(Code::UrlCredentials)));
    for host in [
        "other.example.org",
        "files.example.org:8443",
        "127.0.0.1",
        "",
    ] {
        assert!(!url_inside_tunnel("/a", host).unwrap().1, "{host}");
    }
    let tunnel = parse_as(RequestRecipient::Server, &[CONNECT_LINE, HOST_FIELD]);
    assert_eq!(tunnel.unwrap_err(), HeadError::Target);
}

#[test]
fn a_request_for_websocket_is_recognised_in_every_form() {
    for (field, wants) in [
        ("Upgrade: websocket", true),
        ("Upgrade: h2c, WebSocket", true),
        ("Upgrade: h2c", false),
        ("X-Upgrade: websocket", false),
    ] {
        let request = parse(&[GET_LINE, HOST_FIELD, field]).unwrap();
        assert_eq!(request.wants_websocket(), wants, "{field}");
    }
}
