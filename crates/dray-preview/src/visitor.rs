//! The visitor of a link: a person, or a link scanner that names itself.
//!
//! Chat platforms and mail gateways fetch links of messages. Programs that identify themselves in `User-Agent` are
//! counted apart. A scanner that calls itself a browser counts as a person.

use http::{HeaderMap, header};

/// Parts of `User-Agent` of programs that fetch links of messages, in lower case: link previews of platforms, mail
/// services and messengers, and the conventions by which crawlers name themselves.
const SCANNER_NAMES: [&str; 18] = [
    "telegrambot",
    "discordbot",
    "slackbot",
    "slack-imgproxy",
    "whatsapp/",
    "facebookexternalhit",
    "facebookcatalog",
    "twitterbot",
    "linkedinbot",
    "skypeuripreview",
    "mattermost-bot",
    "synapse (bot",
    "googleimageproxy",
    "bingpreview",
    "embedly",
    "iframely",
    // `(bot; +https://…)`, `ExampleBot/1.0 (+http://…)`: a browser names no page about itself.
    "(bot;",
    "+http",
];

/// The kind of visitor that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreviewVisitor {
    /// A browser, or a program that calls itself a browser.
    Person,
    /// A program that names itself.
    Scanner,
}

impl PreviewVisitor {
    /// The visitor by the headers of a request.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let agent = headers.get(header::USER_AGENT);
        // A value that is not text matches nothing, like a missing one.
        let agent = agent.and_then(|agent| agent.to_str().ok());
        let agent = agent.unwrap_or_default().to_ascii_lowercase();
        if SCANNER_NAMES.iter().any(|name| agent.contains(name)) {
            Self::Scanner
        } else {
            Self::Person
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_name_themselves_are_distinguished_from_browsers() {
        let visitor = |agent: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, agent.parse().unwrap());
            PreviewVisitor::of(&headers)
        };
        for agent in [
            "TelegramBot (like TwitterBot)",
            "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)",
            "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)",
            "WhatsApp/2.24.6.77 A",
            "Synapse (bot; +https://github.com/matrix-org/synapse)",
            "Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5",
            "ExampleFetcher/1.0 (+http://example.org/about)",
        ] {
            assert_eq!(visitor(agent), PreviewVisitor::Scanner, "{agent}");
        }
        for agent in [
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
            // This is a telephone, not a bot.
            "Mozilla/5.0 (Linux; Android 10; CUBOT X30) AppleWebKit/537.36 Mobile Safari/537.36",
            "curl/8.5.0",
            "",
        ] {
            assert_eq!(visitor(agent), PreviewVisitor::Person, "{agent}");
        }
        assert_eq!(
            PreviewVisitor::of(&HeaderMap::new()),
            PreviewVisitor::Person
        );
    }
}
