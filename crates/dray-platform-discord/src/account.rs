//! The name of the bot, and whether it may attach files.

use dray_platform::{FilePermission, PlatformError};
use serde_json::Value;

use crate::api::DiscordApi;

/// Permission to attach files (documentation of Discord, "Permissions").
const ATTACH_FILES: u64 = 1 << 15;
/// Permission for everything.
const ADMINISTRATOR_PERMISSION: u64 = 1 << 3;
/// Most servers that one response lists.
const MAX_SERVERS: usize = 200;

/// Returns the name of the bot, and in how many of its servers it may attach files.
pub(crate) async fn check_bot(api: &DiscordApi) -> Result<(String, FilePermission), PlatformError> {
    let bot = api.get("/users/@me", &[]).await?;
    let name = bot.get("username").and_then(Value::as_str);
    let limit = MAX_SERVERS.to_string();
    let servers = api.get("/users/@me/guilds", &[("limit", &limit)]).await?;
    let servers = servers.as_array().map(Vec::as_slice).unwrap_or_default();
    let allowed = servers.iter().filter(|server| may_attach(server)).count();
    let or_more = if servers.len() >= MAX_SERVERS {
        " or more"
    } else {
        ""
    };
    let files = match (allowed, servers.len()) {
        (_, 0) => FilePermission::PerChat("the bot is in no server".to_owned()),
        (0, all) => FilePermission::Denied(format!(
            "no role of the bot may attach files in any of its {all} servers"
        )),
        (allowed, all) => FilePermission::PerChat(format!(
            "its roles may attach files in {allowed} of {all}{or_more} servers; a channel may still refuse it"
        )),
    };
    Ok((name.unwrap_or_default().to_owned(), files))
}

/// Whether the roles of the bot in a server let it attach files. Channels may override them.
fn may_attach(server: &Value) -> bool {
    let is_owner = server.get("owner").and_then(Value::as_bool) == Some(true);
    // A string, because the number has more bits than a JSON number.
    let permissions = server.get("permissions").and_then(Value::as_str);
    let permissions: u64 = permissions
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    is_owner || permissions & (ATTACH_FILES | ADMINISTRATOR_PERMISSION) != 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn owners_administrators_and_roles_with_the_permission_may_attach_files() {
        for (server, expected) in [
            (json!({ "permissions": "32768" }), true),
            (json!({ "permissions": "8" }), true),
            (json!({ "permissions": "18446744073709518847" }), true),
            (json!({ "permissions": "2048" }), false),
            (json!({ "permissions": "many" }), false),
            (json!({ "owner": true, "permissions": "0" }), true),
            (json!({}), false),
        ] {
            assert_eq!(may_attach(&server), expected, "{server}");
        }
    }
}
