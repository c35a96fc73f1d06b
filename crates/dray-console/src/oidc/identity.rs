//! Who logged in and what they may do, from the claims of an ID token.

use std::time::Duration;

use dray_jwt::{CLOCK_LEEWAY, TokenClaims};
use dray_types::whole_millis;
use serde_json::{Map, Value};

use super::error::OidcError;
use super::settings::OidcSettings;
use crate::session::ConsolePerson;
use crate::settings::ConsoleRole;
use crate::text;

/// Longest time since a token was issued. A valid token is issued during the login.
const MAX_TOKEN_AGE: Duration = Duration::from_mins(10);
/// Longest `sub`, in bytes (OpenID Connect Core section 2).
const MAX_SUBJECT_BYTES: usize = 255;
/// Claims with a name for people, in order of preference.
const NAME_CLAIMS: [&str; 3] = ["name", "preferred_username", "email"];

/// A person whose token is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginIdentity {
    pub(super) person: ConsolePerson,
    /// The role that the claim gives; `None` if it has none of the configured values.
    pub(super) role: Option<ConsoleRole>,
}

impl LoginIdentity {
    /// Reads the claims of a token whose signature, issuer, audience and expiry are valid, and checks what OpenID
    /// Connect Core section 3.1.3.7 adds. `userinfo` has claims about the same person that the token lacks.
    pub(super) fn from_claims(
        claims: &TokenClaims,
        userinfo: &Map<String, Value>,
        settings: &OidcSettings,
        now_ms: u64,
    ) -> Result<Self, OidcError> {
        check_party(claims, &settings.client_id)?;
        check_age(claims, now_ms)?;
        let subject = &claims.subject;
        // The subject becomes a part of audit events and log lines.
        let is_printable = subject.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if subject.is_empty() || subject.len() > MAX_SUBJECT_BYTES || !is_printable {
            return Err(OidcError::Token("the subject of the token is not valid"));
        }
        let name = find_name(&claims.all).or_else(|| find_name(userinfo));
        Ok(Self {
            person: ConsolePerson {
                subject: subject.clone(),
                name: text::shown(name.unwrap_or(subject)),
                logout_url: None,
            },
            role: granted_role([&claims.all, userinfo], settings),
        })
    }
}

/// Steps 3 to 5: a token for several audiences names the party that it was issued to.
fn check_party(claims: &TokenClaims, client_id: &str) -> Result<(), OidcError> {
    let other = OidcError::Token("the token was issued to another client");
    match claims.text_claim("azp")? {
        // `azp` is also checked for a single audience: some providers issue tokens for one client to another.
        Some(party) if party == client_id => Ok(()),
        None if claims.audiences.len() == 1 => Ok(()),
        _ => Err(other),
    }
}

/// Step 10: refuses a token from the future or from an earlier login.
fn check_age(claims: &TokenClaims, now_ms: u64) -> Result<(), OidcError> {
    let issued_ms = claims
        .date_claim_ms("iat")?
        .ok_or(OidcError::Token("the token lacks a claim: iat"))?;
    let leeway_ms = whole_millis(CLOCK_LEEWAY);
    if issued_ms > now_ms.saturating_add(leeway_ms) {
        return Err(OidcError::Token("the token was issued in the future"));
    }
    let max_age_ms = whole_millis(MAX_TOKEN_AGE).saturating_add(leeway_ms);
    if now_ms.saturating_sub(issued_ms) > max_age_ms {
        return Err(OidcError::Token("the token was issued long ago"));
    }
    Ok(())
}

/// The name for people of these claims.
pub(super) fn find_name(claims: &Map<String, Value>) -> Option<&str> {
    let mut names = NAME_CLAIMS
        .iter()
        .filter_map(|name| claims.get(*name)?.as_str());
    names.find(|name| !name.trim().is_empty())
}

/// Whether the token itself has the claim with the roles, even if its value gives no role.
pub(super) fn has_role_claim(claims: &TokenClaims, settings: &OidcSettings) -> bool {
    find_claim(&claims.all, &settings.role_claim).is_some()
}

/// The highest role of all values of the claim, from the first source that has it.
fn granted_role(sources: [&Map<String, Value>; 2], settings: &OidcSettings) -> Option<ConsoleRole> {
    let mut claims = sources
        .iter()
        .filter_map(|source| find_claim(source, &settings.role_claim));
    let values = claim_values(claims.next()?);
    let has_one = |role_values: &[String]| {
        let mut values = values.iter();
        values.any(|value| role_values.iter().any(|role_value| role_value == value))
    };
    // The higher role is checked first: a person with values of both may act.
    if has_one(&settings.act_values) {
        Some(ConsoleRole::Act)
    } else {
        has_one(&settings.look_values).then_some(ConsoleRole::Look)
    }
}

/// The claim with this name. A name with dots is a path where no claim has this exact name: some providers nest roles
/// (`realm_access.roles`), others have URLs as names.
fn find_claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let nested = || {
        let mut parts = name.split('.');
        let first = claims.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    };
    claims.get(name).or_else(nested)
}

/// The texts of a claim, which is a text or a list.
fn claim_values(claim: &Value) -> Vec<&str> {
    match claim {
        Value::String(text) => vec![text],
        // Items of other kinds give no role, so a nested list or an object grants nothing.
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const NOW_SECONDS: u64 = NOW_MS / 1_000;

    fn claims(further: &Value) -> TokenClaims {
        let mut all = json!({"iat": NOW_SECONDS, "aud": "console"});
        for (name, value) in further.as_object().unwrap() {
            all[name] = value.clone();
        }
        let audiences = match &all["aud"] {
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().unwrap().to_owned())
                .collect(),
            other => vec![other.as_str().unwrap().to_owned()],
        };
        TokenClaims {
            issuer: "https://login.example.org".to_owned(),
            subject: "u-1".to_owned(),
            audiences,
            expires_at_ms: NOW_MS + 600_000,
            all: all.as_object().unwrap().clone(),
        }
    }

    fn settings(role_claim: &str) -> OidcSettings {
        OidcSettings {
            client_id: "console".to_owned(),
            role_claim: role_claim.to_owned(),
            look_values: vec!["staff".to_owned()],
            act_values: vec!["ops".to_owned()],
            ..OidcSettings::default()
        }
    }

    fn role_of(claim: &str, further: &Value) -> Option<ConsoleRole> {
        let identity =
            LoginIdentity::from_claims(&claims(further), &Map::new(), &settings(claim), NOW_MS);
        identity.unwrap().role
    }

    #[test]
    fn the_highest_role_of_the_values_counts_and_other_values_give_none() {
        let (look, act) = (Some(ConsoleRole::Look), Some(ConsoleRole::Act));
        for (groups, role) in [
            (json!(["staff", "ops"]), act),
            (json!(["staff", "other"]), look),
            (json!("ops"), act),
            (json!(["Staff", "staff ", "opsx"]), None),
            (json!("staff ops"), None),
            (json!([["staff"], 7, null]), None),
            (json!({"staff": true}), None),
            (json!(null), None),
        ] {
            assert_eq!(role_of("groups", &json!({ "groups": groups })), role);
        }
        assert_eq!(role_of("groups", &json!({})), None);
    }

    #[test]
    fn a_claim_can_be_nested_or_have_dots_in_its_name() {
        let nested = json!({"realm_access": {"roles": ["ops"]}});
        assert_eq!(
            role_of("realm_access.roles", &nested),
            Some(ConsoleRole::Act)
        );
        let url = "https://example.org/roles";
        assert_eq!(
            role_of(url, &json!({url: ["staff"]})),
            Some(ConsoleRole::Look)
        );
        assert_eq!(role_of("realm_access.groups", &nested), None);
    }

    #[test]
    fn claims_of_the_userinfo_count_only_where_the_token_has_none() {
        let settings = settings("groups");
        let userinfo = json!({"sub": "u-1", "groups": ["ops"], "name": "Ada", "azp": "another"});
        let userinfo = userinfo.as_object().unwrap();
        let identity = |further: &Value| {
            LoginIdentity::from_claims(&claims(further), userinfo, &settings, NOW_MS).unwrap()
        };
        let without = identity(&json!({}));
        assert_eq!(without.role, Some(ConsoleRole::Act));
        assert_eq!(without.person.name, "Ada");
        let with = identity(&json!({"groups": ["staff"], "email": "ada@example.org"}));
        assert_eq!(with.role, Some(ConsoleRole::Look));
        assert_eq!(with.person.name, "ada@example.org");
        assert_eq!(identity(&json!({"groups": []})).role, None);
    }

    #[test]
    fn a_token_for_several_audiences_has_to_name_this_client() {
        let settings = settings("groups");
        let check = |further: &Value| {
            LoginIdentity::from_claims(&claims(further), &Map::new(), &settings, NOW_MS).is_ok()
        };
        assert!(check(&json!({"azp": "console"})));
        assert!(check(&json!({"aud": ["console", "api"], "azp": "console"})));
        assert!(!check(&json!({"aud": ["console", "api"]})));
        assert!(!check(&json!({"azp": "api"})));
        assert!(!check(&json!({"azp": 7})));
    }

    #[test]
    fn tokens_of_the_future_and_of_earlier_logins_are_refused() {
        let settings = settings("groups");
        let check = |further: &Value| {
            LoginIdentity::from_claims(&claims(further), &Map::new(), &settings, NOW_MS).is_ok()
        };
        assert!(check(&json!({"iat": NOW_SECONDS + 60})));
        assert!(!check(&json!({"iat": NOW_SECONDS + 61})));
        assert!(check(&json!({"iat": NOW_SECONDS - 660})));
        assert!(!check(&json!({"iat": NOW_SECONDS - 661})));
        assert!(!check(&json!({"iat": "now"})));
    }

    #[test]
    fn the_person_has_a_name_without_control_characters_and_a_valid_subject() {
        let settings = settings("groups");
        let person = |claims: &TokenClaims| {
            let identity = LoginIdentity::from_claims(claims, &Map::new(), &settings, NOW_MS);
            identity.map(|identity| identity.person)
        };
        let named = person(&claims(&json!({"name": "Ada\u{202e}\n"}))).unwrap();
        assert_eq!(named.subject, "u-1");
        assert!(!named.name.contains(['\u{202e}', '\n']), "{named:?}");
        let unnamed = person(&claims(&json!({"name": " ", "email": "ada@example.org"})));
        assert_eq!(unnamed.unwrap().name, "ada@example.org");
        assert_eq!(person(&claims(&json!({}))).unwrap().name, "u-1");
        for subject in ["", "a\nb", "ä", &"a".repeat(256)] {
            let mut invalid_claims = claims(&json!({}));
            subject.clone_into(&mut invalid_claims.subject);
            assert!(person(&invalid_claims).is_err(), "{subject}");
        }
    }
}
