//! Tests of the classification of URLs.

use super::*;

fn origin() -> DialOrigin {
    DialOrigin::parse("https://dial.example/base/").unwrap()
}

#[test]
fn r_4_all_spellings_of_a_file_are_one() {
    for text in [
        "files/b/a%20b/c.txt",
        "/files/b/a b/c.txt",
        "///FILES/b/a%20b/%63.txt?x#y",
        "https://dial.example/base/v1/files/b/a%20b/c.txt",
        "https://DIAL.example:443/base/v1/files/b/a b/c.txt",
    ] {
        let file = origin().file(text).unwrap();
        assert_eq!(file.as_str(), "files/b/a%20b/c.txt", "{text}");
        assert_eq!(file.title(), "c.txt");
        assert_eq!(file.folder().url(), "files/b/a%20b/");
    }
    // The path is decoded once only.
    let file = FileUrl::parse("files/b/100%2525.txt").unwrap();
    assert_eq!(
        (file.as_str(), file.title().as_str()),
        ("files/b/100%2525.txt", "100%25.txt")
    );
}

#[test]
fn r_2_another_scheme_host_or_port_is_external() {
    for text in [
        "http://dial.example/base/v1/files/b/a",
        "https://dial.example:9999/base/v1/files/b/a",
        "https://dial.example.evil/base/v1/files/b/a",
        "https://u@evil/dial.example/v1/files/b/a",
        " https://e/x",
    ] {
        assert_eq!(origin().classify(text), UrlClass::External, "{text}");
        assert!(!origin().owns(text), "{text}");
    }
    assert_eq!(
        classify_url("https://dial.example/base/v1/files/b/a", None),
        UrlClass::External
    );
}

#[test]
fn urls_that_are_not_files_are_unsupported() {
    for text in [
        "",
        "files/",
        "files/b",
        "files/b/",
        "files/b/../a",
        "files/b/%2e%2e/a",
        "files/b//a",
        "files/b/a%2Fb",
        "files/b/a%0A",
        "files/b/%FF",
        "v1/files/b/a",
        "report.pdf",
        "//host/x",
        "ftp://h/x",
        "http://",
        "https:///x",
        "https://dial.example/base/v1/bucket",
        "https://dial.example/v1/files/b/a",
        "https://dial.example/base/../v1/files/b/a",
    ] {
        assert_eq!(origin().classify(text), UrlClass::Unsupported, "{text}");
    }
    assert_eq!(origin().classify("data:text/plain,a"), UrlClass::Data);
    assert_eq!(
        origin().classify(&format!("files/b/{}", "a".repeat(9000))),
        UrlClass::Unsupported
    );
    assert_eq!(
        origin().classify(&format!("data:,{}", "a".repeat(9000))),
        UrlClass::Data
    );
}

#[test]
fn origins_carry_no_credentials_and_no_query() {
    for text in [
        "",
        "dial",
        "ftp://h",
        "http://u:p@h",
        "http://h?x",
        "http://h#x",
        "unix:/run/dial",
    ] {
        assert_eq!(DialOrigin::parse(text), Err(InvalidOrigin), "{text}");
    }
    assert_eq!(
        origin().url("v1/bucket"),
        "https://dial.example/base/v1/bucket"
    );
    assert_eq!(
        DialOrigin::parse("http://h").unwrap().url("v1/bucket"),
        "http://h/v1/bucket"
    );
}

#[test]
fn names_in_folders_are_made_safe() {
    let folder = DialFolder::parse("b/appdata/my app").unwrap();
    assert_eq!(folder.url(), "files/b/appdata/my%20app/");
    for (name, url) in [
        ("ä b.txt", "files/b/appdata/my%20app/%C3%A4%20b.txt"),
        ("../x", "files/b/appdata/my%20app/.._x"),
        ("..", "files/b/appdata/my%20app/file"),
        ("end.", "files/b/appdata/my%20app/end"),
        ("a\n", "files/b/appdata/my%20app/a"),
        ("a\nb", "files/b/appdata/my%20app/a_b"),
    ] {
        assert_eq!(folder.file(name).as_str(), url);
    }
    assert_eq!(DialFolder::parse("b/../c"), None);
    assert_eq!(DialFolder::parse("files/b/").unwrap().url(), "files/b/");
}
