//! The claims of a token, and the checks of issuer, audience and time (RFC 7519 section 4.1).

use std::time::Duration;

use dray_types::whole_millis;
use serde_json::{Map, Value};

use crate::verifier::TokenError;

/// Accepted difference between the clocks of two servers (clock skew).
pub const CLOCK_LEEWAY: Duration = Duration::from_mins(1);

const INVALID_TOKEN: TokenError = TokenError::Invalid("the token is not valid");
const MISSING_CLAIM: TokenError =
    TokenError::Invalid("the token lacks a claim; iss, aud, exp and sub are required");

/// The issuer and the audiences that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRules {
    /// The identifier of the issuer, compared with `iss` byte for byte.
    pub issuer: String,
    /// Values of `aud` of which a token needs one.
    pub audiences: Vec<String>,
}

/// The claims of a token that passed every check.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenClaims {
    /// Identifier of the issuer (`iss`).
    pub issuer: String,
    /// Identifier of the person or client (`sub`), unique at the issuer.
    pub subject: String,
    /// All values of `aud`.
    pub audiences: Vec<String>,
    /// Unix milliseconds from which the token is refused: `exp` and the leeway.
    pub expires_at_ms: u64,
    /// All claims, also those above: settings may name any of them.
    pub all: Map<String, Value>,
}

impl ClaimRules {
    /// Checks the payload of a token whose signature is valid. `now_ms` is in Unix milliseconds.
    pub(crate) fn check_claims(
        &self,
        payload: Map<String, Value>,
        now_ms: u64,
    ) -> Result<TokenClaims, TokenError> {
        let issuer = required_text(&payload, "iss")?;
        let subject = required_text(&payload, "sub")?;
        let expiry = payload.get("exp").ok_or(MISSING_CLAIM)?;
        let audiences = text_list(payload.get("aud").ok_or(MISSING_CLAIM)?)?;
        // The issuers are compared byte for byte, without normalising a URL: issuers are identifiers (OpenID Connect
        // Core, section 2).
        if issuer != self.issuer {
            return Err(TokenError::Invalid(
                "the token was issued by another issuer",
            ));
        }
        if !audiences
            .iter()
            .any(|audience| self.audiences.contains(audience))
        {
            return Err(TokenError::Invalid("the token is for another audience"));
        }
        // The leeway is added to the expiry once, so that callers that keep the token compare with one number.
        let expires_at_ms = date_ms(expiry)?.saturating_add(leeway_ms());
        if now_ms >= expires_at_ms {
            return Err(TokenError::Invalid("the token has expired"));
        }
        if let Some(begin) = payload.get("nbf")
            && date_ms(begin)? > now_ms.saturating_add(leeway_ms())
        {
            return Err(TokenError::Invalid("the token is not valid yet"));
        }
        Ok(TokenClaims {
            issuer,
            subject,
            audiences,
            expires_at_ms,
            all: payload,
        })
    }
}

impl TokenClaims {
    /// A claim that is a text; `None` when it is absent or null.
    ///
    /// # Errors
    ///
    /// [`TokenError::Invalid`] for a value of another kind.
    pub fn text_claim(&self, name: &str) -> Result<Option<&str>, TokenError> {
        match self.all.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            // The result is not `None`, because a claim of another kind must not count as one that was never sent.
            Some(_) => Err(TokenError::Invalid("a claim of the token is not a text")),
        }
    }

    /// A claim that is a time, in Unix milliseconds; `None` when it is absent.
    ///
    /// # Errors
    ///
    /// [`TokenError::Invalid`] for a value that is not a number.
    pub fn date_claim_ms(&self, name: &str) -> Result<Option<u64>, TokenError> {
        self.all.get(name).map(date_ms).transpose()
    }
}

fn required_text(payload: &Map<String, Value>, name: &str) -> Result<String, TokenError> {
    match payload.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(INVALID_TOKEN),
        None => Err(MISSING_CLAIM),
    }
}

/// `aud` is a text or a list of texts (RFC 7519 section 4.1.3).
fn text_list(value: &Value) -> Result<Vec<String>, TokenError> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or(INVALID_TOKEN))
            .collect(),
        _ => Err(INVALID_TOKEN),
    }
}

/// A `NumericDate`: seconds, which may have a fraction (RFC 7519 section 2).
fn date_ms(value: &Value) -> Result<u64, TokenError> {
    // A negative number saturates to 1970 and counts as expired.
    let seconds = value.as_f64().ok_or(INVALID_TOKEN)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and the fraction that it drops is smaller than the leeway"
    )]
    let seconds = seconds as u64;
    Ok(seconds.saturating_mul(1_000))
}

fn leeway_ms() -> u64 {
    whole_millis(CLOCK_LEEWAY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;
    const NOW_SECONDS: u64 = NOW_MS / 1_000;

    /// The result for valid claims with these changes; `null` removes one.
    fn check(changes: &Value) -> Result<TokenClaims, TokenError> {
        let rules = ClaimRules {
            issuer: "https://login.example.org".to_owned(),
            audiences: vec!["files".to_owned(), "console".to_owned()],
        };
        let mut payload = Map::from_iter([
            ("iss".to_owned(), json!("https://login.example.org")),
            ("sub".to_owned(), json!("user-1")),
            ("aud".to_owned(), json!("files")),
            ("exp".to_owned(), json!(NOW_SECONDS + 600)),
        ]);
        for (name, value) in changes.as_object().unwrap() {
            payload.insert(name.clone(), value.clone());
        }
        payload.retain(|_, value| !value.is_null());
        rules.check_claims(payload, NOW_MS)
    }

    #[test]
    fn claims_of_the_issuer_for_one_of_the_audiences_are_accepted() {
        let claims = check(&json!({"aud": ["other", "console"], "groups": ["a"]})).unwrap();
        assert_eq!(claims.subject, "user-1");
        assert_eq!(claims.audiences, ["other", "console"]);
        assert_eq!(claims.all["groups"], json!(["a"]));
        assert_eq!(claims.expires_at_ms, NOW_MS + 660_000);
    }

    #[test]
    fn every_claim_is_found_by_its_name() {
        let claims = check(&json!({"tenant": "acme"})).unwrap();
        for (name, value) in [
            ("sub", Some("user-1")),
            ("iss", Some("https://login.example.org")),
            ("tenant", Some("acme")),
            ("session", None),
        ] {
            assert_eq!(claims.text_claim(name), Ok(value), "{name}");
        }
        // A claim of another kind does not count as absent.
        assert!(claims.text_claim("exp").is_err());
    }

    #[test]
    fn clocks_may_differ_by_a_minute() {
        for accepted in [
            json!({"exp": NOW_SECONDS - 59}),
            json!({"exp": 1_800_000_000.5}),
            json!({"nbf": NOW_SECONDS + 60}),
        ] {
            assert!(check(&accepted).is_ok(), "{accepted}");
        }
        for refused in [
            json!({"exp": NOW_SECONDS - 60}),
            json!({"exp": 0}),
            json!({"exp": -1}),
            json!({"nbf": NOW_SECONDS + 61}),
        ] {
            assert!(check(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn missing_claims_and_values_of_other_kinds_are_refused() {
        for refused in [
            json!({"iss": null}),
            json!({"iss": "https://login.example.org/"}),
            json!({"iss": ["https://login.example.org"]}),
            json!({"sub": null}),
            json!({"sub": 7}),
            json!({"aud": null}),
            json!({"aud": "filesx"}),
            json!({"aud": []}),
            json!({"aud": [7, "files"]}),
            json!({"exp": null}),
            json!({"exp": (NOW_SECONDS + 600).to_string()}),
            json!({"nbf": "0"}),
        ] {
            assert!(check(&refused).is_err(), "{refused}");
        }
    }
}
