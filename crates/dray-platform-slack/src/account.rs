//! The account check: the identity of the app, and the scopes of its token.

use dray_platform::{ErrorKind, FilePermission, PlatformError};
use serde_json::Value;

use crate::api::SlackApi;

/// Scopes that the app needs to send a file, and to send a text with it.
const NEEDED_SCOPES: [&str; 2] = ["files:write", "chat:write"];

/// The names of the app's user and workspace, and whether the scopes of its token let it send files.
pub(crate) async fn check_app(api: &SlackApi) -> Result<(String, FilePermission), PlatformError> {
    let (identity, scopes) = api.identify().await?;
    let text = |name: &str| {
        identity
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let user = match text("user") {
        "" => text("user_id"),
        name => name,
    };
    let team = match text("team") {
        "" => text("team_id"),
        name => name,
    };
    Ok((
        format!("{user} in {team}"),
        permission_of(scopes.as_deref()),
    ))
}

/// Ids under which events name this installation of the app: its workspace, or the organization that installed it for all
/// of its workspaces.
pub(crate) async fn own_workspaces(api: &SlackApi) -> Result<Vec<String>, PlatformError> {
    let (identity, _) = api.identify().await?;
    let is_organization = identity.get("is_enterprise_install") == Some(&Value::Bool(true));
    let organization = identity.get("enterprise_id").filter(|_| is_organization);
    let ids = [identity.get("team_id"), organization];
    let ids = ids.into_iter().filter_map(|id| id?.as_str());
    let ids: Vec<String> = ids.map(str::to_owned).collect();
    if ids.is_empty() {
        let error = PlatformError::new(ErrorKind::Transient, "the response names no workspace");
        return Err(error);
    }
    Ok(ids)
}

fn permission_of(scopes: Option<&str>) -> FilePermission {
    let Some(scopes) = scopes else {
        return FilePermission::PerChat("the response names no scopes of the token".to_owned());
    };
    let has_scope = |scope_name: &&str| scopes.split(',').any(|scope| scope.trim() == *scope_name);
    let missing: Vec<&str> = NEEDED_SCOPES
        .into_iter()
        .filter(|scope| !has_scope(scope))
        .collect();
    if missing.is_empty() {
        FilePermission::PerChat(
            "the scopes allow it; the app must be a member of a channel".to_owned(),
        )
    } else {
        FilePermission::Denied(format!("the token lacks the scopes {}", missing.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use dray_platform::{CredentialCheck, Platform as _};
    use dray_types::{Clock, Secret};

    use super::*;
    use crate::fake_server::FakeSlack;
    use crate::{SlackOptions, SlackPlatform};

    fn app(fake: &FakeSlack, token: Secret) -> SlackPlatform {
        let options = SlackOptions {
            token,
            base_url: fake.url(),
            ..SlackOptions::default()
        };
        SlackPlatform::new("", options, Clock::system()).unwrap()
    }

    #[tokio::test]
    async fn an_account_check_names_the_app_and_the_scopes_that_are_missing() {
        let fake = FakeSlack::start().await.unwrap();
        let channel = fake.channel();
        let slack = app(&fake, fake.token());
        let check = slack.check_account().await.unwrap();
        assert_eq!(check.identity, "dray in fake");
        assert_eq!(check.credentials, CredentialCheck::Accepted);
        assert!(matches!(check.files, FilePermission::PerChat(_)));
        fake.grant("chat:write");
        let files = slack.check_account().await.unwrap().files;
        assert!(matches!(files, FilePermission::Denied(reason) if reason.contains("files:write")));
        let app_with_wrong_token = app(&fake, Secret::new("xoxb-wrong"));
        let refusal = app_with_wrong_token.check_account().await.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Auth);
        assert!(fake.visible_messages(&channel).is_empty());
    }

    #[test]
    fn a_token_without_a_needed_scope_may_not_send_files() {
        let denied = |scopes| match permission_of(Some(scopes)) {
            FilePermission::Denied(reason) => reason,
            other => panic!("{scopes}: {other:?}"),
        };
        assert!(denied("chat:write,files:read").ends_with("files:write"));
        assert!(denied("").ends_with("files:write, chat:write"));
        for scopes in [Some("files:write, chat:write"), None] {
            let permission = permission_of(scopes);
            assert!(
                matches!(permission, FilePermission::PerChat(_)),
                "{scopes:?}"
            );
        }
    }
}
