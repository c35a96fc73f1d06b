//! Whose sign-ins at MCP servers a turn may use: tokens of one user must not serve another user of the same key.

use dray_agent::caller::Caller;
use dray_agent::manifest::Manifest;
use dray_agent::manifest::toolset::{McpAuthorization, ToolSet};

use super::SharedParts;
use crate::permissions::CallerIdentity;

/// Most bytes of the name of a user in a header.
const MAX_USER_BYTES: usize = 256;

/// The owner of the sign-ins of a turn, as a text that no other owner has. `None` where the user cannot be
/// distinguished from other users of the same client; the turn then uses no sign-in.
pub(super) async fn of_turn(
    parts: &SharedParts,
    caller: &Caller,
    identity: &CallerIdentity,
    manifest: &Manifest,
) -> Option<String> {
    let permissions = parts.config.permissions.of(identity);
    if let Some(header) = &permissions.user_header {
        return header_owner(identity, caller, header);
    }
    match (&parts.core, identity) {
        // Behind DIAL a client of the operator speaks for users: the key in `Api-Key` identifies the user.
        (Some(core), CallerIdentity::Client(_)) if caller.api_key.is_some() => {
            // DIAL Core is asked only if the manifest can use a sign-in.
            if !may_sign_in(manifest) {
                return Some(identity.key());
            }
            match core.bucket(caller).await {
                Ok(bucket) => Some(owner_text(identity, "dial", &bucket.bucket)),
                Err(error) => {
                    tracing::warn!(%error, "no sign-in at MCP servers is used: DIAL Core did not name the user");
                    None
                }
            }
        }
        _ => Some(identity.key()),
    }
}

/// The owner that a client names in its header.
fn header_owner(identity: &CallerIdentity, caller: &Caller, header: &str) -> Option<String> {
    let user = caller.only_header(header)?;
    (user.len() <= MAX_USER_BYTES).then(|| owner_text(identity, "user", user))
}

/// Header values and bucket names contain no line feed, so no two owners have the same text.
fn owner_text(identity: &CallerIdentity, kind: &str, user: &str) -> String {
    format!("{}\n{kind}:{user}", identity.key())
}

/// Whether a tool set of the manifest can have a sign-in. A tool set from a template may have one.
fn may_sign_in(manifest: &Manifest) -> bool {
    manifest.tool_sets.iter().any(|set| match set {
        ToolSet::Mcp(set) => matches!(
            set.mcp_server_info.authorization,
            Some(McpAuthorization::Oauth(_))
        ),
        ToolSet::Predefined(_) => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER_HEADER: &str = "X-OpenWebUI-User-Id";

    fn owner_of(client: &str, headers: &[(&str, &str)]) -> Option<String> {
        let caller = Caller {
            forwarded: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Caller::default()
        };
        header_owner(
            &CallerIdentity::Client(client.to_owned()),
            &caller,
            USER_HEADER,
        )
    }

    #[test]
    fn equal_names_of_users_of_two_clients_are_two_owners() {
        let name = "x-openwebui-user-id";
        let ann = owner_of("chat", &[(name, "ann")]);
        assert_eq!(ann.as_deref(), Some("client:chat\nuser:ann"));
        assert_eq!(owner_of("chat", &[("x-a", "b"), (name, " ann ")]), ann);
        assert_ne!(owner_of("chat", &[(name, "bob")]), ann);
        assert_ne!(owner_of("other", &[(name, "ann")]), ann);
    }

    #[test]
    fn a_request_that_does_not_name_one_user_has_no_owner() {
        let name = "x-openwebui-user-id";
        let long = "x".repeat(MAX_USER_BYTES + 1);
        for headers in [
            &[][..],
            &[(name, "")],
            &[(name, "  ")],
            &[(name, "ann"), (name, "bob")],
            &[(name, &long)],
        ] {
            assert_eq!(owner_of("chat", headers), None, "{headers:?}");
        }
    }
}
