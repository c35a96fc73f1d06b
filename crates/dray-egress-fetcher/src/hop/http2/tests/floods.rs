//! Tests of floods: each ends at a limit of this crate or of h2, with the same reason, before it fills memory.

use super::*;

/// Status, or the reason, for a flood before the head and for the same flood within the body.
async fn flood(frames: Vec<u8>) -> [Result<u16, Code>; 2] {
    let head = headers(0, &[STATUS_200]);
    let end = frame(DATA, END_STREAM, b"ok");
    let before = [frames.clone(), head.clone(), end.clone()];
    let before = exchange(&before, Ending::Holds).await;
    let after = exchange(&[head, frames, end], Ending::Holds).await;
    [before, after].map(|fetched| fetched.map(|(status, _)| status))
}

#[tokio::test(start_paused = true)]
async fn i_7_frames_without_data_end_the_exchange_at_a_thousand() {
    for (name, flags, kind, payload) in [
        ("ping", 0, PING, vec![7; 8]),
        ("ping response", ACK, PING, vec![7; 8]),
        ("settings", 0, SETTINGS, Vec::new()),
        (
            "settings with a window",
            0,
            SETTINGS,
            vec![0, 4, 0, 1, 0, 0],
        ),
        ("window update", 0, WINDOW_UPDATE, vec![0, 0, 0, 1]),
        ("priority", 0, PRIORITY, vec![0, 0, 0, 3, 1]),
        ("unknown", 0, 0x42, b"grease".to_vec()),
    ] {
        let one = frame(kind, flags, &payload);
        let few = flood(one.repeat(900)).await;
        assert_eq!(few, [Ok(200), Ok(200)], "{name}");
        let many = flood(one.repeat(20_000)).await;
        assert_eq!(many, [Err(Code::MalformedResponse); 2], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn i_7_empty_data_frames_end_the_exchange() {
    let head = headers(0, &[STATUS_200]);
    for (count, expected) in [
        (100, Ok((200, b"ok".to_vec()))),
        (20_000, Err(Code::MalformedResponse)),
    ] {
        let empty = frame(DATA, 0, b"").repeat(count);
        let end = frame(DATA, END_STREAM, b"ok");
        let fetched = exchange(&[head.clone(), empty, end], Ending::Holds).await;
        assert_eq!(fetched, expected, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn i_7_frames_with_one_byte_each_cannot_fill_the_window() {
    // A window full of them would be a million events of a hundred bytes each.
    let small = frame(DATA, 0, b"x").repeat(300_000);
    let (near, far) = tokio::io::duplex(4 << 20);
    let mut server = JoinSet::new();
    server.spawn(serve_in_window(far, headers(0, &[STATUS_200]), small));
    let fetched = read_all(Box::new(near)).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn b_1_ten_thousand_short_frames_that_wait_do_not_count_as_a_flood() {
    let short = frame(DATA, 0, &[b'x'; 50]).repeat(10_000);
    let rest = [short, frame(DATA, END_STREAM, b"")].concat();
    let (near, far) = tokio::io::duplex(4 << 20);
    let mut server = JoinSet::new();
    server.spawn(serve_in_window(far, headers(0, &[STATUS_200]), rest));
    let fetched = read_all(Box::new(near)).await;
    assert_eq!(fetched.map(|(_, body)| body.len()), Ok(500_000));
}

#[tokio::test(start_paused = true)]
async fn r_1_continuation_frames_end_the_exchange() {
    // CVE-2024-27316: a header block that never ends.
    let start = frame(HEADERS, 0, STATUS_200);
    for block in [Vec::new(), field("a", "b"), field("a", &"b".repeat(100))] {
        let endless = frame(CONTINUATION, 0, &block).repeat(2_000);
        let fetched = exchange(&[start.clone(), endless], Ending::Holds).await;
        assert_eq!(fetched, Err(Code::MalformedResponse));
    }
}

#[tokio::test(start_paused = true)]
async fn r_1_the_number_of_fields_is_bounded() {
    let fields = |count: usize| {
        let fields: Vec<_> = (0..count)
            .map(|index| field(&format!("x-{index}"), "y"))
            .collect();
        headers(END_STREAM, &[STATUS_200, &fields.concat()])
    };
    let passed = exchange(&[fields(128)], Ending::Holds).await;
    assert_eq!(passed, Ok((200, Vec::new())));
    let refused = exchange(&[fields(129)], Ending::Holds).await;
    assert_eq!(refused, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn r_1_the_bytes_of_the_head_are_bounded() {
    // A field that counts as 16,000 bytes: its length needs three bytes (RFC 7541, section 5.1).
    let length = 16_000_u16 - 33 - 0x7f;
    let [low, high] = [length & 0x7f | 0x80, length >> 7].map(|part| u8::try_from(part).unwrap());
    let mut large = vec![0, 1, b'x', 0x7f, low, high];
    large.extend([b'y'; 16_000 - 33]);
    for (count, expected) in [
        (4, Ok((200, Vec::new()))),
        (5, Err(Code::MalformedResponse)),
    ] {
        let mut head = frame(HEADERS, END_STREAM, STATUS_200);
        head.extend(frame(CONTINUATION, 0, &large).repeat(count));
        head.extend(frame(CONTINUATION, END_HEADERS, b""));
        let fetched = exchange(&[head], Ending::Holds).await;
        assert_eq!(fetched, expected, "{count}");
    }
}

#[tokio::test(start_paused = true)]
async fn r_1_a_header_block_that_expands_is_refused() {
    // One field of 4,000 bytes in the dynamic table, then a byte for each repetition: 32 MB from 12 KB.
    let length = 4_000_u16 - 0x7f;
    let [low, high] = [length & 0x7f | 0x80, length >> 7].map(|part| u8::try_from(part).unwrap());
    let mut block = STATUS_200.to_vec();
    block.extend([0x40, 1, b'x', 0x7f, low, high]);
    block.extend([b'y'; 4_000]);
    block.extend([0xbe; 8_000]);
    let fetched = exchange(&[headers(END_STREAM, &[&block])], Ending::Holds).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn r_1_sixteen_interim_responses_pass_and_more_do_not() {
    let interim = headers(0, &[&[0x08, 3], b"103", &field("link", "</x>")]);
    let last = [headers(0, &[STATUS_200]), frame(DATA, END_STREAM, b"ok")].concat();
    for (count, expected) in [
        (16, Ok((200, b"ok".to_vec()))),
        (17, Err(Code::MalformedResponse)),
        (100_000, Err(Code::MalformedResponse)),
    ] {
        let fetched = exchange(&[interim.repeat(count), last.clone()], Ending::Holds).await;
        assert_eq!(fetched, expected, "{count}");
    }
    let large = field("link", &"x".repeat(100)).repeat(100);
    let large = headers(0, &[&[0x08, 3], b"103", &large]);
    for (count, expected) in [
        (4, Ok((200, b"ok".to_vec()))),
        (5, Err(Code::MalformedResponse)),
    ] {
        let fetched = exchange(&[large.repeat(count), last.clone()], Ending::Holds).await;
        assert_eq!(fetched, expected, "{count} of 13,600 bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn i_7_a_server_that_ignores_the_window_is_refused() {
    let mut bytes = frame(SETTINGS, 0, &[]);
    bytes.extend(headers(0, &[STATUS_200]));
    // A server that does not know the settings of the client may send 64 KiB (RFC 9113, section 6.9.2).
    bytes.extend(frame(DATA, 0, &[b'x'; 16 * 1024]).repeat(5));
    let fetched = exchange_bytes(bytes, Ending::Holds).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn i_7_the_server_gets_no_larger_window_before_the_body_is_read() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let head = [server_settings(), headers(0, &[STATUS_200])].concat();
    let mut server = JoinSet::new();
    server.spawn(async move {
        far.write_all(&head).await.unwrap();
        far.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let mut kinds = Vec::new();
        while let Ok((kind, _)) = read_frame(&mut far).await {
            kinds.push(kind);
        }
        kinds
    });
    let (_, wire) = send_http2_request(Box::new(near), request()).await.unwrap();
    drop(wire);
    let kinds = server.join_next().await.unwrap().unwrap();
    assert!(kinds.contains(&HEADERS), "{kinds:?}");
    assert!(!kinds.contains(&WINDOW_UPDATE), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn i_7_a_frame_beyond_the_announced_size_is_refused() {
    let head = headers(0, &[STATUS_200]);
    let large = frame(DATA, END_STREAM, &vec![b'x'; 16 * 1024 + 1]);
    let fetched = exchange(&[head, large], Ending::Holds).await;
    assert_eq!(fetched, Err(Code::MalformedResponse));
}

#[tokio::test(start_paused = true)]
async fn i_7_padding_counts_against_the_budget_of_bytes() {
    let padding = frame(DATA, PADDED, &[&[254, b'x'], [0; 254].as_slice()].concat());
    let (near, far) = tokio::io::duplex(4 << 20);
    let mut server = JoinSet::new();
    server.spawn(serve_in_window(
        far,
        headers(0, &[STATUS_200]),
        padding.repeat(3_000),
    ));
    let budget = crate::wire::WireBudget::for_body(1000);
    let metered = crate::wire::MeteredIo::new(Box::new(near), budget);
    // One byte of body in 265 bytes.
    assert_eq!(read_all(Box::new(metered)).await, Err(Code::TooLarge));
}
