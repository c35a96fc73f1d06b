//! Texts that are made to take much time. Work is counted in examined bytes.

use super::*;

/// Most examined bytes for each byte of text.
const MAX_BYTES_PER_BYTE: usize = 16;

/// With texts of this length, quadratic work would exceed the limit thousands of times.
const PATTERN_BYTES: usize = 16 * 1024;

fn repeat_pattern(pattern: &str) -> String {
    pattern.repeat(PATTERN_BYTES / pattern.len())
}

/// Texts that each try to slow down one loop.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "MEDIA:",
        "MEDIA:/",
        "MEDIA:'",
        "MEDIA:\"/a",
        "MEDIA:`/a` ",
        "MEDIA:/a.png ",
        "`",
        "` ",
        "\"",
        "'",
        "*",
        "[[",
        "[[as_document]]",
        "{\"",
        "\": \"",
        "{",
        "> ",
        "MEDIA:\n",
        "MEDIA:\n/x ",
        "\n",
        " ",
        "_/",
        ".png",
        "/a.b_",
        "![](",
        "<img ",
        "<!--",
        "~~~\n",
        "/a.png ",
        "![a](http",
        "\\\"",
    ]
    .map(repeat_pattern)
    .to_vec();
    for start in [
        "MEDIA:/",
        "MEDIA:'/",
        "MEDIA:\"/",
        "MEDIA:`/",
        "`",
        "{\"a\": \"",
        "![",
        "<img src=\"",
    ] {
        for filler in ["a", "a ", "_", ".", ".png", "'", "`` ` ", "MEDIA", "é"] {
            texts.push(format!("{start}{}", repeat_pattern(filler)));
        }
    }
    // Runs of backticks of different lengths never close each other.
    let runs: Vec<String> = (1..300).map(|length| "`".repeat(length)).collect();
    texts.push(runs.join(" "));
    texts
}

#[test]
fn r_4_work_is_linear_for_any_text() {
    for text in texts() {
        let mut asked = 0;
        let mut hold = HoldBack::new();
        hold.feed(&text);
        hold.push("\n", |_| {
            asked += 1;
            None
        });
        let (steps, start) = (hold.steps(), text.chars().take(24).collect::<String>());
        hold.finish(|_| {
            asked += 1;
            None
        });
        assert!(
            steps <= MAX_BYTES_PER_BYTE * text.len(),
            "{steps} steps for {start:?}"
        );
        assert!(
            asked <= MAX_TAGS * MAX_CANDIDATES,
            "{asked} questions for {start:?}"
        );
    }
}

#[test]
fn r_4_work_is_linear_in_a_stream_as_well() {
    for text in texts() {
        let mut hold = HoldBack::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.floor_char_boundary(64.min(rest.len())));
            hold.push(chunk, |_| None);
            rest = after;
        }
        let start = text.chars().take(24).collect::<String>();
        assert!(
            hold.steps() <= MAX_BYTES_PER_BYTE * text.len(),
            "{} steps for {start:?}",
            hold.steps()
        );
    }
}

#[test]
fn r_4_a_megabyte_of_tags_or_backticks_is_processed() {
    for pattern in ["MEDIA:", "`'"] {
        let text = pattern.repeat((1 << 20) / pattern.len());
        let mut hold = HoldBack::new();
        hold.push(&text, |_| None);
        hold.push("\n", |_| None);
        assert!(
            hold.steps() <= MAX_BYTES_PER_BYTE * text.len(),
            "{} steps for {pattern:?}",
            hold.steps()
        );
        assert!(hold.steps() >= text.len());
    }
}

#[test]
fn bare_paths_and_pictures_accept_any_text() {
    for text in texts() {
        let mut asked = 0;
        bare_paths(&text, |_| {
            asked += 1;
            true
        });
        assert!(asked <= 64);
        assert!(remote_images(&text).len() <= 64);
    }
}

#[test]
fn tags_above_the_limit_are_not_changed() {
    let tags: Vec<String> = (0..MAX_TAGS + 2)
        .map(|number| format!("MEDIA:/{number}.png"))
        .collect();
    let text = tags.join("\n");
    let found = extract_media(&text, |_| true);
    assert_eq!(found.files.len(), MAX_TAGS);
    assert_eq!(
        found.text,
        format!("MEDIA:/{MAX_TAGS}.png\nMEDIA:/{}.png", MAX_TAGS + 1)
    );
}

#[test]
fn the_number_of_candidates_of_a_path_is_limited() {
    let text = format!("MEDIA:/a{}", ",b!".repeat(500));
    let (tags, _) = scan_tags(&text);
    assert_eq!(tags[0].candidates.len(), MAX_CANDIDATES);
    // The shortest are kept, so that the path itself is among them.
    assert_eq!(tags[0].candidates.last().unwrap().path, "/a");
}
