//! The options of `dray up` and `dray console` for logins through an identity provider.

use std::path::PathBuf;

use clap::Args;
use dray_service::config::ConfigSources;
use serde_json::json;

/// Options for the identity provider of the console. Each replaces a setting of the section `console.oidc`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the fields are those of the options"
)]
pub(crate) struct OidcArgs {
    /// Identity provider (OpenID Connect) whose people may log in to the console, for example
    /// `https://login.example.org/realms/team`.
    #[arg(long, value_name = "URL")]
    pub(crate) oidc_issuer: Option<String>,
    /// Id of the console at the identity provider.
    #[arg(long, value_name = "ID")]
    pub(crate) oidc_client_id: Option<String>,
    /// File that holds the secret of the console at the identity provider. Without it the console is a public client.
    #[arg(long, value_name = "FILE")]
    pub(crate) oidc_client_secret_file: Option<PathBuf>,
    /// PEM file with further authorities for the certificate of the identity provider.
    #[arg(long, value_name = "FILE")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
    /// Scopes to request, separated by commas. Default: openid,profile.
    #[arg(long, value_name = "SCOPES", value_delimiter = ',')]
    pub(crate) oidc_scopes: Vec<String>,
    /// Claim of the ID token with the groups or roles of a person, for example `realm_access.roles`. Default: groups.
    #[arg(long, value_name = "CLAIM")]
    pub(crate) oidc_role_claim: Option<String>,
    /// A value of the claim that lets a person look. Can be repeated.
    #[arg(long, value_name = "VALUE")]
    pub(crate) oidc_look: Vec<String>,
    /// A value of the claim that lets a person act. Can be repeated.
    #[arg(long, value_name = "VALUE")]
    pub(crate) oidc_act: Vec<String>,
    /// Let the identity provider lead back to the console after its logout. Register `URL/login/ended` there first, as
    /// a post-logout redirect URI.
    #[arg(long)]
    pub(crate) oidc_logout_return: bool,
}

impl OidcArgs {
    /// The sources with the options that are given on top.
    pub(crate) fn configure(&self, sources: ConfigSources) -> ConfigSources {
        let path = |file: &Option<PathBuf>| {
            let file = file.as_ref();
            file.map(|file| file.to_string_lossy().into_owned())
        };
        // The list is passed as JSON: a value may hold a comma, as names of a directory do (`cn=ops,dc=example`).
        let list = |values: &[String]| (!values.is_empty()).then(|| json!(values).to_string());
        [
            ("issuer", self.oidc_issuer.clone()),
            ("client_id", self.oidc_client_id.clone()),
            ("client_secret_file", path(&self.oidc_client_secret_file)),
            ("ca_file", path(&self.oidc_ca_file)),
            ("scopes", list(&self.oidc_scopes)),
            ("role_claim", self.oidc_role_claim.clone()),
            ("look", list(&self.oidc_look)),
            ("act", list(&self.oidc_act)),
            (
                "logout_return",
                self.oidc_logout_return.then(|| "true".to_owned()),
            ),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .fold(sources, |sources, (name, value)| {
            let flag = format!("--oidc-{}", name.replace('_', "-"));
            sources.set_by(&flag, format!("console.oidc.{name}"), value)
        })
    }
}
