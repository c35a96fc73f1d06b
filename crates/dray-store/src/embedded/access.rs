//! Several access keys for one endpoint, each with a policy document of the kind that S3 and `MinIO` enforce.
//!
//! Statements have `Effect`, `Action` and `Resource`, with the wildcards `*` and `?` in the last two. A policy with
//! any other part (`Condition`, `NotAction`, `Principal`) is refused, because ignoring a part would change its
//! meaning.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};

use dray_types::Secret;
use s3s::access::{S3Access, S3AccessContext};
use s3s::path::S3Path;
use s3s::{S3Result, s3_error};
use serde::Deserialize;
use serde_json::Value;

/// Most recorded refusals; further ones are only logged, so that repeated refusals do not fill the memory.
const MAX_REFUSED_REQUESTS: usize = 1_000;

/// An access key of the endpoint, and its permissions.
#[derive(Clone, Debug)]
pub struct AccessKey {
    /// Name of the key, as clients send it.
    pub access_key: String,
    /// Secret of the key, for signatures.
    pub secret_key: Secret,
    /// Policy document in JSON.
    pub policy: Value,
}

/// One statement of a policy document.
#[derive(Clone, Debug, Deserialize)]
// Refuses the parts that the module does not understand.
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PolicyStatement {
    #[serde(default, rename = "Sid")]
    _sid: String,
    effect: PolicyEffect,
    action: OneOrMore,
    resource: OneOrMore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum PolicyEffect {
    Allow,
    Deny,
}

/// A string or a list of strings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PolicyDocument {
    #[serde(rename = "Version")]
    _version: String,
    statement: Vec<PolicyStatement>,
}

/// The keys of an endpoint with their policies, and the requests that were refused so far.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessControl {
    policies: Arc<BTreeMap<String, PolicyDocument>>,
    refused: Arc<Mutex<Vec<String>>>,
    /// The key of the endpoint itself, which has no policy and may do everything.
    owner: String,
}

impl AccessControl {
    pub(super) fn new(owner: &str, keys: &[AccessKey]) -> std::io::Result<Self> {
        let mut policies = BTreeMap::new();
        for key in keys {
            let policy = PolicyDocument::deserialize(&key.policy).map_err(|error| {
                let problem = format!("the policy of `{}`: {error}", key.access_key);
                Error::new(ErrorKind::InvalidInput, problem)
            })?;
            policies.insert(key.access_key.clone(), policy);
        }
        Ok(Self {
            policies: Arc::new(policies),
            refused: Arc::default(),
            owner: owner.to_owned(),
        })
    }

    /// Records a refused request for tests of a deployment's policies (`EmbeddedS3::refused`).
    fn record_refusal(&self, request: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < MAX_REFUSED_REQUESTS {
            refused.push(request);
        }
    }

    /// The first refused requests, at most [`MAX_REFUSED_REQUESTS`]: `<key> <action> <resource>`.
    pub(super) fn refused(&self) -> Vec<String> {
        let refused = self.refused.lock();
        refused.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn authorize(&self, key: &str, needed: &[(String, String)]) -> Result<(), String> {
        if key == self.owner {
            return Ok(());
        }
        let policy = self.policies.get(key);
        for (action, resource) in needed {
            if !policy.is_some_and(|policy| policy.allows(action, resource)) {
                return Err(format!("{key} {action} {resource}"));
            }
        }
        Ok(())
    }
}

#[async_trait::async_trait]
impl S3Access for AccessControl {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        // Anonymous requests have no permissions.
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "Access Denied"));
        };
        // A copy needs the right to read its source as well.
        let source = cx.headers().get("x-amz-copy-source");
        let source = source.and_then(|value| value.to_str().ok());
        let needed = needed_actions(cx.s3_op().name(), cx.s3_path(), source);
        let Err(refused) = self.authorize(&credentials.access_key, &needed) else {
            return Ok(());
        };
        tracing::warn!(refused, "AccessDenied");
        self.record_refusal(refused);
        Err(s3_error!(AccessDenied, "Access Denied"))
    }
}

/// The actions that an operation needs, each with its resource.
fn needed_actions(
    operation: &str,
    path: &S3Path,
    copy_source: Option<&str>,
) -> Vec<(String, String)> {
    let resource = match path {
        S3Path::Root => resource_arn("*"),
        S3Path::Bucket { bucket } => resource_arn(bucket),
        S3Path::Object { bucket, key } => resource_arn(&format!("{bucket}/{key}")),
    };
    // S3 has one right for several operations.
    let action = match operation {
        "HeadObject" => "GetObject",
        "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => "PutObject",
        "HeadBucket" | "ListObjects" | "ListObjectsV2" => "ListBucket",
        "ListMultipartUploads" => "ListBucketMultipartUploads",
        other => other,
    };
    let mut needed = vec![(format!("s3:{action}"), resource)];
    if let Some(source) = copy_source {
        // The header carries the key percent-encoded.
        let source = percent_encoding::percent_decode_str(source).decode_utf8_lossy();
        needed.push((
            "s3:GetObject".to_owned(),
            resource_arn(source.trim_start_matches('/')),
        ));
    }
    needed
}

fn resource_arn(path: &str) -> String {
    format!("arn:aws:s3:::{path}")
}

impl PolicyDocument {
    /// Returns whether the action is allowed. A denying statement wins over any allowing one.
    fn allows(&self, action: &str, resource: &str) -> bool {
        let effect = |effect: PolicyEffect| {
            self.statement.iter().any(|statement| {
                statement.effect == effect
                    && statement.action.matches(action)
                    && statement.resource.matches(resource)
            })
        };
        effect(PolicyEffect::Allow) && !effect(PolicyEffect::Deny)
    }
}

impl OneOrMore {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::One(pattern) => matches_wildcard(pattern.as_bytes(), text.as_bytes()),
            Self::More(patterns) => patterns
                .iter()
                .any(|pattern| matches_wildcard(pattern.as_bytes(), text.as_bytes())),
        }
    }
}

/// Whether a pattern with `*` for any bytes and `?` for one byte matches all of a text.
fn matches_wildcard(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => matches_wildcard(rest, text),
        (Some((b'*', rest)), Some((_, left))) => {
            matches_wildcard(rest, text) || matches_wildcard(pattern, left)
        }
        (Some((b'?', rest)), Some((_, left))) => matches_wildcard(rest, left),
        (Some((expected, rest)), Some((actual, left))) if expected == actual => {
            matches_wildcard(rest, left)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn access(statements: &Value) -> std::io::Result<AccessControl> {
        let key = AccessKey {
            access_key: "reader".to_owned(),
            secret_key: Secret::new("secret"),
            policy: json!({ "Version": "2012-10-17", "Statement": statements }),
        };
        AccessControl::new("owner", &[key])
    }

    fn object(key: &str) -> S3Path {
        S3Path::Object {
            bucket: "b".into(),
            key: key.into(),
        }
    }

    #[test]
    fn a_statement_allows_its_actions_on_its_resources_alone() {
        let allow = json!([{"Effect": "Allow", "Action": "s3:GetObject", "Resource": ["arn:aws:s3:::b/cas/*"]}]);
        let access = access(&allow).unwrap();
        for (operation, key, allowed) in [
            ("GetObject", "cas/a", true),
            ("HeadObject", "cas/a/b", true),
            ("GetObject", "stage/a", false),
            ("PutObject", "cas/a", false),
            ("DeleteObject", "cas/a", false),
        ] {
            let outcome =
                access.authorize("reader", &needed_actions(operation, &object(key), None));
            assert_eq!(outcome.is_ok(), allowed, "{operation} {key}");
        }
        assert!(
            access
                .authorize(
                    "unknown",
                    &needed_actions("GetObject", &object("cas/a"), None)
                )
                .is_err()
        );
        assert!(
            access
                .authorize(
                    "owner",
                    &needed_actions("DeleteObject", &object("cas/a"), None)
                )
                .is_ok()
        );
    }

    #[test]
    fn a_copy_needs_the_right_to_read_its_source() {
        let allow = json!([{"Effect": "Allow", "Action": ["s3:PutObject"], "Resource": "arn:aws:s3:::b/*"}]);
        let access = access(&allow).unwrap();
        let copy = needed_actions("CopyObject", &object("cas/a"), Some("/b/stage/x%2Fy"));
        assert_eq!(
            access.authorize("reader", &copy).unwrap_err(),
            "reader s3:GetObject arn:aws:s3:::b/stage/x/y"
        );
    }

    #[test]
    fn a_denial_wins_over_a_permission() {
        let both = json!([
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:Delete?bject", "Resource": "*"},
        ]);
        let access = access(&both).unwrap();
        let authorize =
            |operation| access.authorize("reader", &needed_actions(operation, &object("a"), None));
        assert!(authorize("GetObject").is_ok());
        assert!(authorize("DeleteObject").is_err());
    }

    #[test]
    fn repeated_refusals_do_not_fill_the_memory() {
        let access = AccessControl::default();
        for number in 0..MAX_REFUSED_REQUESTS + 10 {
            access.record_refusal(number.to_string());
        }
        assert_eq!(access.refused().len(), MAX_REFUSED_REQUESTS);
    }

    #[test]
    fn a_policy_that_is_not_understood_is_refused() {
        let conditional = json!([
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": "true"}}},
        ]);
        let error = access(&conditional).unwrap_err();
        assert!(error.to_string().contains("Condition"), "{error}");
    }
}
