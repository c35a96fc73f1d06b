//! Verifies the sender of a mail by the `Authentication-Results` (RFC 8601) of the receiving server.
//!
//! Only the topmost such field with the configured name counts: servers add theirs at the top, and remove forged ones.
//! The domains are compared without a list of public suffixes: the domain that passed must be the sender's own or one
//! above it, which is never weaker than DMARC.

use super::options::SenderVerification;

/// The reason why a sender is not verified; `None` for a verified one. `results` are the values of all such fields,
/// topmost first.
pub(crate) fn sender_doubt<'a>(
    verify: SenderVerification,
    authserv_id: &str,
    domain: &str,
    results: impl Iterator<Item = &'a str>,
) -> Option<&'static str> {
    if verify == SenderVerification::None {
        return None;
    }
    let own_results = results
        .map(split_clauses)
        // `find` stops at the topmost field; the sender may have added the fields below it.
        .find(|clauses| is_of(clauses, authserv_id));
    let Some(clauses) = own_results else {
        return Some("the mail server did not verify the sender");
    };
    let methods: Vec<AuthMethod> = clauses
        .iter()
        // The first clause is the name of the server.
        .skip(1)
        .filter_map(|clause| parse_method(clause))
        .collect();
    let passed = |name: &str, properties: &[&str]| {
        methods.iter().any(|method| {
            method.name == name
                && method.result == "pass"
                && properties.iter().any(|property| {
                    let value = method.property(property);
                    value.is_some_and(|value| covers_domain(domain_of(value), domain))
                })
        })
    };
    let has_failed = methods
        .iter()
        .any(|method| method.name == "dmarc" && method.result == "fail");
    let by_dmarc = methods.iter().any(|method| {
        method.name == "dmarc"
            && method.result == "pass"
            // A server may leave the property out; then its verdict is about the only `From`. A repeated property is
            // not left out.
            && method
                .values("header.from")
                .all(|from| domain_of(from).eq_ignore_ascii_case(domain))
    });
    let is_verified = match verify {
        SenderVerification::None => true,
        SenderVerification::Dmarc => by_dmarc,
        SenderVerification::Aligned => {
            by_dmarc
                || passed("dkim", &["header.d", "header.i"])
                || passed("spf", &["smtp.mailfrom"])
        }
    };
    // DMARC is the policy of the domain itself, so its failure outweighs a DKIM or SPF that passed.
    if has_failed {
        return Some("DMARC failed for the sender's domain");
    }
    (!is_verified).then_some("the sender is not verified")
}

/// A method with its result and properties, in lower case.
#[derive(Debug)]
struct AuthMethod {
    name: String,
    result: String,
    properties: Vec<(String, String)>,
}

impl AuthMethod {
    /// All values of a property.
    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let matching = self.properties.iter().filter(move |(key, _)| key == name);
        matching.map(|(_, value)| value.as_str())
    }

    fn property(&self, name: &str) -> Option<&str> {
        let mut values = self.values(name);
        // A repeated property does not count: one of its values may be forged.
        match (values.next(), values.next()) {
            (Some(value), None) => Some(value),
            _ => None,
        }
    }
}

/// The field without its comments, cut at semicolons outside of quotes.
fn split_clauses(value: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut depth, mut is_quoted) = (0_u32, false);
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            // An escaped character counts as itself, even a quote or a parenthesis.
            '\\' if is_quoted || depth > 0 => {
                let escaped = characters.next();
                if let (Some(escaped), Some(last), 0) = (escaped, all.last_mut(), depth) {
                    last.push(escaped);
                }
            }
            '"' if depth == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted && depth > 0 => depth -= 1,
            ';' if !is_quoted && depth == 0 => all.push(String::new()),
            _ if depth > 0 => {}
            // White space in a quoted word must not divide it into words.
            ' ' | '\t' | '\r' | '\n' if is_quoted => {
                if let Some(last) = all.last_mut() {
                    last.push('_');
                }
            }
            other => {
                if let Some(last) = all.last_mut() {
                    last.push(other);
                }
            }
        }
    }
    all
}

fn is_of(clauses: &[String], authserv_id: &str) -> bool {
    let first = clauses
        .first()
        .and_then(|clause| clause.split_whitespace().next());
    first.is_some_and(|id| id.eq_ignore_ascii_case(authserv_id))
}

fn parse_method(clause: &str) -> Option<AuthMethod> {
    let lower = clause.to_ascii_lowercase();
    let mut words = lower.split_whitespace();
    let (name, result) = words.next()?.split_once('=')?;
    // A method may carry a version: `dkim/1`.
    let name = name.split('/').next().unwrap_or_default();
    let properties = words
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Some(AuthMethod {
        name: name.to_owned(),
        result: result.to_owned(),
        properties,
    })
}

/// The domain of an address; a domain alone is returned as it is.
fn domain_of(value: &str) -> &str {
    value.rsplit_once('@').map_or(value, |(_, domain)| domain)
}

/// Whether `parent` is responsible for `domain`: it is the same domain or a parent of it, but not a top-level domain.
fn covers_domain(parent: &str, domain: &str) -> bool {
    let (parent, domain) = (parent.to_ascii_lowercase(), domain.to_ascii_lowercase());
    parent == domain || (parent.contains('.') && domain.ends_with(&format!(".{parent}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_verified(verify: SenderVerification, results: &[&str]) -> bool {
        sender_doubt(
            verify,
            "mx.our.example",
            "mail.example.org",
            results.iter().copied(),
        )
        .is_none()
    }

    #[test]
    fn senders_that_pass_verification_are_accepted() {
        for passing in [
            "mx.our.example; dmarc=pass (p=reject; sp=none) header.from=mail.example.org",
            "MX.our.example 1; spf=fail smtp.mailfrom=x@other.example; dkim=pass (2048-bit) header.d=example.org header.s=s",
            "mx.our.example; dkim=pass header.i=@mail.example.org",
            "mx.our.example;\r\n\tspf=pass smtp.mailfrom=bounce@mail.example.org",
            "mx.our.example; dkim=fail header.d=mail.example.org; dkim=pass header.d=mail.example.org",
            "mx.our.example; dmarc/1=pass header.from=mail.example.org",
            "mx.our.example; dmarc=pass (p=reject)",
        ] {
            assert!(
                is_verified(SenderVerification::Aligned, &[passing]),
                "{passing}"
            );
        }
    }

    #[test]
    fn senders_that_fail_verification_are_refused() {
        for failing in [
            "mx.our.example; none",
            "mx.our.example",
            "mx.our.example; dkim=pass header.d=evil.example",
            "mx.our.example; dkim=pass header.d=org",
            "mx.our.example; dkim=pass header.d=deep.mail.example.org",
            "mx.our.example; dkim=pass header.d=evilmail.example.org",
            "mx.our.example; spf=pass smtp.helo=mail.example.org",
            "mx.our.example; spf=softfail smtp.mailfrom=mail.example.org",
            "mx.our.example; dkim=pass header.d=mail.example.org; dmarc=fail header.from=mail.example.org",
            "mx.our.example; dmarc=pass header.from=evil.example",
            "mx.our.example; dmarc=pass header.from=evil.example header.from=evil.example",
            "mx.our.example; dmarc=pass header.from=evil.example header.from=mail.example.org",
            "mx.evil.example; dmarc=pass header.from=mail.example.org",
            "mx.our.example.evil.example; dmarc=pass header.from=mail.example.org",
            "mx.our.example; x=\"; dmarc=pass header.from=mail.example.org\"",
            "mx.our.example; spf=fail (; dmarc=pass header.from=mail.example.org)",
            "mx.our.example; spf=pass smtp.mailfrom=\"a; b\"@evil.example",
            "mx.our.example; spf=pass smtp.mailfrom=\"x smtp.mailfrom=mail.example.org\"@evil.example",
        ] {
            assert!(
                !is_verified(SenderVerification::Aligned, &[failing]),
                "{failing}"
            );
        }
        assert!(!is_verified(SenderVerification::Aligned, &[]));
    }

    #[test]
    fn only_the_topmost_field_of_the_own_server_counts() {
        let passing = "mx.our.example; dmarc=pass header.from=mail.example.org";
        let failing = "mx.our.example; dmarc=fail header.from=mail.example.org";
        let other_server = "mx.evil.example; dmarc=fail";
        assert!(is_verified(
            SenderVerification::Aligned,
            &[other_server, passing, failing]
        ));
        assert!(!is_verified(
            SenderVerification::Aligned,
            &[failing, passing]
        ));
    }

    #[test]
    fn the_configured_verification_decides() {
        let dkim = "mx.our.example; dkim=pass header.d=mail.example.org";
        assert!(is_verified(SenderVerification::Aligned, &[dkim]));
        assert!(!is_verified(SenderVerification::Dmarc, &[dkim]));
        assert!(is_verified(SenderVerification::None, &[]));
    }
}
