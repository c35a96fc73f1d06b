//! Subjects: matching of filters, and parsing of this project's subjects.

/// Whether `subject` matches `filter` with NATS's wildcards: `*` for one token, a final `>` for one or more.
pub(crate) fn matches_filter(filter: &str, subject: &str) -> bool {
    let mut filter_tokens = filter.split('.');
    let mut subject_tokens = subject.split('.');
    loop {
        match (filter_tokens.next(), subject_tokens.next()) {
            // `>` matches at least one token, so it does not match when none is left.
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(expected), Some(token)) if expected == token => {}
            _ => return false,
        }
    }
}

/// Whether some subject matches both filters.
pub(crate) fn filters_overlap(one: &str, other: &str) -> bool {
    let mut one = one.split('.');
    let mut other = other.split('.');
    loop {
        match (one.next(), other.next()) {
            // `>` on either side covers all further tokens, so the rest is not compared.
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(left), Some(right)) if left == right || left == "*" || right == "*" => {}
            _ => return false,
        }
    }
}

/// The parts of `dray.<kind>.<area>.v1.<verb>.<tenant>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubjectParts<'a> {
    pub(crate) kind: &'a str,
    pub(crate) area: &'a str,
    pub(crate) verb: &'a str,
    pub(crate) tenant: &'a str,
}

/// Reads a work, event, dead-letter or audit subject.
pub(crate) fn subject_parts(subject: &str) -> Option<SubjectParts<'_>> {
    let mut tokens = subject.split('.');
    let parts = match (
        tokens.next()?,
        tokens.next()?,
        tokens.next()?,
        tokens.next()?,
        tokens.next()?,
        tokens.next()?,
    ) {
        ("dray", kind, area, "v1", verb, tenant) => SubjectParts {
            kind,
            area,
            verb,
            tenant,
        },
        _ => return None,
    };
    let clean = [parts.kind, parts.area, parts.verb, parts.tenant]
        .into_iter()
        .all(dray_types::id::is_subject_token);
    // The server accepts empty tokens and wildcards in published subjects.
    (clean && tokens.next().is_none()).then_some(parts)
}

/// The area of a call subject `dray.<area>.v1.<verb>`, with or without the tenant at its end.
pub(crate) fn call_area(subject: &str) -> Option<&str> {
    call_parts(subject).map(|(area, _)| area)
}

/// The tenant of a call subject `dray.<area>.v1.<verb>.<tenant>`; `None` for a call subject without a tenant.
pub(crate) fn call_tenant(subject: &str) -> Option<&str> {
    call_parts(subject).and_then(|(_, tenant)| tenant)
}

fn call_parts(subject: &str) -> Option<(&str, Option<&str>)> {
    let mut tokens = subject.split('.');
    let (dray, area, version) = (tokens.next()?, tokens.next()?, tokens.next()?);
    let (_verb, tenant) = (tokens.next()?, tokens.next());
    // `dray.work.<area>.v1.…` has `v1` one token later and fails here.
    let is_call = dray == "dray" && version == "v1" && tokens.next().is_none();
    is_call.then_some((area, tenant))
}

/// Whether replies may be sent to this subject: an inbox, or a subject that a server made for the reply to a request from
/// another account (`_R_.`) or cluster (`_GR_.`). A server refuses the latter two as replies that a client chose.
///
/// A server checks the subject of a message and not its reply subject, so the responder would otherwise publish with its
/// own permissions wherever the sender wants.
pub(crate) fn is_inbox(subject: &str) -> bool {
    ["_INBOX.", "_INBOX_", "_R_.", "_GR_."]
        .iter()
        .any(|prefix| subject.starts_with(prefix))
}

/// The subject of the event for work of an area that could not be read.
pub(crate) fn dead_lettered_subject(area: &str, tenant: &str) -> String {
    format!("dray.event.{area}.v1.dead-lettered.{tenant}")
}

/// The subject on which callers of an area report that they no longer wait (C-9).
pub(crate) fn cancel_subject(area: &str) -> String {
    format!("dray.{area}.v1.cancel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_go_to_inboxes_only() {
        for inbox in [
            "_INBOX.x.1",
            "_INBOX_mcp.x.1",
            "_R_.Ab1.Cd2",
            "_GR_.a.b._INBOX.x",
        ] {
            assert!(is_inbox(inbox), "{inbox}");
        }
        for other in [
            "dray.sandbox.v1.exec",
            "$KV.dray_sessions.a",
            "$JS.ACK.DRAY_WORK.x.1.1.1.1.0",
            "_INBOX",
            "_inbox.x",
            "x._INBOX.y",
            "",
        ] {
            assert!(!is_inbox(other), "{other}");
        }
    }

    #[test]
    fn filters_match_as_the_server_does() {
        for (filter, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(
                matches_filter(filter, subject),
                expected,
                "{filter} {subject}"
            );
        }
    }

    #[test]
    fn overlapping_filters_with_wildcards_are_found() {
        for (one, other, expected) in [
            ("dray.*.v1.*", "dray.egress.v1.fetch", true),
            ("dray.work.>", "dray.egress.v1.fetch", false),
            ("dray.>", "dray.egress.v1.fetch", true),
            ("*.egress.>", "dray.*.v1.fetch", true),
            ("a.b", "a.b.c", false),
            ("a.>", "a", false),
        ] {
            assert_eq!(filters_overlap(one, other), expected, "{one} {other}");
            assert_eq!(filters_overlap(other, one), expected, "{other} {one}");
        }
    }

    #[test]
    fn parts_are_read_from_clean_subjects_only() {
        let parts_of = subject_parts("dray.work.toolcall.v1.resolve.acme").unwrap();
        assert_eq!(
            (parts_of.kind, parts_of.area, parts_of.verb, parts_of.tenant),
            ("work", "toolcall", "resolve", "acme")
        );
        for wrong in [
            "dray.work.toolcall.v1.resolve",
            "dray.work.toolcall.v1.resolve.acme.x",
            "dray.work.toolcall.v2.resolve.acme",
            "dray.work..v1.resolve.acme",
            "dray.work.toolcall.v1.resolve.*",
            "dray.work.toolcall.v1.resolve.Acme",
        ] {
            assert_eq!(subject_parts(wrong), None, "{wrong}");
        }
        assert_eq!(call_area("dray.egress.v1.fetch"), Some("egress"));
        assert_eq!(call_area("dray.egress.v1.fetch.x"), Some("egress"));
        assert_eq!(call_area("dray.egress.v1.fetch.x.y"), None);
        assert_eq!(call_tenant("dray.egress.v1.fetch"), None);
        assert_eq!(call_tenant("dray.egress.v1.fetch.acme"), Some("acme"));
        assert_eq!(call_tenant("dray.work.egress.v1.fetch"), None);
    }
}
