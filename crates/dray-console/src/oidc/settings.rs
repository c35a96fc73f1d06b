//! The settings of logins through an identity provider, and their checks.

use std::path::PathBuf;
use std::time::Duration;

use dray_jwt::check_secure_url;
use dray_types::Secret;

/// The identity provider of a console, and the roles that it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcSettings {
    /// Identifier of the provider, compared byte for byte: `https://login.example.org/realms/team`.
    pub issuer: String,
    /// Id of this console at the provider.
    pub client_id: String,
    /// Secret of this console at the provider; `None` for a public client, which has PKCE alone.
    pub client_secret: Option<Secret>,
    /// PEM file with further authorities for the certificate of the provider.
    pub ca_file: Option<PathBuf>,
    /// Scopes to request; `openid` is among them.
    pub scopes: Vec<String>,
    /// The claim of the ID token with the groups or roles of a person: a name, or names with dots for a nested one.
    pub role_claim: String,
    /// Values of the claim that give the role `look`.
    pub look_values: Vec<String>,
    /// Values of the claim that let a person act, too.
    pub act_values: Vec<String>,
    /// Whether the provider leads back to the console after its logout. The address must be registered there: providers
    /// refuse the logout with one that is not.
    pub logout_return: bool,
    /// Longest time for one request to the provider, with its response.
    pub request_timeout: Duration,
}

impl Default for OidcSettings {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            client_id: String::new(),
            client_secret: None,
            ca_file: None,
            scopes: ["openid", "profile"].map(str::to_owned).to_vec(),
            role_claim: "groups".to_owned(),
            look_values: Vec::new(),
            act_values: Vec::new(),
            logout_return: false,
            request_timeout: Duration::from_secs(10),
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcProblem {
    /// Name of the setting, such as `issuer`.
    pub setting: &'static str,
    /// The requirement, as the rest of a sentence about the setting.
    pub reason: String,
}

impl OidcSettings {
    /// All problems of the settings; empty if they can be used.
    pub fn problems(&self) -> Vec<OidcProblem> {
        let mut problems = Vec::new();
        let mut add = |setting, reason: String| problems.push(OidcProblem { setting, reason });
        match check_secure_url(&self.issuer) {
            // OpenID Connect Discovery 1.0 section 4.1: the URL of the document is the issuer with a longer path.
            Ok(url) if url.query().is_some() => {
                add("issuer", "must be a URL without a query".to_owned());
            }
            Ok(_) => {}
            Err(error) => add(
                "issuer",
                format!("must be an https URL, or http on loopback: it {error}"),
            ),
        }
        if self.client_id.is_empty() {
            add("client_id", "must be set with `issuer`".to_owned());
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            add("scopes", "must hold `openid`".to_owned());
        }
        if self.role_claim.is_empty() {
            add("role_claim", "must name a claim".to_owned());
        }
        // Without a value every login would be refused, which is never intended.
        if self.look_values.is_empty() && self.act_values.is_empty() {
            add(
                "look",
                "or `act` must hold a value of the claim, or no person may log in".to_owned(),
            );
        }
        let mut values = self.look_values.iter().chain(&self.act_values);
        if values.any(String::is_empty) {
            add("look", "and `act` must not hold an empty value".to_owned());
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> OidcSettings {
        OidcSettings {
            issuer: "https://login.example.org".to_owned(),
            client_id: "console".to_owned(),
            look_values: vec!["team".to_owned()],
            ..OidcSettings::default()
        }
    }

    #[test]
    fn settings_that_admit_no_person_or_are_not_safe_are_refused() {
        assert_eq!(complete().problems(), []);
        let wrong = |setting: &str, change: fn(&mut OidcSettings)| {
            let mut settings = complete();
            change(&mut settings);
            let problems = settings.problems();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].setting, setting);
        };
        wrong("issuer", |settings| {
            settings.issuer = "http://login.example.org".to_owned();
        });
        wrong("issuer", |settings| settings.issuer.push_str("?a=b"));
        wrong("client_id", |settings| settings.client_id.clear());
        wrong("scopes", |settings| settings.scopes.clear());
        wrong("role_claim", |settings| settings.role_claim.clear());
        wrong("look", |settings| settings.look_values.clear());
        wrong("look", |settings| settings.act_values.push(String::new()));
    }
}
