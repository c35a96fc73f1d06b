//! What counts as a call by the product, and what does not.

use super::*;
use crate::metadata::CargoPackage;

/// Packages by name, each with the packages that it depends on. Ids are names.
fn metadata(packages: &[(&str, &[&str])]) -> CargoMetadata {
    let package = |(name, normal): &(&str, &[&str])| {
        let package = CargoPackage {
            name: (*name).to_owned(),
            is_member: true,
            directory: match *name {
                "tests" => "tests".to_owned(),
                name => format!("crates/{name}"),
            },
            normal: normal.iter().map(|name| (*name).to_owned()).collect(),
            ..CargoPackage::default()
        };
        ((*name).to_owned(), package)
    };
    CargoMetadata {
        packages: packages.iter().map(package).collect(),
    }
}

fn reported(files: &[(&str, &str)], exceptions: &str) -> Vec<String> {
    let metadata = metadata(&[
        ("low", &[]),
        ("middle", &["low"]),
        ("high", &["middle"]),
        ("other", &[]),
        ("dray-testkit", &["low"]),
        ("tests", &["low"]),
    ]);
    let sources: Vec<_> = files
        .iter()
        .map(|(path, text)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    let exceptions = CallExceptions::parse(exceptions).unwrap();
    violations(&metadata, &sources, &exceptions)
}

/// Checks which items of `crates/low/src/lib.rs` are reported when there are these other files.
fn check(text: &str, others: &[(&str, &str)], expected: &[&str]) {
    let files: Vec<_> = [("crates/low/src/lib.rs", text)]
        .into_iter()
        .chain(others.iter().copied())
        .collect();
    let names: Vec<_> = reported(&files, "")
        .iter()
        .map(|violation| violation.split('`').nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(names, expected, "{text}");
}

const ITEM: &str = "pub fn wanted() {}\n";

#[test]
fn an_item_that_only_tests_name_is_reported_with_its_line() {
    let text = "/// Sends it.\npub fn send_it() {}\n\n#[cfg(test)]\nmod tests {\n    fn a() {\n        send_it();\n    }\n}\n";
    assert_eq!(
        reported(&[("crates/low/src/lib.rs", text)], ""),
        [
            "crates/low/src/lib.rs:2 `send_it` is public, and no code outside tests names it: call it from the product, \
             remove it with its tests, or make it private, `#[cfg(test)]` or a part of the testkit; an exception needs a \
             reason in xtask/uncalled.toml"
        ]
    );
}

#[test]
fn functions_constants_and_types_are_items_and_private_ones_are_not() {
    check(
        "pub const fn one() {}\npub async fn two() {}\npub const THREE: u8 = 1;\npub struct Four;\npub enum Five {}\n\
         pub type Six = u8;\npub(crate) fn seven() {}\nfn eight() {}\npub mod nine {}\n    pub fn ten(&self) {}\n",
        &[],
        &["one", "two", "THREE", "Four", "Five", "Six", "ten"],
    );
}

#[test]
fn a_name_in_the_crate_or_in_one_that_depends_on_it_is_a_call() {
    check(&format!("{ITEM}fn main() {{ wanted() }}\n"), &[], &[]);
    let caller = "fn main() { low::wanted() }\n";
    check(ITEM, &[("crates/middle/src/a.rs", caller)], &[]);
    check(ITEM, &[("crates/high/src/a.rs", caller)], &[]);
    check(ITEM, &[("crates/other/src/a.rs", caller)], &["wanted"]);
}

#[test]
fn a_module_of_the_same_name_is_no_call() {
    for path in ["wanted::run()", "crate::wanted::Type::new()"] {
        let user = format!("{ITEM}fn main() {{ {path} }}\n");
        check(&user, &[], &["wanted"]);
    }
    for call in ["wanted::<u8>()", "low::wanted()", "map(wanted)"] {
        check(&format!("{ITEM}fn main() {{ {call} }}\n"), &[], &[]);
    }
    // A type before `::` is named.
    check(
        "pub struct Wanted;\nfn main() { Wanted::new() }\n",
        &[],
        &[],
    );
}

#[test]
fn tests_and_crates_for_tests_call_nothing() {
    let caller = "fn main() { low::wanted() }\n";
    for path in [
        "crates/low/src/tests.rs",
        "crates/low/src/tests/a.rs",
        "crates/middle/tests/a.rs",
        "crates/dray-testkit/src/a.rs",
        "tests/a/main.rs",
        "bench/src/a.rs",
    ] {
        check(ITEM, &[(path, caller)], &["wanted"]);
    }
}

#[test]
fn modules_for_tests_call_nothing_and_define_nothing_of_the_product() {
    let text = "#[cfg(any(test, feature = \"fake-server\"))]\npub mod fake_server;\n#[cfg(test)]\nmod more;\nmod product;\n\
                pub fn wanted() {}\n";
    let fake = "pub fn start() { crate::wanted() }\n";
    for path in [
        "crates/low/src/fake_server.rs",
        "crates/low/src/fake_server/part.rs",
        "crates/low/src/more.rs",
    ] {
        check(text, &[(path, fake)], &["wanted"]);
    }
    let product = "fn main() { crate::wanted() }\n";
    check(text, &[("crates/low/src/product.rs", product)], &[]);
}

#[test]
fn code_after_an_item_for_tests_belongs_to_the_product() {
    let text = "struct Own;\nimpl Own {\n    #[cfg(test)]\n    #[expect(dead_code, reason = \"a case\")]\n    pub fn of_test(\n        a: u8,\n    ) {\n        wanted();\n    \
                }\n\n    fn run() {\n        other();\n    }\n}\npub fn wanted() {}\npub fn other() {}\n";
    check(text, &[], &["wanted"]);
}

#[test]
fn a_re_export_an_own_impl_and_a_comment_are_no_call() {
    check(
        "mod a;\npub use a::{\n    Wanted,\n    other,\n};\npub(crate) use a::Wanted;\n",
        &[(
            "crates/low/src/a.rs",
            "/// [`Wanted`]\npub struct Wanted;\nimpl Wanted {\n}\nimpl<T: Fn() -> u8> From<T> for a::Wanted {\n}\n\
             pub fn other() {} // other\n",
        )],
        &["Wanted", "other"],
    );
}

#[test]
fn imports_attributes_bounds_and_texts_are_calls() {
    for caller in [
        "use low::wanted;\n",
        "#[serde(default = \"low::wanted\")]\nstruct A;\n",
        "const A: &str = \"https://a.example/{wanted}\";\n",
        "impl low::wanted for Other {\n",
        "impl Other<wanted> {\n",
        "static A: &'static wanted = 1;\n",
    ] {
        check(ITEM, &[("crates/middle/src/a.rs", caller)], &[]);
    }
}

#[test]
fn an_exception_with_a_reason_holds_until_it_is_not_needed() {
    let exception = "[low]\nwanted = \"The suite of the bus calls it.\"\n";
    let file = ("crates/low/src/lib.rs", ITEM);
    assert_eq!(reported(&[file], exception), [""; 0]);
    let caller = ("crates/middle/src/a.rs", "fn main() { wanted() }\n");
    let stale = "xtask/uncalled.toml lists `wanted` of low, which the product calls or which does not exist: remove the \
                 line";
    assert_eq!(reported(&[file, caller], exception), [stale]);
    assert_eq!(reported(&[], exception), [stale]);
    assert_eq!(
        reported(&[file], "[low]\nwanted = \" \"\n"),
        ["xtask/uncalled.toml gives no reason for `wanted` of low"]
    );
    assert!(CallExceptions::parse("[low]\nwanted = 1\n").is_err());
}
