//! Rules about files from the web: which of them may go to which chats.
//!
//! The rules are applied without I/O. `deliver::web` reads where a file comes from, from the records that
//! egress-fetcher keeps in the store.

use dray_guard::HostPattern;
use dray_platform::DeliveryTarget;
use dray_service::config::ConfigProblem;
use dray_types::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::is_name;

/// Most rules.
const MAX_RULES: usize = 256;

/// One rule about files from the web. The first one that matches decides; a file that none matches is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebFileRule {
    /// The rule's name in receipts and audit events: 1 to 64 of a-z, 0-9, _ and -.
    pub name: String,
    /// Tenants to which the rule applies; empty means every tenant.
    pub tenants: Vec<String>,
    /// Chats to which the rule applies, as in `allowed_targets`; empty means every chat.
    pub targets: Vec<String>,
    /// Hosts to which the rule applies, as `example.org` or `*.example.org`; empty means every host. A file that was
    /// fetched over redirects has several hosts. `allow` requires all of them in the list; `deny` and `report` require
    /// one of them.
    pub hosts: Vec<String>,
    /// Whether `deny` and `report` also apply to files of sandboxes without a known fetch: a program may have fetched
    /// or changed them. Default false.
    pub sandbox_files: bool,
    /// `allow`, `report` (the receipt names the rule, and later rules decide) or `deny`. Default `deny`.
    pub outcome: WebFileOutcome,
}

/// The decision of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebFileOutcome {
    /// The file is sent.
    Allow,
    /// The file is judged by later rules, and its receipt names this one.
    Report,
    /// The file is not sent.
    #[default]
    Deny,
}

/// Decision of the rules about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebFileVerdict {
    /// Hosts from which the same bytes were fetched; empty if no fetch is known, or no rule needed the origin.
    pub hosts: Vec<String>,
    /// The rule that refused it; empty for none.
    pub refused_by: String,
    /// The first rule that would have refused it if the rule were in force; empty if none would have.
    pub reported_by: String,
}

impl WebFileVerdict {
    /// The verdict for a file to which no rule applies.
    pub const NONE: Self = Self {
        hosts: Vec::new(),
        refused_by: String::new(),
        reported_by: String::new(),
    };
}

/// Where one file comes from, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileOrigin<'a> {
    /// The file's bytes were fetched from these hosts.
    Web(&'a [String]),
    /// The hosts are not known, or the bytes are never read here. The file counts as if it came from any host.
    Unseen,
    /// The file was copied out of a sandbox, and no fetch of these bytes is known.
    Sandbox,
}

/// The chat that a file is sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRecipient<'a> {
    pub(crate) tenant: &'a TenantId,
    /// The chat, always with the name of the account, even if the request left it out.
    pub(crate) target: &'a DeliveryTarget,
}

/// Applies the rules to one origin of a file, and adds the result to the verdict.
pub(crate) fn judge_origin(
    rules: &[WebFileRule],
    recipient: FileRecipient<'_>,
    origin: FileOrigin<'_>,
    verdict: &mut WebFileVerdict,
) {
    let matching = rules
        .iter()
        .filter(|rule| rule.is_about(recipient) && rule.covers(origin));
    for rule in matching {
        let decided_by = match rule.outcome {
            WebFileOutcome::Allow => return,
            WebFileOutcome::Report => &mut verdict.reported_by,
            WebFileOutcome::Deny => &mut verdict.refused_by,
        };
        // Only the first rule is named, because it is the one that an operator has to change.
        if decided_by.is_empty() {
            decided_by.clone_from(&rule.name);
        }
        if rule.outcome == WebFileOutcome::Deny {
            return;
        }
    }
}

/// Whether any rule may refuse a file for this chat. Without such a rule, no origin is read.
pub(crate) fn any_rule_about(rules: &[WebFileRule], recipient: FileRecipient<'_>) -> bool {
    rules
        .iter()
        .any(|rule| rule.outcome != WebFileOutcome::Allow && rule.is_about(recipient))
}

impl WebFileRule {
    fn is_about(&self, FileRecipient { tenant, target }: FileRecipient<'_>) -> bool {
        (self.tenants.is_empty() || self.tenants.iter().any(|name| name == tenant.as_str()))
            && (self.targets.is_empty() || self.targets.iter().any(|text| covers(text, target)))
    }

    /// Whether the rule is about files of this origin. An unknown host counts against the file.
    fn covers(&self, origin: FileOrigin<'_>) -> bool {
        let is_allow = self.outcome == WebFileOutcome::Allow;
        let is_listed = |host: &String| {
            let mut patterns = self.hosts.iter();
            patterns.any(|text| {
                HostPattern::parse(text).is_ok_and(|pattern| pattern.matches(host.as_str()))
            })
        };
        match origin {
            _ if self.hosts.is_empty() && is_allow => true,
            FileOrigin::Sandbox => !is_allow && self.sandbox_files,
            _ if self.hosts.is_empty() => true,
            // A record without hosts proves nothing that an `allow` rule could rely on.
            FileOrigin::Unseen | FileOrigin::Web([]) => !is_allow,
            FileOrigin::Web(hosts) if is_allow => hosts.iter().all(is_listed),
            FileOrigin::Web(hosts) => hosts.iter().any(is_listed),
        }
    }
}

/// Whether an entry of a list of chats, such as `telegram:12345` or `telegram:*`, is about this chat.
pub(crate) fn covers(entry: &str, target: &DeliveryTarget) -> bool {
    let Ok(entry) = entry.parse::<DeliveryTarget>() else {
        return false;
    };
    entry.platform == target.platform
        && (entry.account.is_empty() || entry.account == target.account)
        && (entry.chat == "*" || entry.chat == target.chat)
        && (entry.thread.is_empty() || entry.thread == target.thread)
}

/// The problems of the rules.
pub(crate) fn rule_problems(rules: &[WebFileRule]) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut unless = |is_valid: bool, field: &str, message: &str| {
        if !is_valid {
            problems.push(ConfigProblem::new(field, message));
        }
    };
    unless(
        rules.len() <= MAX_RULES,
        "web_files",
        "must have at most 256 rules",
    );
    for (index, rule) in rules.iter().enumerate() {
        let field = |name: &str| format!("web_files.{index}.{name}");
        let is_only = rules.iter().filter(|other| other.name == rule.name).count() == 1;
        unless(
            is_name(&rule.name) && is_only,
            &field("name"),
            "must be 1 to 64 of a-z, 0-9, _ and -, and the name of one rule only",
        );
        unless(
            rule.tenants
                .iter()
                .all(|tenant| TenantId::new(tenant.as_str()).is_ok()),
            &field("tenants"),
            "must be names of tenants",
        );
        unless(
            rule.targets
                .iter()
                .all(|target| target.parse::<DeliveryTarget>().is_ok()),
            &field("targets"),
            "must be written like telegram:12345 or telegram:*",
        );
        unless(
            rule.hosts
                .iter()
                .all(|host| HostPattern::parse(host).is_ok()),
            &field("hosts"),
            "must be written like example.org or *.example.org",
        );
        unless(
            !rule.sandbox_files || rule.outcome != WebFileOutcome::Allow,
            &field("sandbox_files"),
            "has no meaning with the outcome `allow`, which is about every file that it matches",
        );
        // No host of such a file is known, so a list of hosts cannot decide about it.
        unless(
            !rule.sandbox_files || rule.hosts.is_empty(),
            &field("sandbox_files"),
            "must not stand beside `hosts`",
        );
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, outcome: WebFileOutcome, hosts: &[&str], targets: &[&str]) -> WebFileRule {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        WebFileRule {
            name: name.to_owned(),
            hosts: owned(hosts),
            targets: owned(targets),
            outcome,
            ..WebFileRule::default()
        }
    }

    /// The rules that refused and reported a file of these hosts to this chat.
    fn judge(rules: &[WebFileRule], target: &str, origin: FileOrigin<'_>) -> (String, String) {
        let tenant = TenantId::new("acme").unwrap();
        let recipient = FileRecipient {
            tenant: &tenant,
            target: &target.parse().unwrap(),
        };
        let mut verdict = WebFileVerdict::NONE;
        judge_origin(rules, recipient, origin, &mut verdict);
        (verdict.refused_by, verdict.reported_by)
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_host_of_the_chain_must_be_allowed_and_one_is_enough_to_refuse() {
        use WebFileOutcome::{Allow, Deny};
        let rules = [
            rule("paste", Deny, &["*.paste.example"], &[]),
            rule("partner", Allow, &["files.partner.example"], &[]),
            rule("outside", Deny, &[], &[]),
        ];
        for (chain, expected) in [
            (&["files.partner.example"][..], ""),
            // A partner's redirect to another host is not the partner's file.
            (&["files.partner.example", "cdn.example"], "outside"),
            (&["cdn.example", "files.partner.example"], "outside"),
            (&["x.paste.example", "files.partner.example"], "paste"),
            // Only names below the pattern match, and not a name that merely ends with the same text.
            (&["paste.example"], "outside"),
            (&["notfiles.partner.example"], "outside"),
            (&["203.0.113.7"], "outside"),
            (&[], "paste"),
        ] {
            let chain = hosts(chain);
            let (refused_by, _) = judge(&rules, "telegram:1", FileOrigin::Web(&chain));
            assert_eq!(refused_by, expected, "{chain:?}");
        }
    }

    #[test]
    fn an_unknown_origin_counts_against_the_file() {
        use WebFileOutcome::{Allow, Deny};
        let partner = rule("partner", Allow, &["files.partner.example"], &[]);
        let outside = rule("outside", Deny, &[], &[]);
        let paste = rule("paste", Deny, &["paste.example"], &[]);
        let rules = [partner, outside];
        assert_eq!(judge(&rules, "telegram:1", FileOrigin::Unseen).0, "outside");
        assert_eq!(judge(&[paste], "telegram:1", FileOrigin::Unseen).0, "paste");
        // A file of a sandbox is from the web only where a rule says so.
        assert_eq!(judge(&rules, "telegram:1", FileOrigin::Sandbox).0, "");
        let strict = WebFileRule {
            sandbox_files: true,
            ..rule("sandboxes", Deny, &[], &[])
        };
        assert_eq!(
            judge(&[strict], "telegram:1", FileOrigin::Sandbox).0,
            "sandboxes"
        );
    }

    #[test]
    fn rules_are_about_chats_and_the_first_one_decides() {
        use WebFileOutcome::{Allow, Deny, Report};
        let rules = [
            rule("trial", Report, &[], &["email:*"]),
            rule("staff", Allow, &[], &["slack:*", "telegram/staff:*"]),
            rule("outside", Deny, &[], &[]),
        ];
        let chain = hosts(&["files.example.org"]);
        for (target, expected) in [
            ("slack:C1", ("", "")),
            ("telegram/staff:7", ("", "")),
            ("telegram/public:7", ("outside", "")),
            ("email:someone@example.org", ("outside", "trial")),
        ] {
            let (refused_by, reported_by) = judge(&rules, target, FileOrigin::Web(&chain));
            assert_eq!((refused_by.as_str(), reported_by.as_str()), expected);
        }
        // A rule that only reports refuses nothing.
        let (refused_by, reported_by) =
            judge(&rules[..1], "email:a@b.example", FileOrigin::Web(&chain));
        assert_eq!((refused_by.as_str(), reported_by.as_str()), ("", "trial"));
    }

    #[test]
    fn invalid_rules_are_refused_with_their_field() {
        let valid_rule = rule("a", WebFileOutcome::Deny, &["*.example.org"], &["email:*"]);
        assert_eq!(rule_problems(std::slice::from_ref(&valid_rule)), []);
        for (change, field) in [
            (
                WebFileRule {
                    name: String::new(),
                    ..valid_rule.clone()
                },
                "name",
            ),
            (
                WebFileRule {
                    hosts: hosts(&["a.*.b"]),
                    ..valid_rule.clone()
                },
                "hosts",
            ),
            (
                WebFileRule {
                    hosts: hosts(&["203.0.113.7"]),
                    ..valid_rule.clone()
                },
                "hosts",
            ),
            (
                WebFileRule {
                    targets: hosts(&["Telegram"]),
                    ..valid_rule.clone()
                },
                "targets",
            ),
            (
                WebFileRule {
                    tenants: hosts(&[""]),
                    ..valid_rule.clone()
                },
                "tenants",
            ),
            (
                WebFileRule {
                    sandbox_files: true,
                    ..valid_rule.clone()
                },
                "sandbox_files",
            ),
        ] {
            let problems = rule_problems(&[change]);
            assert_eq!(problems.len(), 1, "{field}");
            assert_eq!(problems[0].field, format!("web_files.0.{field}"));
        }
        assert_eq!(rule_problems(&[valid_rule.clone(), valid_rule]).len(), 2);
    }
}
