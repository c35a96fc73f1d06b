//! Tests of hosts: U-5 to U-8, and mapped addresses (8.3).

use super::{CanonicalUrl, Code, check, check_refused};

// U-5
#[test]
fn u_5_brackets_contain_only_an_ipv6_address() {
    check("http://[2606:4700:0:0::1]/", "http://[2606:4700::1]/");
    check(
        "http://[2606:4700::8.8.8.8]/",
        "http://[2606:4700::808:808]/",
    );
    check("http://[2606:4700::A]:8080/", "http://[2606:4700::a]:8080/");
    for text in [
        "http://[fe80::1%eth0]/",
        "http://[v1.fe80::a]/",
        "http://[example.com]/",
        "http://[127.0.0.1]/",
        "http://[]/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]a/",
        "http://[::1].example.com/",
        "http://[::1]:/",
        "http://a[::1]/",
        "http://[[::1]]/",
        "http://[::1]]/",
        "http://[1::2::3]/",
        "http://[::01.2.3.4]/",
        "http://[12345::]/",
    ] {
        check_refused(text, Code::InvalidUrl);
    }
}

// 8.3
#[test]
fn mapped_literals_become_the_address_inside() {
    check("http://[::ffff:8.8.8.8]/", "http://8.8.8.8/");
    check("http://[::ffff:7f00:1]:8080/", "http://127.0.0.1:8080/");
}

// U-6
#[test]
fn u_6_only_the_canonical_form_of_an_ipv4_address_is_accepted() {
    check("http://8.8.8.8/", "http://8.8.8.8/");
    check("http://127.0.0.1:8080/", "http://127.0.0.1:8080/");
    for text in [
        "http://127.1/",
        "http://127.0.1/",
        "http://0x7f000001/",
        "http://0X7F.0.0.1/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://010.8.8.8/",
        "http://8.8.8.8./",
        "http://8.8.8.8../",
        "http://08.8.8.8/",
        "http://8.8.8.08/",
        "http://256.1.1.1/",
        "http://1.2.3.4.5/",
        "http://example.123/",
        "http://a.0x1/",
        "http://a.0x/",
        "http://0/",
        "http://0xg/",
        "http://99999999999/",
        "http://example.1./",
    ] {
        check_refused(text, Code::AmbiguousHost);
    }
    check("http://1.2.3.4.example.com/", "http://1.2.3.4.example.com/");
    check("http://0x7f.example.com/", "http://0x7f.example.com/");
}

// U-7
#[test]
fn u_7_names_have_clean_labels() {
    let label = "a".repeat(63);
    check(
        &format!("http://{label}.com/"),
        &format!("http://{label}.com/"),
    );
    let longest = format!("{}example.com", "abc.".repeat(60)) + "mm";
    assert_eq!(longest.len(), 253);
    check(&format!("http://{longest}/"), &format!("http://{longest}/"));
    for host in [
        "",
        ".",
        "..",
        ".example.com",
        "example..com",
        "example.com..",
        "-a.example.com",
        "a-.example.com",
        "a.-example.com",
        "xn--.example.com",
        "xn--a.example.com",
        "xn--abc-.example.com",
        "xn--99999999.example.com",
        &format!("a{label}.com"),
        &format!("m{longest}"),
    ] {
        check_refused(&format!("http://{host}/"), Code::InvalidUrl);
    }
    for character in "*;()!'\"$&{}~,`<>^|+=".chars() {
        check_refused(
            &format!("http://a{character}b.example.com/"),
            Code::InvalidUrl,
        );
    }
}

// U-7
#[test]
fn u_7_one_root_dot_is_dropped_and_remembered() {
    let url = CanonicalUrl::parse("http://Example.com./a").unwrap();
    assert!(url.root_dot());
    assert_eq!(
        (url.host().to_string().as_str(), url.to_string().as_str()),
        ("example.com", "http://example.com./a")
    );
    assert_eq!(CanonicalUrl::parse(&url.to_string()), Ok(url));
}

// U-7
#[test]
fn u_7_international_names_are_mapped_without_transition() {
    check("http://bücher.example/", "http://xn--bcher-kva.example/");
    check("http://BÜCHER.example/", "http://xn--bcher-kva.example/");
    check("http://straße.example/", "http://xn--strae-oqa.example/");
    check("http://例え.テスト/", "http://xn--r8jz45g.xn--zckzah/");
    check(
        "http://παράδειγμα.example/",
        "http://xn--hxajbheg2az3al.example/",
    );
    check(
        "http://ΠΑΡΆΔΕΙΓΜΑ.example/",
        "http://xn--hxajbheg2az3al.example/",
    );
    check(
        "http://xn--BCHER-kva.example/",
        "http://xn--bcher-kva.example/",
    );
    // A letter with a combining mark is the same letter.
    check(
        "http://bu\u{308}cher.example/",
        "http://xn--bcher-kva.example/",
    );
    check_refused("http://\u{308}a.example/", Code::InvalidUrl);
}

// U-8: the test names of IANA for several scripts.
#[test]
fn u_8_genuine_international_names_are_accepted() {
    let check =
        |host: &str, mapped: &str| check(&format!("http://{host}/"), &format!("http://{mapped}/"));
    check("उदाहरण.परीक्षा", "xn--p1b6ci4b4b3a.xn--11b5bs3a9aj6g");
    check("مثال.إختبار", "xn--mgbh0fb.xn--kgbechtv");
    check("пример.испытание", "xn--e1afmkfd.xn--80akhbyknj4f");
    check("실례.테스트", "xn--9n2bp8q.xn--9t4b11yi5a");
    check("δοκιμή.example", "xn--jxalpdlp.example");
    check("a.טעסט", "a.xn--deba0ad");
    check("உதாரணம்.பரிட்சை", "xn--zkc6cc5bi7f6e.xn--hlcj6aya9esc7a");
    check("例子.测试", "xn--fsqu00a.xn--0zwm56d");
}

// U-8
#[test]
fn u_8_disguised_hosts_are_ambiguous() {
    for host in [
        "１２７.0.0.1",
        "①②⑦.0.0.1",
        "ｅxample.com",
        "ｅｘａｍｐｌｅ.com",
        "ⓔxample.com",
        "ﬁles.example.com",
        "exam\u{ad}ple.com",
        "exam\u{200b}ple.com",
        "exam\u{200d}ple.com",
        "exam\u{2060}ple.com",
        "example。com",
        "example．com",
        "example｡com",
        "127。0。0。1",
        "ℯxample.com",
        "\u{212a}.example.com",
        "bü\u{212a}.example",
        "exa\u{fe0f}mple.com",
        // A genuine international label does not excuse hidden characters beside it.
        "bü\u{ad}cher.example",
        "bü\u{200b}cher.example",
        "büﬁ.example",
        "１bücher.example",
        "bücher\u{fe0f}.example",
        "０x7f.0.0.1",
        "localhos\u{ff54}",
    ] {
        check_refused(&format!("http://{host}/"), Code::AmbiguousHost);
    }
}
