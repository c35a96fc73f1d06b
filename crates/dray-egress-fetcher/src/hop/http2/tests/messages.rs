//! Tests of single messages: the request, and responses that keep or break the rules of HTTP/2.

use super::*;

#[tokio::test(start_paused = true)]
async fn q_1_the_request_has_the_pseudo_fields_and_three_more() {
    let (near, far) = tokio::io::duplex(1 << 16);
    let mut client = JoinSet::new();
    client.spawn(async move { read_all(Box::new(near)).await });
    let mut server = h2::server::handshake(far).await.unwrap();
    let (received, mut respond) = server.accept().await.unwrap().unwrap();
    assert_eq!(received.method(), "GET");
    assert_eq!(
        received.uri(),
        "https://files.example.org:8443/a%20b?x=1",
        "the port is part of the authority, as it is of the field Host"
    );
    assert!(received.body().is_end_stream(), "C-1");
    let fields: Vec<_> = received
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let expected = [
        ("user-agent", "dray/test"),
        ("accept", "*/*"),
        ("accept-encoding", "identity"),
    ];
    assert_eq!(fields, expected);
    let mut sending = respond
        .send_response(http::Response::new(()), false)
        .unwrap();
    sending
        .send_data(Bytes::from_static(b"body"), true)
        .unwrap();
    let (_, fetched) = tokio::join!(server.accept(), client.join_next());
    assert_eq!(fetched.unwrap().unwrap(), Ok((200, b"body".to_vec())));
}

#[tokio::test(start_paused = true)]
async fn t_4_the_settings_refuse_pushes_and_bound_head_frame_and_window() {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let mut client = JoinSet::new();
    client.spawn(async move { read_all(Box::new(near)).await });
    let mut preface = vec![0; PREFACE.len()];
    far.read_exact(&mut preface).await.unwrap();
    assert_eq!(preface, PREFACE);
    let mut head = [0; 9];
    far.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], SETTINGS);
    let mut payload = vec![0; usize::from(head[2])];
    far.read_exact(&mut payload).await.unwrap();
    let mut settings: Vec<(u8, u32)> = payload
        .chunks(6)
        .map(|entry| (entry[1], u32::from_be_bytes(entry[2..].try_into().unwrap())))
        .collect();
    settings.sort_unstable();
    // ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE and MAX_HEADER_LIST_SIZE (RFC 9113, section 6.5.2).
    assert_eq!(settings, [(2, 0), (4, 1 << 20), (5, 16_384), (6, 65_536)]);
}

#[tokio::test(start_paused = true)]
async fn b_3_a_body_ends_with_the_frame_that_says_so() {
    let ok = |body: &[u8]| Ok((200, body.to_vec()));
    let head = headers(0, &[STATUS_200]);
    let two = [frame(DATA, 0, b"abc"), frame(DATA, END_STREAM, b"de")].concat();
    for ending in [Ending::Holds, Ending::Closes] {
        let whole = exchange(&[head.clone(), two.clone()], ending).await;
        assert_eq!(whole, ok(b"abcde"));
        let empty = exchange(&[headers(END_STREAM, &[STATUS_200])], ending).await;
        assert_eq!(empty, ok(b""));
        let padded = frame(DATA, END_STREAM | PADDED, b"\x02ab\0\0");
        assert_eq!(exchange(&[head.clone(), padded], ending).await, ok(b"ab"));
    }
    let part = [head, frame(DATA, 0, b"abc")];
    let truncated = exchange(&part, Ending::Closes).await;
    assert_eq!(truncated, Err(Code::Truncated));
    let silent = exchange(&part, Ending::Holds).await;
    assert_eq!(silent, Err(Code::Timeout), "the caller sets the deadline");
}

#[tokio::test(start_paused = true)]
async fn b_3_a_stream_that_the_server_resets_is_truncated_for_every_reason() {
    // hyper takes NO_ERROR (0) and CANCEL (8) for the end of the body.
    for reason in 0..=14 {
        let reset = frame(RST_STREAM, 0, &[0, 0, 0, reason]);
        let head = headers(0, &[STATUS_200]);
        let frames = [head, frame(DATA, 0, b"abc"), reset];
        let fetched = exchange(&frames, Ending::Holds).await;
        assert_eq!(fetched, Err(Code::Truncated), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_or_connection_that_ends_before_its_head_is_closed() {
    let closed = Err(Code::ConnectionClosed);
    assert_eq!(exchange(&[], Ending::Closes).await, closed);
    assert_eq!(exchange_bytes(Vec::new(), Ending::Closes).await, closed);
    for reason in [0, 2, 7, 8, 11, 13] {
        let reset = frame(RST_STREAM, 0, &[0, 0, 0, reason]);
        assert_eq!(exchange(&[reset], Ending::Holds).await, closed, "{reason}");
        // The last stream that the server processed is 0, so not this one.
        let goaway = frame(GOAWAY, 0, &[0, 0, 0, 0, 0, 0, 0, reason]);
        assert_eq!(exchange(&[goaway], Ending::Holds).await, closed, "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_away_still_finishes_the_stream() {
    let goaway = frame(GOAWAY, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let frames = [
        headers(0, &[STATUS_200]),
        goaway,
        frame(DATA, END_STREAM, b"abc"),
    ];
    for ending in [Ending::Holds, Ending::Closes] {
        assert_eq!(exchange(&frames, ending).await, Ok((200, b"abc".to_vec())));
    }
}

#[tokio::test(start_paused = true)]
async fn r_4_a_length_that_is_not_that_of_the_body_is_malformed() {
    let length = |text| field("content-length", text);
    let check = async |fields: &[Vec<u8>], expected| {
        let head = headers(0, &[STATUS_200, &fields.concat()]);
        let fetched = exchange(&[head, frame(DATA, END_STREAM, b"abc")], Ending::Holds).await;
        assert_eq!(fetched.map(|(_, body)| body), expected, "{fields:?}");
    };
    check(&[length("3")], Ok(b"abc".to_vec())).await;
    check(&[length("3"), length("3")], Ok(b"abc".to_vec())).await;
    for text in [
        "2",
        "4",
        "0",
        "+3",
        "0x3",
        "3, 3",
        "",
        "18446744073709551616",
    ] {
        check(&[length(text)], Err(Code::MalformedResponse)).await;
    }
    let conflicting = [length("3"), length("4")];
    check(&conflicting, Err(Code::MalformedResponse)).await;
}

#[tokio::test(start_paused = true)]
async fn r_5_a_status_that_no_final_response_has_is_malformed() {
    let status = |text: &str| [&[0x08, 3], text.as_bytes()].concat();
    for block in [
        status("101"),
        status("099"),
        status("abc"),
        // No status at all, and two of them.
        field("content-type", "text/plain"),
        [STATUS_200, STATUS_206].concat(),
        // A pseudo-field after a field.
        [field("a", "b"), STATUS_200.to_vec()].concat(),
    ] {
        let fetched = exchange(&[headers(END_STREAM, &[&block])], Ending::Holds).await;
        assert_eq!(fetched, Err(Code::MalformedResponse), "{block:?}");
    }
    let partial = exchange(&[headers(END_STREAM, &[STATUS_206])], Ending::Holds).await;
    assert_eq!(partial, Err(Code::UnexpectedPartial));
}

#[tokio::test(start_paused = true)]
async fn r_2_fields_that_http_2_forbids_are_malformed() {
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("upgrade", "websocket"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("Content-Type", "text/plain"),
        ("a b", "c"),
        ("", "c"),
        ("a", "b\r\nc: d"),
        ("a", "b\0c"),
    ] {
        let head = headers(END_STREAM, &[STATUS_200, &field(name, value)]);
        let fetched = exchange(&[head], Ending::Holds).await;
        assert_eq!(fetched, Err(Code::MalformedResponse), "{name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn r_6_trailers_are_ignored() {
    let frames = [
        headers(0, &[STATUS_200]),
        frame(DATA, 0, b"ok"),
        headers(END_STREAM, &[&field("location", "http://127.0.0.1/")]),
    ];
    let fetched = exchange(&frames, Ending::Holds).await;
    assert_eq!(fetched, Ok((200, b"ok".to_vec())));
}

#[tokio::test(start_paused = true)]
async fn r_2_another_protocol_than_http_2_is_malformed() {
    for bytes in [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".as_slice(),
        b"220 smtp.example.org ESMTP\r\n",
        &[0xff; 64],
    ] {
        let fetched = exchange_bytes(bytes.to_vec(), Ending::Holds).await;
        assert_eq!(fetched, Err(Code::MalformedResponse));
    }
}

#[tokio::test(start_paused = true)]
async fn t_4_a_push_is_malformed() {
    let promised = [&[0, 0, 0, 2, 0x82, 0x87, 0x84, 0x41, 1], b"a".as_slice()].concat();
    let push = frame(PUSH_PROMISE, END_HEADERS, &promised);
    let frames = [push, headers(END_STREAM, &[STATUS_200])];
    let fetched = exchange(&frames, Ending::Holds).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}
