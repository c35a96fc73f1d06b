//! The roles and claims of a user in DIAL Core.

use std::collections::BTreeMap;

use dray_agent::caller::Caller;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::core::DialClient;
use crate::error::Error;
use crate::files::{Bucket, from_json};

/// A user, as `GET /v1/user/info` describes it. DIAL Core reports claims of users with a token, and none of users with
/// a key of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserInfo {
    /// Roles that the configuration of DIAL Core gives the user.
    #[serde(deserialize_with = "texts")]
    pub roles: Vec<String>,
    /// Claims of the token, each with its values.
    #[serde(deserialize_with = "claims")]
    pub user_claims: BTreeMap<String, Vec<String>>,
}

impl DialClient {
    /// The roles and claims of the caller's user, at most 30 s old.
    ///
    /// # Errors
    ///
    /// Those of every request to DIAL Core. Failures are not cached.
    pub async fn user_info(&self, caller: &Caller) -> Result<UserInfo, Error> {
        self.recent(caller, "v1/user/info").await
    }

    /// Like [`Self::bucket`], at most 30 s old.
    ///
    /// # Errors
    ///
    /// Those of [`Self::user_info`].
    pub async fn user_bucket(&self, caller: &Caller) -> Result<Bucket, Error> {
        self.recent(caller, "v1/bucket").await
    }

    async fn recent<T: DeserializeOwned>(&self, caller: &Caller, path: &str) -> Result<T, Error> {
        if let Some(known) = self.users().get(caller, path) {
            return from_json(known);
        }
        let value = self.get_json(caller, path).await?;
        let read = from_json(value.clone())?;
        self.users().put(caller, path, &value);
        Ok(read)
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
