//! The roles and claims of a user in DIAL Core.

use std::collections::BTreeMap;

use dray_agent::caller::Caller;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::DialClient;
use crate::error::Error;
use crate::files::from_json;

/// A user, as `GET /v1/user/info` describes it. DIAL Core reports claims of users with a token, and none of users with
/// a key of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserInfo {
    /// Roles by the configuration of DIAL Core.
    #[serde(deserialize_with = "texts")]
    pub roles: Vec<String>,
    /// Claims of the token, each with its values.
    #[serde(deserialize_with = "claims")]
    pub user_claims: BTreeMap<String, Vec<String>>,
}

impl DialClient {
    /// The roles and claims of the caller's user. Never cached.
    ///
    /// # Errors
    ///
    /// As every request to DIAL Core.
    pub async fn user_info(&self, caller: &Caller) -> Result<UserInfo, Error> {
        from_json(self.get_json(caller, "v1/user/info").await?)
    }
}

/// Texts of a list, or one text; everything else is left out.
fn to_texts(value: Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => {
            let texts = items.into_iter().filter_map(|item| match item {
                Value::String(text) => Some(text),
                _ => None,
            });
            texts.collect()
        }
        _ => Vec::new(),
    }
}

fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Value::deserialize(deserializer).map(to_texts)
}

fn claims<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let claims = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?;
    let claims = claims.unwrap_or_default().into_iter();
    Ok(claims
        .map(|(name, value)| (name, to_texts(value)))
        .collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn roles_and_claims_of_both_kinds_of_callers_are_read() {
        let of_token =
            json!({"roles": ["admin"], "userClaims": {"title": ["cfo"], "email": "a@b", "age": 3}});
        let info: UserInfo = serde_json::from_value(of_token).unwrap();
        assert_eq!(info.roles, ["admin"]);
        assert_eq!(info.user_claims["title"], ["cfo"]);
        assert_eq!(
            (
                &info.user_claims["email"][..],
                info.user_claims["age"].len()
            ),
            (&["a@b".to_owned()][..], 0)
        );
        let of_key = json!({"roles": null, "project": "p"});
        assert_eq!(
            serde_json::from_value::<UserInfo>(of_key).unwrap(),
            UserInfo::default()
        );
    }
}
