//! Sections 11, 13 and 14: hostile responses end with the right error, in time, and leave no file.

use super::{pattern, public, raw};
use crate::expect::FetchExpectation;
use crate::fetch::FetchCommand;
use crate::scenario_network::{self, ScenarioSetup};

const OK_STATUS_LINE: &str = "HTTP/1.1 200 OK\r\n";

#[test]
fn broken_and_inconsistent_responses_are_failures_without_a_file() {
    scenario_network::run("response", &ScenarioSetup::default(), |scenario_network| {
        let response = |text: &str, code| {
            (
                FetchCommand::new(public(&raw(text))),
                FetchExpectation::Denied(code),
            )
        };
        let status = |code: &str| FetchCommand::new(public(&format!("/status/{code}")));
        scenario_network.check(&[
            response("", "connection_closed"),
            response("garbage\r\n\r\n", "malformed_response"),
            response("ICY 200 OK\r\n\r\nx", "malformed_response"),
            response(&format!("{OK_STATUS_LINE}Transfer-Encoding: xchunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "malformed_response"),
            response(&format!("{OK_STATUS_LINE}Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "malformed_response"),
            response(
                &format!("{OK_STATUS_LINE}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
                "malformed_response",
            ),
            response(&format!("{OK_STATUS_LINE}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"), "malformed_response"),
            response(&format!("{OK_STATUS_LINE}Content-Length: 0x3\r\n\r\nabc"), "malformed_response"),
            response(&format!("{OK_STATUS_LINE}X: {}\r\n\r\n", "x".repeat(2_000)).replace("X: ", " X : "), "malformed_response"),
            response(&format!("{OK_STATUS_LINE}Content-Length: 10\r\n\r\nabc"), "truncated"),
            response(&format!("{OK_STATUS_LINE}Transfer-Encoding: chunked\r\n\r\n5\r\nab"), "truncated"),
            response(&format!("{OK_STATUS_LINE}Content-Encoding: compress\r\nContent-Length: 3\r\n\r\nabc"), "unsupported_encoding"),
            response(&format!("{OK_STATUS_LINE}Content-Encoding: br\r\nContent-Length: 3\r\n\r\nabc"), "decode_error"),
            response(&format!("{OK_STATUS_LINE}Content-Encoding: zstd\r\nContent-Length: 3\r\n\r\nabc"), "decode_error"),
            response(&format!("{OK_STATUS_LINE}Content-Encoding: gzip, gzip\r\nContent-Length: 3\r\n\r\nabc"), "unsupported_encoding"),
            response(&format!("{OK_STATUS_LINE}Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"), "decode_error"),
            response("HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-2/9\r\nContent-Length: 3\r\n\r\nabc", "unexpected_partial"),
            response("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "redirect_invalid"),
            response("HTTP/1.1 101 Switching\r\n\r\n", "malformed_response"),
        ]);
        for code in [
            "300", "304", "401", "403", "404", "407", "429", "500", "503",
        ] {
            let line = scenario_network.check_one(&status(code), &FetchExpectation::Refused);
            let names_status = line["message"]
                .as_str()
                .is_some_and(|text| text.ends_with(&format!("HTTP status {code}.")));
            scenario_network.demand(line["code"] == "http_status" && names_status, || {
                format!("status {code}: {line}")
            });
        }
    });
}

#[test]
fn limits_apply_to_the_bytes_that_arrive_and_to_the_decoded_file() {
    scenario_network::run("limit", &ScenarioSetup::default(), |scenario_network| {
        let limited = |path: &str, limit| FetchCommand::new(public(path)).limit(limit);
        let large = FetchExpectation::Denied("too_large");
        scenario_network.check(&[
            (
                limited("/bytes/50000", 50_000),
                FetchExpectation::Content(pattern(50_000)),
            ),
            (limited("/bytes/50001", 50_000), large.clone()),
            (
                limited("/chunked/50000", 50_000),
                FetchExpectation::Content(pattern(50_000)),
            ),
            (limited("/chunked/50001", 50_000), large.clone()),
            (limited("/gzip/50001", 50_000), large.clone()),
            (limited("/bomb/20000000", 100_000), large.clone()),
            (limited("/endless", 1_000_000), large.clone()),
            // The default limit is 10 MiB, and no request can exceed the ceiling (C-2).
            (FetchCommand::new(public("/bytes/10485761")), large.clone()),
            (
                limited("/bytes/200001", 9_000_000)
                    .set("EXTERNAL_URL_FETCH_MAX_BYTES_CEILING", "200000"),
                large,
            ),
        ]);
    });
}

#[test]
fn requests_to_servers_that_do_not_respond_time_out() {
    scenario_network::run("slow", &ScenarioSetup::default(), |scenario_network| {
        let timed_out = FetchExpectation::Denied("timeout");
        let total = |path: &str| {
            FetchCommand::new(public(path)).set("EXTERNAL_URL_FETCH_TOTAL_TIMEOUT_SECONDS", "2")
        };
        scenario_network.check(&[
            (total("/silent"), timed_out.clone()),
            (total("/drip"), timed_out.clone()),
            (
                FetchCommand::new(public("/silent")).timeout(2),
                timed_out.clone(),
            ),
            (FetchCommand::new(public("/drip")).timeout(2), timed_out),
        ]);
    });
}
