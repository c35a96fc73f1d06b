//! The user of a container, found without running a command in it.

use bollard::models::ContainerInspectResponse;
use dray_archive::tar::{EntryKind, TarRules};
use dray_sandbox::{Error, ErrorKind, Follow, SandboxPath};
use dray_sandbox_tree::TarEntries;

use crate::client::Client;
use crate::resolve::{ResolvedPath, resolve};

/// Longest list of users or groups in bytes that is read.
const MAX_LIST_BYTES: usize = 1 << 20;

/// The user as whom commands run in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: SandboxPath,
}

/// Whether commands in the container have the rights of root on all files, by its configured user and capabilities.
/// Another name of root counts as another user.
pub(crate) fn is_root(known: &ContainerInspectResponse) -> bool {
    let name = configured(known).split(':').next();
    let host = known.host_config.as_ref();
    let dropped = host.and_then(|host| host.cap_drop.as_ref());
    let is_limited = dropped.into_iter().flatten().any(|capability| {
        let capability = capability.to_ascii_uppercase();
        matches!(
            capability.trim_start_matches("CAP_"),
            "ALL" | "DAC_OVERRIDE"
        )
    });
    matches!(name, Some("" | "0" | "root")) && !is_limited
}

/// The configured user, with or without a group; empty for root.
fn configured(known: &ContainerInspectResponse) -> &str {
    let config = known.config.as_ref();
    let user = config.and_then(|config| config.user.as_deref());
    user.unwrap_or_default()
}

/// Finds the configured user in the container's own lists, as the engine does when it starts a command.
pub(crate) async fn find(
    client: &Client,
    container: &str,
    known: &ContainerInspectResponse,
) -> Result<ContainerUser, Error> {
    let configured = configured(known);
    let passwd = list(client, container, "/etc/passwd").await?;
    let groups = if configured.contains(':') {
        list(client, container, "/etc/group").await?
    } else {
        String::new()
    };
    look_up(configured, &passwd, &groups)
}

/// Reads a small text file of the container; empty when there is none.
async fn list(client: &Client, container: &str, path: &str) -> Result<String, Error> {
    let path = SandboxPath::new(path)?;
    let real_path = match resolve(client, container, None, &path, Follow::Yes).await {
        Ok(ResolvedPath::Seen { real_path, .. }) => real_path,
        Ok(ResolvedPath::Hidden(_)) => return Ok(String::new()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let (_, body) = client.download(container, real_path.as_bytes()).await?;
    let mut reader = TarEntries::new(body, TarRules::Exact);
    let mut text = Vec::new();
    match reader.entry().await? {
        Some(header) if header.kind == EntryKind::File => {
            while let Some(chunk) = reader.next_chunk().await? {
                text.extend_from_slice(&chunk);
                // The part that was read so far is enough for most users; a longer list is not worth the memory.
                if text.len() > MAX_LIST_BYTES {
                    break;
                }
            }
        }
        _ => {}
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Finds `USER[:GROUP]`, each a name or a number; an empty text means root.
fn look_up(configured: &str, passwd: &str, groups: &str) -> Result<ContainerUser, Error> {
    let (user, group) = match configured.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (configured, None),
    };
    // `:GROUP` leaves the user to the default, which is root.
    let user = if user.is_empty() { "0" } else { user };
    let number: Option<u32> = user.parse().ok();
    let entry = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        let gid: u32 = fields.next()?.parse().ok()?;
        let home = fields.nth(1).unwrap_or_default();
        (name == user || Some(uid) == number).then_some((uid, gid, home))
    });
    let unknown = |what| Error::new(ErrorKind::Protocol, what);
    let (uid, own_group, home) = match (entry, number) {
        // The engine does the same: a number needs no entry, and its group is then root's.
        (Some(entry), _) => entry,
        (None, Some(uid)) => (uid, 0, "/"),
        (None, None) => return Err(unknown("the container's user is not in its list")),
    };
    let gid = match group {
        None | Some("") => own_group,
        Some(group) => group
            .parse()
            .ok()
            .or_else(|| gid_of(group, groups))
            .ok_or_else(|| unknown("the container's group is not in its list"))?,
    };
    Ok(ContainerUser {
        uid,
        gid,
        home: SandboxPath::new(home).unwrap_or_else(|_| SandboxPath::root()),
    })
}

fn gid_of(name: &str, groups: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next()? == name;
        let gid = fields.nth(1)?.parse().ok()?;
        found.then_some(gid)
    })
}

#[cfg(test)]
mod tests {
    use bollard::models::{ContainerConfig, HostConfig};

    use super::*;

    const PASSWD_FILE: &str =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nagent:x:1000:1001::/home/agent:/bin/sh\n";
    const GROUP_FILE: &str = "root:x:0:\nusers:x:100:agent\n";

    #[test]
    fn users_are_found_as_the_engine_finds_them() {
        for (configured, uid, gid, home) in [
            ("", 0, 0, "/root"),
            ("agent", 1000, 1001, "/home/agent"),
            ("1000", 1000, 1001, "/home/agent"),
            ("4711", 4711, 0, "/"),
            ("agent:users", 1000, 100, "/home/agent"),
            ("agent:5", 1000, 5, "/home/agent"),
            ("4711:4712", 4711, 4712, "/"),
            (":users", 0, 100, "/root"),
        ] {
            let home = SandboxPath::new(home).unwrap();
            let user = look_up(configured, PASSWD_FILE, GROUP_FILE).unwrap();
            assert_eq!(user, ContainerUser { uid, gid, home }, "{configured}");
        }
        assert!(look_up("nobody", PASSWD_FILE, GROUP_FILE).is_err());
        assert!(look_up("agent:nobody", PASSWD_FILE, GROUP_FILE).is_err());
    }

    #[test]
    fn only_root_with_its_capabilities_has_the_rights_of_root() {
        for (user, dropped, expected) in [
            ("", "NET_RAW", true),
            ("0:100", "", true),
            ("agent", "", false),
            ("", "ALL", false),
            ("root", "cap_dac_override", false),
        ] {
            let known = ContainerInspectResponse {
                config: Some(ContainerConfig {
                    user: Some(user.to_owned()),
                    ..ContainerConfig::default()
                }),
                host_config: Some(HostConfig {
                    cap_drop: Some(vec![dropped.to_owned()]),
                    ..HostConfig::default()
                }),
                ..ContainerInspectResponse::default()
            };
            assert_eq!(is_root(&known), expected, "{user} {dropped}");
        }
    }

    #[test]
    fn a_container_without_lists_still_has_numbers() {
        let user = look_up("", "", "").unwrap();
        assert_eq!((user.uid, user.gid, user.home), (0, 0, SandboxPath::root()));
    }
}
