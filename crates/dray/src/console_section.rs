//! Section `console` of the configuration: logins through an identity provider.

use std::path::PathBuf;

use dray_console::OidcSettings;
use dray_service::config::{ConfigProblem, Section};
use dray_types::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The console, which `dray up` and `dray console` serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ConsoleSection {
    /// Logins through an identity provider (OpenID Connect).
    pub(crate) oidc: OidcSection,
}

/// The identity provider of the console. Options of the command line (`--oidc-…`) replace these settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct OidcSection {
    /// Identifier of the provider, exactly as its discovery document has it: `https://login.example.org/realms/team`.
    /// `https`, or `http` on loopback. Default empty: people log in only with links.
    pub(crate) issuer: String,
    /// Id of the console at the provider. Required with `issuer`.
    pub(crate) client_id: String,
    /// Secret of the console at the provider. Empty: the console is a public client, which uses only PKCE.
    pub(crate) client_secret: Secret,
    /// PEM file with additional authorities for the certificate of the provider. Unset: none.
    pub(crate) ca_file: Option<PathBuf>,
    /// Scopes to request. Default `openid` and `profile`.
    pub(crate) scopes: Vec<String>,
    /// The claim of the ID token with the groups or roles of a person; dots lead into nested claims, such as
    /// `realm_access.roles`. Default `groups`.
    pub(crate) role_claim: String,
    /// Values of the role claim with which a person may look.
    pub(crate) look: Vec<String>,
    /// Values of the role claim with which a person may also act.
    pub(crate) act: Vec<String>,
    /// Whether the provider leads back to the console after its logout. Register `URL/login/ended` there first:
    /// providers refuse a logout with an address that is not registered. Default `false`.
    pub(crate) logout_return: bool,
}

impl Default for OidcSection {
    fn default() -> Self {
        let settings = OidcSettings::default();
        Self {
            issuer: settings.issuer,
            client_id: settings.client_id,
            client_secret: Secret::default(),
            ca_file: settings.ca_file,
            scopes: settings.scopes,
            role_claim: settings.role_claim,
            look: settings.look_values,
            act: settings.act_values,
            logout_return: settings.logout_return,
        }
    }
}

impl OidcSection {
    /// The settings for the console; `None` without an issuer.
    pub(crate) fn settings(&self) -> Option<OidcSettings> {
        let secret = &self.client_secret;
        (!self.issuer.is_empty()).then(|| OidcSettings {
            issuer: self.issuer.clone(),
            client_id: self.client_id.clone(),
            client_secret: (!secret.is_empty()).then(|| secret.clone()),
            ca_file: self.ca_file.clone(),
            scopes: self.scopes.clone(),
            role_claim: self.role_claim.clone(),
            look_values: self.look.clone(),
            act_values: self.act.clone(),
            logout_return: self.logout_return,
            ..OidcSettings::default()
        })
    }
}

impl Section for ConsoleSection {
    fn validate(&self) -> Vec<ConfigProblem> {
        let Some(settings) = self.oidc.settings() else {
            // Roles without a provider have no effect, and an operator who sets them expects one.
            let is_partial = self.oidc != OidcSection::default();
            let missing = ConfigProblem::new("oidc.issuer", "must be set with the other settings");
            return is_partial.then_some(missing).into_iter().collect();
        };
        let problems = settings.problems().into_iter();
        problems
            .map(|problem| ConfigProblem::new(format!("oidc.{}", problem.setting), problem.reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_an_issuer_or_without_a_role_are_refused() {
        let fields = |oidc: OidcSection| {
            let problems = ConsoleSection { oidc }.validate().into_iter();
            problems.map(|problem| problem.field).collect::<Vec<_>>()
        };
        assert!(fields(OidcSection::default()).is_empty());
        let partial = OidcSection {
            look: vec!["team".to_owned()],
            ..OidcSection::default()
        };
        assert_eq!(fields(partial.clone()), ["oidc.issuer"]);
        let complete = OidcSection {
            issuer: "https://login.example.org".to_owned(),
            client_id: "console".to_owned(),
            ..partial
        };
        assert!(fields(complete.clone()).is_empty());
        let unused = OidcSection {
            look: Vec::new(),
            ..complete
        };
        assert_eq!(fields(unused), ["oidc.look"]);
    }
}
