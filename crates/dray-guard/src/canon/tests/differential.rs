//! Sends the same texts to our splitter, the `url` crate, `http::Uri` and curl (section 23.5, U-11). URLs on which they
//! disagree must be refused. curl connects only to a listener of this test.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use url::Url;

use super::{CanonicalUrl, Host};

/// Texts on which parsers are known to differ, or might.
const HOSTILE_URLS: &[&str] = &[
    "http://example.com/",
    "http://example.com",
    "HTTP://EXAMPLE.com:80/a?b#c",
    "http://a.example.com:8080?q",
    "http://example.com./",
    "http://8.8.8.8/",
    "http://[2606:4700::1111]/",
    "http://[2606:4700::1111]:8080/",
    "http://[::ffff:8.8.8.8]/",
    "http://[2606:4700::8.8.8.8]/",
    "http://a\\@127.0.0.1/",
    "http://127.0.0.1\\@a.example/",
    "http://a.example\\.evil.example/",
    "http://a.example#@evil.example/",
    "http://a.example?@evil.example/",
    "http://a.example/@evil.example",
    "http://a.example;@evil.example/",
    "http://user@a.example/",
    "http://a.example@b.example@c.example/",
    "http://a.example:80@evil.example/",
    "http://a.example:80:81/",
    "http://a.example:080/",
    "http://a.example:/",
    "http://a.example:65616/",
    "http:a.example",
    "http:/a.example",
    "http:///a.example",
    "http:////a.example",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
    "http://8.8.8.8./",
    "http://127.0.0.1.example.com/",
    "http://%31%32%37.0.0.1/",
    "http://exam%70le.com/",
    "http://１２７.0.0.1/",
    "http://①②⑦.0.0.1/",
    "http://example。com/",
    "http://exam\u{ad}ple.com/",
    "http://[::1%25lo]/",
    "http://[::1]evil.example/",
    "http://[::1].evil.example/",
    "http://[v1.a]/",
    "http://[127.0.0.1]/",
    "http://a..example/",
    "http://.example.com/",
    "http://example.com../",
    "http://-a.example.com/",
    "http://a,b.example.com/",
    "http://a_b.example.com/",
    "http://xn--bcher-kva.example/",
    "http://bücher.example/",
    "http://straße.example/",
    "http://BÜCHER.example/",
    "http://bu\u{308}cher.example/",
    "http://例え.テスト/",
    "http://a.example\t/",
    "http://a.exa\nmple/",
    " http://a.example/",
    "http://a.example /",
    "http://a.example/a/../b/%2e%2e/c",
    "http://a.example//b.example/",
];

/// `HOSTILE_URLS`, and each printable character at four places of an authority.
fn texts() -> Vec<String> {
    let mut texts: Vec<_> = HOSTILE_URLS.iter().map(ToString::to_string).collect();
    for character in ('!'..='~').chain("ſ－．：／＠［K".chars()) {
        texts.push(format!("http://{character}a.example/"));
        texts.push(format!("http://a{character}b.example/"));
        texts.push(format!("http://a.example{character}b.example/"));
        texts.push(format!("http://a.example{character}/"));
        texts.push(format!("http://a.example:{character}80/"));
        if !matches!(character, 's' | 'S') {
            texts.push(format!("http{character}://a.example/"));
        }
    }
    texts
}

/// The `Host` field that curl sends for each text; `None` where curl refuses it.
fn ask_curl(texts: &[String]) -> Vec<Option<String>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = mpsc::channel();
    let server = thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            match answer(stream) {
                Some(request) => sender.send(request).unwrap(),
                None => break,
            }
        }
    });
    let mut curl = Command::new("curl");
    curl.env("LC_ALL", "C.UTF-8").arg("--disable");
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            curl.arg("--next");
        }
        curl.args([
            "--silent",
            "--globoff",
            "--noproxy",
            "*",
            "--max-time",
            "10",
        ])
        .args(["--proto", "=http", "--connect-to"])
        .arg(format!("::{address}"))
        .args(["--header", &format!("X-Index: {index}")])
        .args(["--url", text]);
    }
    curl.output().expect("this test needs the curl tool");
    // An empty connection ends the server; then everything that curl sent is in the channel.
    drop(TcpStream::connect(address).unwrap());
    server.join().unwrap();
    let urls: HashMap<usize, String> = requests.try_iter().collect();
    (0..texts.len())
        .map(|index| urls.get(&index).cloned())
        .collect()
}

/// Answers one request with an empty file; gives its index and its `Host` field.
fn answer(mut stream: TcpStream) -> Option<(usize, String)> {
    let head: Vec<_> = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let field = |name: &str| head.iter().find_map(|line| line.strip_prefix(name));
    let index = field("X-Index: ")?.parse().unwrap();
    let host = field("Host: ").unwrap_or_default().to_owned();
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    Some((index, host))
}

/// Scheme, host and port as the `url` crate reads the text.
fn whatwg(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http")?;
    let port = url
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    Some(format!("{}{port}", url.host_str()?))
}

fn http(text: &str) -> Option<String> {
    let uri: http::Uri = text.parse().ok()?;
    let port = uri.port_u16().filter(|port| *port != 80);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}{port}", uri.host()?.to_ascii_lowercase()))
}

/// How another parser prints our host: with the root dot, and IPv4-mapped addresses as they were.
fn is_same(ours: &CanonicalUrl, theirs: &str) -> bool {
    let root = if ours.root_dot() { "." } else { "" };
    let port = ours.host_header()[ours.host().to_string().len()..].to_owned();
    let mapped = match ours.host() {
        Host::Ip(IpAddr::V4(address)) => format!("[{}]{port}", address.to_ipv6_mapped()),
        _ => String::new(),
    };
    let expanded = theirs
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .and_then(|(inside, port)| Some((inside.parse::<Ipv6Addr>().ok()?, port)))
        .map_or(theirs.to_ascii_lowercase(), |(address, port)| {
            format!("[{address}]{port}")
        });
    expanded == format!("{}{root}{port}", ours.host()) || expanded == mapped
}

#[test]
fn u_11_every_text_that_is_accepted_names_the_same_host_for_every_parser() {
    let texts = texts();
    let curl = ask_curl(&texts);
    let mut accepted = 0;
    let mut disagreements = 0;
    for (text, by_curl) in texts.iter().zip(curl) {
        let ours = CanonicalUrl::parse(text);
        // `http::Uri` accepts ASCII only: it reads the canonical form of an international name.
        let readable = match &ours {
            Ok(ours) if !text.is_ascii() => ours.to_string(),
            _ => text.clone(),
        };
        let others = [
            ("curl", by_curl),
            ("url", whatwg(text)),
            ("http", http(&readable)),
        ];
        let Ok(ours) = ours else {
            let hosts: BTreeSet<_> = others.iter().map(|(_, host)| host).collect();
            disagreements += usize::from(hosts.len() > 1);
            continue;
        };
        accepted += 1;
        for (parser, host) in others {
            let host = host.unwrap_or_else(|| panic!("{parser} refuses {text}"));
            assert!(is_same(&ours, &host), "{parser} reads {host} in {text}");
        }
    }
    // The list is useful only if both occur.
    assert!(
        accepted > 60 && disagreements > 100,
        "{accepted} {disagreements}"
    );
}
