//! Tables and properties of classification: DIAL file, outside URL, or neither.

use proptest::prelude::*;

use super::*;

fn origin() -> DialOrigin {
    DialOrigin::parse("https://dial.example").unwrap()
}

fn dial(path: &str) -> LoadTarget {
    LoadTarget::Dial(FileUrl(path.to_owned()))
}

fn external(url: &str) -> LoadTarget {
    LoadTarget::External(url.to_owned())
}

fn check(named: &str, expected: &Result<LoadTarget, UnsupportedReference>) {
    assert_eq!(
        &classify_reference(named, Some(&origin())),
        expected,
        "{named:?}"
    );
}

#[test]
fn references_are_classified_as_in_the_table() {
    check("", &Err(UnsupportedReference::Scheme));
    check("files/b/a.pdf", &Ok(dial("files/b/a.pdf")));
    check("///FILES/b/a.pdf", &Ok(dial("files/b/a.pdf")));
    check(
        "https://dial.example/v1/files/b/a.pdf",
        &Ok(dial("files/b/a.pdf")),
    );
    check(
        "https://other.example/a",
        &Ok(external("https://other.example/a")),
    );
    check(
        "HTTP://other.example:81/a?q#f",
        &Ok(external("HTTP://other.example:81/a?q#f")),
    );
    check(" https://e.example/x", &Ok(external("https://e.example/x")));
    for unsupported in [
        "file:///etc/passwd",
        "ftp://h.example/a",
        "data:text/plain,a",
        "mailto:a@b.example",
        "v1/files/b/a",
        "report.pdf",
        "//host.example/x",
        "http://",
        "https:///path",
        "https://:443/",
        "https:/h.example/",
        "https:h.example",
        "https:\\\\h.example\\",
        " files/b/a",
        "\u{a0}https://h.example/",
    ] {
        check(unsupported, &Err(UnsupportedReference::Scheme));
    }
}

#[test]
fn r2_only_the_exact_origin_is_dial() {
    for same in [
        "https://dial.example:443/v1/files/b/a",
        "HTTPS://DIAL.Example/v1/files/b/a",
        "https://user:pw@dial.example/v1/files/b/a?x=1#f",
    ] {
        check(same, &Ok(dial("files/b/a")));
    }
    for other in [
        "http://dial.example/v1/files/b/a",
        "https://dial.example:8443/v1/files/b/a",
        "http://dial.example:443/v1/files/b/a",
        "https://dial.example./v1/files/b/a",
        "https://dial.example.evil.example/v1/files/b/a",
        "https://dial.example@evil.example/v1/files/b/a",
        "https://evil.example/?https://dial.example/v1/files/b/a",
    ] {
        check(other, &Ok(external(other)));
    }
}

#[test]
fn r4_spellings_of_one_file_are_one_path() {
    for spelling in [
        "files/b/a b.pdf",
        "/files/b/a%20b.pdf",
        "Files/b/%61%20b%2Epdf",
        "files/b/a b.pdf?version=1#page=2",
        "https://dial.example/v1/files/b/a%20b.pdf",
        "https://dial.example:443/v1/files/b/a b.pdf",
    ] {
        check(spelling, &Ok(dial("files/b/a%20b.pdf")));
    }
    check("files/b/a+b", &Ok(dial("files/b/a%2Bb")));
    check("files/b/100%", &Ok(dial("files/b/100%25")));
    check("files/b/ä", &Ok(dial("files/b/%C3%A4")));
    check("files/b/%252e%252e/a", &Ok(dial("files/b/%252e%252e/a")));
}

#[test]
fn paths_that_leave_the_bucket_or_hide_a_separator_are_refused() {
    for named in [
        "files/b/../c/a",
        "files/b/%2e%2E/a",
        "files/./a",
        "files/../v1/bucket",
        "files/b//a",
        "files//b/a",
        "files/b/a%2fb",
        "files/b/..%5ca",
        "files/b/a\\b",
        "files/b/a%00",
        "files/b/a%0d%0ax",
        "files/b/%ff",
        "https://dial.example/v1/files/../bucket",
        "https://dial.example/v1/files/b/../c/a",
        "https://dial.example/v1/files/b/%2e%2e/%2e%2e/bucket",
        "https://dial.example/v1/files/b\\a/c",
        "https://dial.example/v1/files/b/a%2F..%2F..%2Fbucket",
    ] {
        check(named, &Err(UnsupportedReference::Path));
    }
}

#[test]
fn folders_and_other_places_of_the_origin_are_not_files() {
    for folder in ["files/b", "files/b/", "files/b/folder/"] {
        check(folder, &Err(UnsupportedReference::Folder));
    }
    for other in [
        "https://dial.example/",
        "https://dial.example/v1/bucket",
        "https://dial.example/v1/../v1/files/b/a",
        "https://dial.example?/v1/files/b/a",
        "https://dial.example\\v1/files/b/a",
        "https://dial.example/files/b/a",
        "https://dial.example/openai/models",
    ] {
        check(other, &Err(UnsupportedReference::NotAFile));
    }
    check(
        &format!("files/b/{}", "x".repeat(MAX_REFERENCE_BYTES)),
        &Err(UnsupportedReference::TooLong),
    );
}

#[test]
fn without_a_dial_origin_every_url_is_external() {
    let url = "https://dial.example/v1/files/b/a";
    assert_eq!(classify_reference(url, None), Ok(external(url)));
}

#[test]
fn a_base_path_belongs_to_the_origin() {
    let origin = DialOrigin::parse("http://gate.example:8080/dial/").unwrap();
    assert_eq!(
        origin.url("v1/files/b/a"),
        "http://gate.example:8080/dial/v1/files/b/a"
    );
    assert_eq!(
        classify_reference("http://gate.example:8080/dial/v1/files/b/a", Some(&origin)),
        Ok(dial("files/b/a"))
    );
    assert_eq!(
        classify_reference("http://gate.example:8080/v1/files/b/a", Some(&origin)),
        Err(UnsupportedReference::NotAFile)
    );
}

proptest! {
    #[test]
    fn canonical_paths_stay_below_files_and_are_their_own_spelling(named in "/{0,2}[fF]iles/([a-z%2eE./\\\\ +?#ä]{0,6}/){0,3}[a-z%2e.]{0,6}") {
        if let Ok(LoadTarget::Dial(path)) = classify_reference(&named, Some(&origin())) {
            let url = Url::parse(&origin().url(&format!("v1/{path}"))).unwrap();
            let expected = format!("/v1/{path}");
            prop_assert_eq!(url.path(), expected.as_str());
            prop_assert_eq!(classify_reference(path.as_str(), Some(&origin())), Ok(LoadTarget::Dial(path)));
        }
    }

    #[test]
    fn every_url_sent_to_dial_was_on_its_origin_or_relative(named in "( |/)*(https?|files|ftp)(:|/){1,3}(dial\\.example|evil|@|:443|\\\\){0,3}/v1/files/b/a") {
        if let Ok(LoadTarget::Dial(_)) = classify_reference(&named, Some(&origin())) {
            let is_relative = named.trim_start_matches('/').starts_with("files/");
            prop_assert!(is_relative || Url::parse(&named).unwrap().host_str() == Some("dial.example"));
        }
    }
}
