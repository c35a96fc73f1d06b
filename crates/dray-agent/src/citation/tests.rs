//! Tests of citations and their sources.

use serde_json::json;

use super::*;

fn page(url: &str, title: Option<&str>) -> CitationSource {
    CitationSource::Page {
        url: url.to_owned(),
        title: title.map(str::to_owned),
    }
}

fn index(sources: Vec<CitationSource>) -> CitationIndex {
    let mut index = CitationIndex::default();
    index.add(sources);
    index
}

/// The parts of a text that citations cover, each with the title of its source.
fn citations_of(index: &CitationIndex, text: &str) -> Vec<(String, String)> {
    let characters: Vec<char> = text.chars().collect();
    let citations = index.find(text).into_iter();
    citations
        .map(|citation| {
            let covered = characters[citation.start..citation.end].iter().collect();
            match citation.source {
                CitationSource::Page { title, .. } => (covered, title.unwrap()),
                CitationSource::File { id, .. } => (covered, id),
            }
        })
        .collect()
}

#[test]
fn links_and_addresses_of_known_pages_are_citations_and_others_are_not() {
    let known = index(vec![
        page("https://a.example/one_(two)", Some("One")),
        page("https://b.example", None),
    ]);
    let text = "🙂 See [the [first] page](https://a.example/one_(two)#part), https://b.example/. And \
                (https://b.example) but not https://c.example or https://b.example/other.";
    let expected = [
        (
            "[the [first] page](https://a.example/one_(two)#part)",
            "One",
        ),
        ("https://b.example/", "b.example"),
        ("https://b.example", "b.example"),
    ];
    let expected = expected.map(|(covered, title)| (covered.to_owned(), title.to_owned()));
    assert_eq!(citations_of(&known, text), expected);
    assert_eq!(known.find(text)[0].start, 6);
    assert!(index(Vec::new()).find(text).is_empty());
}

#[test]
fn a_link_has_its_own_text_as_title_where_the_tool_reported_none() {
    let known = index(vec![page("https://b.example/x", None)]);
    let text = "[B\u{7} page](https://b.example/x)";
    assert_eq!(citations_of(&known, text)[0].1, "B  page");
    // The part before `@` is not the host.
    let known = index(vec![page("https://good.example@evil.example/x", None)]);
    assert_eq!(
        citations_of(&known, "https://good.example@evil.example/x")[0].1,
        "evil.example"
    );
}

#[test]
fn names_of_files_are_cited_where_they_stand_alone() {
    let known = index(vec![CitationSource::File {
        id: "file-1".to_owned(),
        name: "a.txt".to_owned(),
    }]);
    for text in ["data.txt", "a.txt.gz", "ba.txt", "a.txt-old", "x/ya.txt"] {
        assert!(known.find(text).is_empty(), "{text}");
    }
    for text in [
        "a.txt",
        "see `a.txt`.",
        "a.txt. The end",
        "data.txt and a.txt",
    ] {
        assert_eq!(
            citations_of(&known, text),
            [("a.txt".to_owned(), "file-1".to_owned())],
            "{text}"
        );
    }
    let short = CitationSource::File {
        id: "file-1".to_owned(),
        name: "a".to_owned(),
    };
    assert!(index(vec![short]).find("a").is_empty());
}

#[test]
fn names_of_files_in_links_are_not_citations_of_them() {
    let known = index(vec![CitationSource::File {
        id: "file-1".to_owned(),
        name: "report.pdf".to_owned(),
    }]);
    for text in [
        "https://evil.example/report.pdf",
        "[more](https://evil.example/report.pdf).",
        "[report.pdf](https://evil.example/x)",
        "[report.pdf of https://evil.example/x y](https://evil.example/z)",
    ] {
        assert!(known.find(text).is_empty(), "{text}");
    }
    let text = "é https://evil.example/report.pdf, [é](https://evil.example/é) and é report.pdf";
    assert_eq!(
        citations_of(&known, text),
        [("report.pdf".to_owned(), "file-1".to_owned())]
    );
}

#[test]
fn arguments_name_only_pages_that_are_whole_values() {
    let arguments = json!({
        "content": "[Bank](https://evil.example)",
        "url": "https://a.example/x",
        "title": "Bank",
        "link": "https://b.example/ and more",
        "nested": {"url": "https://c.example"},
    });
    assert_eq!(
        argument_sources(&arguments.to_string()),
        [page("https://a.example/x", None)]
    );
    for other in [
        "https://a.example",
        "[\"https://a.example\"]",
        "{\"url\": 1}",
        "",
    ] {
        assert!(argument_sources(other).is_empty(), "{other}");
    }
}

#[test]
fn titles_have_no_characters_that_turn_or_hide_text() {
    let title = |title: &str| clean_title(title).unwrap_or_default();
    assert_eq!(
        title("Bank \u{202e}moc.live\u{202c}\u{200b}"),
        "Bank moc.live"
    );
    assert_eq!(title("\u{2066}\u{feff}"), "");
    assert_eq!(title("a\u{2028}b"), "a b");
    assert_eq!(title("❤\u{fe0f} 👩\u{200d}💻"), "❤\u{fe0f} 👩\u{200d}💻");
}

#[test]
fn pages_of_json_have_their_titles_and_pages_of_text_their_link_texts() {
    let found = json!({"results": [
        {"title": "One\n", "url": "https://a.example/1", "text": "more at https://a.example/2,"},
        {"name": "no page", "url": "files/x"},
    ]});
    assert_eq!(
        page_sources(&found.to_string()),
        [
            page("https://a.example/1", Some("One")),
            page("https://a.example/1", None),
            page("https://a.example/2", None),
        ]
    );
    assert_eq!(
        page_sources("- [A](http://a.example/x)\n- http://b.example/y?q=1#z"),
        [
            page("http://a.example/x", Some("A")),
            page("http://b.example/y?q=1#z", None),
        ]
    );
}

#[test]
fn sources_and_citations_are_limited() {
    let text = "https://a.example/x ".repeat(100_000);
    assert_eq!(page_sources(&text).len(), MAX_CALL_SOURCES);
    let known = index(vec![page("https://a.example/x", None)]);
    assert_eq!(known.find(&text).len(), MAX_CITATIONS);
    let long = format!("https://a.example/{}", "x".repeat(MAX_URL_BYTES));
    assert!(page_sources(&long).is_empty());
    // Brackets without an end are read once, not again for each address.
    let brackets = format!("{}](https://a.example/x)", "[".repeat(10_000));
    assert_eq!(known.find(&brackets).len(), 1);
}

proptest::proptest! {
    #[test]
    fn positions_are_within_any_text(text in "(http(s)?://|\\[|\\]|\\(|\\)|a.txt|[a-z.#é🙂 ]){0,40}") {
        let mut sources = page_sources(&text);
        sources.push(CitationSource::File { id: "file-1".to_owned(), name: "a.txt".to_owned() });
        let length = text.chars().count();
        for citation in index(sources).find(&text) {
            proptest::prop_assert!(citation.start < citation.end && citation.end <= length);
        }
    }
}
