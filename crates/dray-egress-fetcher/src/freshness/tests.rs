//! Tests of which responses may be stored and how long they are fresh.

use super::*;

/// Every response of these tests arrives at `Sat, 21 Nov 2026 10:00:00 GMT`, this long after its request.
fn times(delay: Duration) -> ResponseTimes {
    ResponseTimes {
        arrived: httpdate::parse_http_date("Sat, 21 Nov 2026 10:00:00 GMT").unwrap(),
        delay,
    }
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    headers
}

fn terms(fields: &[(&str, &str)]) -> Option<ReuseTerms> {
    reuse_terms(StatusCode::OK, &headers(fields), times(Duration::ZERO))
}

/// Seconds for which a response with these fields is fresh; `None` for a response that is not stored.
fn fresh_seconds(fields: &[(&str, &str)]) -> Option<u64> {
    terms(fields).map(|terms| terms.fresh_for.as_secs())
}

#[test]
fn responses_for_one_receiver_and_parts_are_not_stored() {
    for fields in [
        &[("cache-control", "no-store")][..],
        &[("cache-control", "max-age=60, No-Store")],
        &[
            ("cache-control", "max-age=60"),
            ("cache-control", "private"),
        ],
        &[("cache-control", "private=\"set-cookie\", max-age=60")],
        &[("cache-control", "max-age=60"), ("set-cookie", "a=b")],
        &[("cache-control", "max-age=60"), ("vary", "*")],
        &[("cache-control", "max-age=60"), ("vary", "accept, *")],
        &[("cache-control", "max-age=60"), ("vary", "a b")],
        &[
            ("cache-control", "max-age=60"),
            ("content-range", "bytes 0-4/9"),
        ],
        // The comma is behind the quoted string, whose quotation mark is escaped.
        &[("cache-control", "max-age=60, a=\"b\\\"c\", no-store")],
        // A quoted string without an end may contain anything.
        &[("cache-control", "max-age=60, a=\"b, no-store")],
        // Servers also write semicolons.
        &[("cache-control", "no-store; max-age=60")],
        &[("cache-control", "no-store; private, max-age=60")],
    ] {
        assert_eq!(terms(fields), None, "{fields:?}");
    }
    for status in [203, 204, 206, 301, 302, 404, 500] {
        let status = StatusCode::from_u16(status).unwrap();
        let fields = headers(&[("cache-control", "max-age=60")]);
        assert_eq!(
            reuse_terms(status, &fields, times(Duration::ZERO)),
            None,
            "{status}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of heads")]
fn a_response_is_fresh_as_long_as_its_server_says_and_no_longer() {
    let date = ("date", "Sat, 21 Nov 2026 10:00:00 GMT");
    for (fields, seconds) in [
        (&[("cache-control", "max-age=60")][..], 60),
        (&[("cache-control", "max-age=\"60\"")], 60),
        (&[("cache-control", "max-age=60, s-maxage=10")], 10),
        (&[("cache-control", "a=\"\\\", no-store\", max-age=60")], 60),
        (
            &[
                ("cache-control", "max-age=60"),
                ("cache-control", "max-age=20"),
            ],
            20,
        ),
        (&[("cache-control", "max-age=60, no-cache")], 0),
        (
            &[("cache-control", "max-age=60, no-cache=\"a, max-age=90\"")],
            0,
        ),
        (&[("cache-control", "max-age=-1")], 0),
        (&[("cache-control", "max-age=1.5")], 0),
        (&[("cache-control", "max-age")], 0),
        (&[("cache-control", "max-age=60"), ("age", "20")], 40),
        (&[("cache-control", "max-age=60"), ("age", "90")], 0),
        (&[("cache-control", "max-age=60"), ("age", "x")], 0),
        (
            &[("cache-control", "max-age=60"), ("age", "1"), ("age", "2")],
            0,
        ),
        (
            &[
                ("cache-control", "max-age=60"),
                ("date", "Sat, 21 Nov 2026 09:59:30 GMT"),
            ],
            30,
        ),
        // A clock that is ahead adds nothing.
        (
            &[
                ("cache-control", "max-age=60"),
                ("date", "Sat, 21 Nov 2026 11:00:00 GMT"),
            ],
            60,
        ),
        (&[date, ("expires", "Sat, 21 Nov 2026 10:01:00 GMT")], 60),
        (&[("expires", "Sat, 21 Nov 2026 10:01:00 GMT")], 60),
        (&[date, ("expires", "Sat, 21 Nov 2026 09:00:00 GMT")], 0),
        (&[date, ("expires", "0")], 0),
        (&[("cache-control", "public"), ("expires", "0")], 0),
        (
            &[
                ("pragma", "no-cache"),
                ("expires", "Sat, 21 Nov 2026 10:01:00 GMT"),
            ],
            0,
        ),
        (
            &[("cache-control", "max-age=60"), ("pragma", "no-cache")],
            60,
        ),
        // No response is fresh by heuristics.
        (
            &[date, ("last-modified", "Sat, 21 Nov 2020 10:00:00 GMT")],
            0,
        ),
        (&[], 0),
    ] {
        assert_eq!(fresh_seconds(fields), Some(seconds), "{fields:?}");
    }
    let endless = [("cache-control", "max-age=99999999999999999999999999")];
    assert!(fresh_seconds(&endless).unwrap() > 1 << 40);
}

#[test]
fn the_time_from_the_request_to_the_head_counts_as_age() {
    let lifetime = ("cache-control", "max-age=60");
    for (fields, seconds) in [
        (&[lifetime][..], 55),
        (&[lifetime, ("age", "20")], 35),
        // The clock of the server shows a higher age, which includes the time of the response.
        (&[lifetime, ("date", "Sat, 21 Nov 2026 09:59:30 GMT")], 30),
        (&[lifetime, ("date", "Sat, 21 Nov 2026 09:59:58 GMT")], 55),
    ] {
        let delay = Duration::from_secs(5);
        let terms = reuse_terms(StatusCode::OK, &headers(fields), times(delay)).unwrap();
        assert_eq!(terms.fresh_for.as_secs(), seconds, "{fields:?}");
    }
}

#[test]
fn validators_are_kept_as_they_were_sent_and_only_if_they_have_one_form() {
    let modified = "Sat, 21 Nov 2020 10:00:00 GMT";
    for (fields, etag, date) in [
        (&[("etag", "\"a\"")][..], Some("\"a\""), None),
        (&[("etag", "W/\"a\"")], Some("W/\"a\""), None),
        (&[("etag", "a")], None, None),
        (&[("etag", "\"a\""), ("etag", "\"b\"")], None, None),
        (&[("etag", "\"a\"b\"")], None, None),
        (&[("last-modified", modified)], None, Some(modified)),
        (&[("last-modified", "yesterday")], None, None),
    ] {
        let terms = terms(fields).unwrap();
        let text =
            |value: Option<HeaderValue>| value.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(text(terms.etag.clone()).as_deref(), etag, "{fields:?}");
        assert_eq!(
            text(terms.last_modified.clone()).as_deref(),
            date,
            "{fields:?}"
        );
        assert_eq!(terms.is_useful(), etag.is_some() || date.is_some());
    }
}

#[test]
fn a_304_renews_the_time_and_keeps_what_it_leaves_out() {
    let stored = terms(&[
        ("etag", "\"a\""),
        ("vary", "Accept-Encoding"),
        ("vary", "accept"),
    ])
    .unwrap();
    assert_eq!(stored.vary, ["accept", "accept-encoding"]);
    let renewed =
        |fields: &[(&str, &str)]| renewed_terms(&headers(fields), &stored, times(Duration::ZERO));
    let terms = renewed(&[("cache-control", "max-age=60")]).unwrap();
    assert_eq!(terms.fresh_for, Duration::from_mins(1));
    assert_eq!((&terms.etag, &terms.vary), (&stored.etag, &stored.vary));
    assert_eq!(renewed(&[("cache-control", "no-store")]), None);
    let other = renewed(&[("etag", "W/\"a\""), ("vary", "accept")]).unwrap();
    assert_eq!(other.etag, stored.etag);
    assert_eq!(other.vary, ["accept"]);
}

/// RFC 9111, section 4.3.4: a 304 with another validator must not update the stored response.
#[test]
fn a_304_confirms_only_the_content_that_is_stored() {
    let (old, new) = (
        "Sat, 21 Nov 2020 10:00:00 GMT",
        "Sun, 22 Nov 2020 10:00:00 GMT",
    );
    let tagged = [("etag", "\"a\""), ("last-modified", old)];
    let dated = [("last-modified", old)];
    let unquoted = [("etag", "a"), ("last-modified", old)];
    for (stored, fields, is_stored) in [
        (&tagged[..], &[("etag", "\"a\"")][..], true),
        (&tagged, &[], true),
        (&tagged, &[("etag", "W/\"a\"")], true),
        (&tagged, &[("etag", "\"a\""), ("last-modified", new)], true),
        (&tagged, &[("etag", "\"b\"")], false),
        (&tagged, &[("etag", "W/\"b\"")], false),
        (&tagged, &[("etag", "\"a\""), ("etag", "\"b\"")], false),
        (&tagged, &[("last-modified", old)], true),
        (&tagged, &[("last-modified", new)], false),
        (&dated, &[], true),
        (&dated, &[("last-modified", old)], true),
        (&dated, &[("last-modified", new)], false),
        (&dated, &[("etag", "\"a\"")], false),
        (&unquoted, &[("etag", "a")], true),
        (&unquoted, &[("etag", "a"), ("last-modified", old)], true),
        (&unquoted, &[("etag", "a"), ("last-modified", new)], false),
    ] {
        let stored = terms(stored).unwrap();
        assert_eq!(
            is_confirmed(&headers(fields), &stored),
            is_stored,
            "{fields:?}"
        );
    }
}
