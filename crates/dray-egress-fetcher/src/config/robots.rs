//! The setting for the robots.txt of hosts, and the contact for their operators.

use dray_guard::robots::RobotsMode;
use dray_service::config::ConfigProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// Longest contact in bytes.
const MAX_CONTACT_BYTES: usize = 80;

/// How fetches treat the robots.txt of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RobotsSetting {
    /// The robots.txt is not requested.
    #[default]
    Ignore,
    /// A refusal is recorded, and the URL is fetched.
    Report,
    /// A refused URL is not fetched.
    Obey,
}

impl From<RobotsSetting> for RobotsMode {
    fn from(setting: RobotsSetting) -> Self {
        match setting {
            RobotsSetting::Ignore => Self::Ignore,
            RobotsSetting::Report => Self::Report,
            RobotsSetting::Obey => Self::Obey,
        }
    }
}

/// The comment for `User-Agent` that names the contact; empty without one.
pub(super) fn contact_comment(contact: Option<&str>, checks: &mut ProblemCollector) -> String {
    let Some(contact) = contact else {
        return String::new();
    };
    // Parentheses and backslashes would end or change the comment (RFC 9110, section 5.6.5).
    let is_plain = contact
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'(' | b')' | b'\\'));
    let is_url = ["https://", "http://", "mailto:"].iter().any(|scheme| {
        contact
            .strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty())
    });
    let is_email = contact
        .split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.') && !host.contains('@'));
    if !is_plain || !(is_url || is_email) || contact.len() > MAX_CONTACT_BYTES {
        checks.0.push(ConfigProblem::new(
            "contact",
            "must be a URL or an address of email: at most 80 printable ASCII characters without blanks and parentheses",
        ));
    }
    format!(" (+{contact})")
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn user_agent(contact: &str) -> Result<String, String> {
        let config = Config {
            user_agent: "dray/1".to_owned(),
            contact: Some(contact.to_owned()),
            ..Config::default()
        };
        let compiled = config.compile();
        let agent =
            compiled.map(|compiled| compiled.settings.user_agent.to_str().unwrap().to_owned());
        agent.map_err(|problems| format!("{problems:?}"))
    }

    #[test]
    fn a_contact_is_a_comment_behind_the_product() {
        for contact in [
            "https://example.org/about-bot",
            "mailto:web@example.org",
            "web@example.org",
        ] {
            assert_eq!(user_agent(contact), Ok(format!("dray/1 (+{contact})")));
        }
        for wrong in [
            "",
            "someone",
            "https://",
            "web@localhost",
            "@example.org",
            "a@b@example.org",
            "web@example.org)",
            "https://example.org/a b",
            "https://example.org/\r\nX: y",
            "https://example.org/\u{e4}",
        ] {
            let problem = user_agent(wrong).unwrap_err();
            assert!(problem.contains("contact"), "{wrong}: {problem}");
        }
        let long = format!("https://example.org/{}", "x".repeat(100));
        assert!(user_agent(&long).is_err());
    }
}
