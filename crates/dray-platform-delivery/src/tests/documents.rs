//! The configuration on the pages of the platforms is valid: it can be loaded, and the accounts can be opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dray_platform::{DeliveryTarget, Platform};
use dray_service::config::{ConfigLoader, ConfigSources, Environment};
use dray_types::{Clock, PlatformKind};

use crate::config::Config;

/// The directory of secrets on the pages.
const SECRETS_DIRECTORY: &str = "/etc/dray/";

/// The pages of `docs/platforms`, by name without extension, in alphabetical order.
fn platform_pages() -> BTreeMap<String, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/platforms");
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

/// The blocks of configuration of a page.
fn blocks(page: &str) -> Vec<&str> {
    let blocks = page.split("```toml\n").skip(1);
    blocks
        .map(|rest| rest.split_once("```").unwrap().0)
        .collect()
}

/// Loads a block with secrets in files of this directory.
fn load(block: &str, directory: &Path) -> Config {
    for rest in block.split(SECRETS_DIRECTORY).skip(1) {
        let (name, _) = rest.split_once('"').unwrap();
        let secret = match name {
            "telegram.token" => "123456789:AAExampleExampleExampleExampleExample",
            "slack.token" => "xoxb-1-example",
            _ => "a-secret-of-a-test",
        };
        std::fs::write(directory.join(name), secret).unwrap();
    }
    let own = format!("{}/", directory.display());
    let file = directory.join("dray.toml");
    std::fs::write(&file, block.replace(SECRETS_DIRECTORY, &own)).unwrap();
    let sources = ConfigSources::new(Environment::default()).file(file);
    let loader = ConfigLoader::new().section::<Config>("platform-delivery");
    let loaded = loader
        .load(&sources)
        .unwrap_or_else(|error| panic!("{error}\n{block}"));
    loaded.section("platform-delivery").unwrap()
}

#[test]
fn every_platform_has_a_page() {
    let pages = platform_pages();
    let names: Vec<_> = pages.keys().map(String::as_str).collect();
    let platforms: Vec<_> = PlatformKind::ALL
        .iter()
        .map(|platform| platform.as_str())
        .collect();
    assert_eq!(names, platforms);
}

#[test]
fn the_configuration_of_every_page_is_loaded_and_its_accounts_open() {
    for (platform, page) in platform_pages() {
        let blocks = blocks(&page);
        assert!(!blocks.is_empty(), "{platform}.md shows no configuration");
        for block in blocks {
            let directory = tempfile::tempdir().unwrap();
            let config = load(block, directory.path());
            let accounts = config
                .accounts(&Clock::manual(1))
                .unwrap_or_else(|error| panic!("{platform}.md: {error}"));
            if !config.question_chats.is_empty() {
                let mut chats = config.question_chats.values();
                let of_page = format!("{platform}:");
                assert!(chats.all(|chat| chat.chat.starts_with(&of_page)), "{block}");
                continue;
            }
            let names: Vec<_> = accounts
                .iter()
                .map(|account| account.platform.name())
                .collect();
            assert_eq!(names, [platform.as_str()], "{block}");
        }
    }
}

/// The rate limits of an account as its page states them: a platform may have others for groups than for a person.
fn stated_rate_limits(platform: &dyn Platform) -> String {
    let limits = ["1", "-1"].map(|chat| {
        let target = DeliveryTarget {
            platform: platform.name().to_owned(),
            account: String::new(),
            chat: chat.to_owned(),
            thread: String::new(),
            reply_to: String::new(),
        };
        platform.rate_limits(&target)
    });
    let [person, group] = limits.map(|limits| limits.chat_per_minute);
    let account = limits[0].account_per_minute;
    let chats = if person == group {
        format!("{person} per chat")
    } else {
        format!("{person} per person, {group} per group")
    };
    format!("{account} messages a minute per account, {chats}")
}

#[test]
fn every_page_states_the_rate_limits_of_its_platform() {
    for (platform, page) in platform_pages() {
        let stated = page.matches(" messages a minute per account, ").count();
        let mut expected = BTreeSet::new();
        for block in blocks(&page) {
            let directory = tempfile::tempdir().unwrap();
            let config = load(block, directory.path());
            for account in config.accounts(&Clock::manual(1)).unwrap().iter() {
                let limits = stated_rate_limits(account.platform.as_ref());
                assert!(
                    page.contains(&limits),
                    "{platform}.md does not say: {limits}"
                );
                expected.insert(limits);
            }
        }
        assert_eq!(stated, expected.len(), "{platform}.md: {expected:?}");
    }
}

#[test]
fn every_platform_takes_the_former_name_of_its_response_timeout() {
    for (platform, page) in platform_pages() {
        for block in blocks(&page) {
            // The heading of an account's options, such as `[platform-delivery.accounts.bot.slack]`.
            let is_heading = |line: &str| {
                line.starts_with("[platform-delivery.accounts.") && line.split('.').count() == 4
            };
            let count = block.lines().filter(|line| is_heading(line)).count();
            let former = block.lines().map(|line| {
                let added = if is_heading(line) {
                    "\nanswer_timeout = \"7s\""
                } else {
                    ""
                };
                format!("{line}{added}\n")
            });
            let directory = tempfile::tempdir().unwrap();
            let config = load(&former.collect::<String>(), directory.path());
            let accounts = serde_json::to_string(&config.accounts).unwrap();
            let set = accounts.matches("\"response_timeout\":\"7s\"").count();
            assert_eq!(set, count, "{platform}.md: {accounts}");
        }
    }
}

#[test]
fn every_platform_of_the_configuration_has_a_page_with_it() {
    let account = serde_json::to_value(crate::config::AccountConfig::default()).unwrap();
    let pages = platform_pages();
    let shown: String = pages.values().flat_map(|page| blocks(page)).collect();
    for platform in account.as_object().unwrap().keys() {
        if platform != "tenant" {
            let heading = format!(".{platform}]");
            assert!(shown.contains(&heading), "no page configures {platform}");
        }
    }
}

#[test]
fn every_page_leads_to_all_options_of_its_accounts() {
    let account = serde_json::to_value(crate::config::AccountConfig::default()).unwrap();
    let pages = platform_pages();
    for options in account.as_object().unwrap().keys() {
        let platform = options.trim_end_matches("_bridge");
        let Some(page) = pages.get(platform) else {
            assert_eq!(options, "tenant", "no page has the name of the options");
            continue;
        };
        let (link, path) = (
            "(../configuration.md#platform-delivery)",
            format!("`accounts.*.{options}`"),
        );
        assert!(page.contains(link), "{platform}.md");
        assert!(page.contains(&path), "{platform}.md names no {path}");
    }
}
