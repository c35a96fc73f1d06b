//! The state of the server, and the changes of each operation. Nothing here does I/O.

use std::collections::BTreeMap;

use dray_store::embedded::AccessKey;
use dray_types::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The only bucket that the endpoint can serve.
const SERVED_BUCKET: &str = "drayage";

/// The shortest user name that `MinIO` accepts.
const MIN_USER_CHARACTERS: usize = 3;
/// The shortest secret that `MinIO` accepts.
const MIN_SECRET_CHARACTERS: usize = 8;

/// The operations that `mc` requests from the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AdminRequest {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) operation: AdminOperation,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AdminOperation {
    /// Checks that the server runs. Needs no credentials.
    Ready,
    /// The requests that policies refused so far, as a JSON array. Needs no credentials.
    Refused,
    /// Checks the credentials and does nothing else.
    Login,
    MakeBucket {
        bucket: String,
    },
    ImportLifecycle {
        bucket: String,
        rules: Value,
    },
    AddUser {
        user: String,
        secret_key: String,
    },
    CreatePolicy {
        policy: String,
        document: Value,
    },
    AttachPolicy {
        policy: String,
        user: String,
    },
    ShowUser {
        user: String,
    },
}

/// The response of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum AdminResponse {
    /// The text that `mc` prints.
    Done(String),
    /// The reason of the failure.
    Failed(String),
}

/// The state that outlives a restart of the server.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct MinioState {
    pub(crate) has_bucket: bool,
    lifecycle: Value,
    policies: BTreeMap<String, Value>,
    users: BTreeMap<String, MinioUser>,
    /// Requests that policies refused.
    pub(crate) refused: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MinioUser {
    secret_key: String,
    policy: Option<String>,
}

impl MinioState {
    /// Applies an operation of the administrator. Returns the text that `mc` prints, or the reason of a refusal of
    /// `MinIO`.
    pub(crate) fn apply(&mut self, operation: AdminOperation) -> Result<String, String> {
        match operation {
            AdminOperation::Ready | AdminOperation::Login => Ok("ready".to_owned()),
            AdminOperation::Refused => Ok(json!(self.refused).to_string()),
            AdminOperation::MakeBucket { bucket } => {
                check_bucket(&bucket)?;
                self.has_bucket = true;
                Ok(format!("Bucket created successfully `{bucket}`."))
            }
            AdminOperation::ImportLifecycle { bucket, rules } => {
                check_bucket(&bucket)?;
                if !self.has_bucket {
                    return Err("the bucket does not exist".to_owned());
                }
                check_lifecycle(&rules)?;
                self.lifecycle = rules;
                Ok(format!("Lifecycle configuration imported to `{bucket}`."))
            }
            AdminOperation::AddUser { user, secret_key } => self.add_user(user, secret_key),
            AdminOperation::CreatePolicy { policy, document } => {
                let message = format!("Created policy `{policy}` successfully.");
                self.policies.insert(policy, document);
                Ok(message)
            }
            AdminOperation::AttachPolicy { policy, user } => self.attach_policy(policy, &user),
            AdminOperation::ShowUser { user } => self.show_user(&user),
        }
    }

    fn add_user(&mut self, user: String, secret_key: String) -> Result<String, String> {
        if user.len() < MIN_USER_CHARACTERS || secret_key.len() < MIN_SECRET_CHARACTERS {
            return Err("a name has 3 characters or more, a secret 8 or more".to_owned());
        }
        let message = format!("Added user `{user}` successfully.");
        // An existing user gets the new secret and keeps the policy.
        let policy = self.users.remove(&user).and_then(|user| user.policy);
        self.users.insert(user, MinioUser { secret_key, policy });
        Ok(message)
    }

    fn attach_policy(&mut self, policy: String, user: &str) -> Result<String, String> {
        if !self.policies.contains_key(&policy) {
            return Err(format!("policy `{policy}` does not exist"));
        }
        let user_entry = self.users.get_mut(user);
        let attached = &mut user_entry.ok_or("the user does not exist")?.policy;
        if attached.as_ref() == Some(&policy) {
            return Err("the specified policy change is already in effect".to_owned());
        }
        let message = format!("Attached Policies: [{policy}] To User: {user}");
        *attached = Some(policy);
        Ok(message)
    }

    /// A user as `mc` prints it to a pipe: JSON on one line, without empty members.
    fn show_user(&self, name: &str) -> Result<String, String> {
        let user = self.users.get(name).ok_or("the user does not exist")?;
        let mut user_json = json!({"status": "success", "accessKey": name});
        if let (Some(policy), Some(user_json)) = (&user.policy, user_json.as_object_mut()) {
            user_json.insert("policyName".to_owned(), json!(policy));
        }
        if let Some(user_json) = user_json.as_object_mut() {
            user_json.insert("userStatus".to_owned(), json!("enabled"));
        }
        Ok(user_json.to_string())
    }

    /// The users with the permissions of their policies; a user without a policy has no permissions.
    pub(crate) fn access_keys(&self) -> Vec<AccessKey> {
        let empty_policy = json!({"Version": "2012-10-17", "Statement": []});
        let document = |user: &MinioUser| {
            let policy = user.policy.as_ref();
            let document = policy.and_then(|policy| self.policies.get(policy));
            document.unwrap_or(&empty_policy).clone()
        };
        let users = self.users.iter();
        users
            .map(|(name, user)| AccessKey {
                access_key: name.clone(),
                secret_key: Secret::new(user.secret_key.clone()),
                policy: document(user),
            })
            .collect()
    }
}

fn check_bucket(bucket: &str) -> Result<(), String> {
    if bucket == SERVED_BUCKET {
        return Ok(());
    }
    Err(format!("this fake has one bucket, `{SERVED_BUCKET}`"))
}

/// Rules as `mc ilm rule export` prints them, with an expiry in days for a prefix.
fn check_lifecycle(rules: &Value) -> Result<(), String> {
    let rules = rules.get("Rules").and_then(Value::as_array);
    let rules = rules.filter(|rules| !rules.is_empty()).ok_or("no rules")?;
    for rule in rules {
        let is_supported = rule.get("ID").is_some_and(Value::is_string)
            && rule.get("Status").is_some_and(|status| status == "Enabled")
            && rule.pointer("/Filter/Prefix").is_some_and(Value::is_string)
            && rule.pointer("/Expiration/Days").is_some_and(Value::is_u64);
        if !is_supported {
            return Err(format!("this fake does not understand the rule {rule}"));
        }
    }
    Ok(())
}
