//! The shipped accounts file as data: which identity may publish on which subjects, and subscribe in which queue
//! groups.

use super::super::read;

/// Subscriptions with which another user could read messages.
pub(super) const EAVESDROPPING_SUBJECTS: &[(&str, Option<&str>)] = &[
    (">", None),
    ("*", None),
    ("dray.>", None),
    ("dray.>", Some("egress-fetcher")),
    ("dray.egress.v1.*", None),
    ("dray.egress.v1.fetch", None),
    ("dray.egress.v1.fetch", Some("spy")),
    ("dray.file.v1.*", None),
    ("dray.file.v1.resolve", Some("spy")),
    ("dray.work.>", None),
    ("dray.work.toolcall.v1.resolve.acme", None),
    ("dray.event.>", None),
    ("dray.event.toolcall.v1.*.*", None),
    ("dray.event.toolcall.v1.*.other-tenant", None),
    ("dray.audit.>", None),
    ("dray.dead.>", None),
    ("_INBOX.>", None),
    ("_INBOX_nobody.>", None),
    ("*.any", None),
    ("$KV.>", None),
    ("$KV.dray_ledger.>", None),
    ("$JS.>", None),
    ("$JS.API.>", None),
    ("$JS.ACK.>", None),
    ("$JS.EVENT.ADVISORY.>", None),
    ("$SYS.>", None),
];

/// One identity with all of its permissions.
pub(super) struct AccountIdentity {
    pub(super) user: String,
    pub(super) publish: Vec<String>,
    /// Subject and queue group.
    pub(super) subscribe: Vec<(String, Option<String>)>,
}

/// All identities of the accounts file, in its order.
pub(super) fn identities() -> Vec<AccountIdentity> {
    let text = read("deploy/nats/accounts.conf");
    let mut identities: Vec<AccountIdentity> = Vec::new();
    let mut publishes = false;
    for line in text.lines().map(str::trim) {
        if let Some(user) = line.strip_prefix("user: ") {
            identities.push(AccountIdentity {
                user: user.trim_matches('"').to_owned(),
                publish: Vec::new(),
                subscribe: Vec::new(),
            });
        } else if line.starts_with("publish: ") {
            publishes = true;
        } else if line.starts_with("subscribe: ") {
            publishes = false;
        } else if line.starts_with('"') {
            let subject = line.trim_matches('"');
            let identity = identities.last_mut().expect("subjects follow a user");
            if publishes {
                identity.publish.push(subject.to_owned());
            } else {
                let (subject, queue) = match subject.split_once(' ') {
                    Some((subject, queue)) => (subject, Some(queue.to_owned())),
                    None => (subject, None),
                };
                identity.subscribe.push((subject.to_owned(), queue));
            }
        }
    }
    assert!(identities.len() >= 10, "{} identities", identities.len());
    identities
}

/// Whether a pattern matches a subject without wildcards.
pub(super) fn admits(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for token in pattern.split('.') {
        match (token, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (token, Some(word)) if token == word => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

/// A subject that matches a pattern.
pub(super) fn example(pattern: &str) -> String {
    pattern
        .split('.')
        .map(|token| match token {
            "*" => "any",
            ">" => "any.thing",
            token => token,
        })
        .collect::<Vec<_>>()
        .join(".")
}
