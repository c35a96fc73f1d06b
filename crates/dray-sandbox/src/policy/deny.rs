//! The deny list (platform-delivery 5.1 and 5.2).

use crate::path::SandboxPath;

/// Directories of the system. `/run` is where `/var/run` leads, and where container engines put secrets.
const SYSTEM_DIRECTORIES: [&str; 10] = [
    "/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/var/log", "/var/lib", "/var/run", "/run",
];

/// Those of them in which homes are.
const HOME_PARENTS: [&str; 2] = ["/root", "/var/lib"];

/// What lies in a home and must not be handed out.
const DENIED_IN_HOME: [&str; 14] = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".docker",
    ".config",
    ".azure",
    ".gcloud",
    "Library/Keychains",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
];

/// Directories in which agent programs keep their state.
const STATE_DIRECTORIES: [&[u8]; 2] = [b".dray", b".hermes"];

/// What in such a directory holds credentials or other people's conversations.
const DENIED_STATE: [&str; 15] = [
    ".env",
    "auth.json",
    "auth.lock",
    "credentials",
    "config.yaml",
    ".anthropic_oauth.json",
    "google_token.json",
    "google_oauth_pending.json",
    "auth/google_oauth.json",
    "webhook_subscriptions.json",
    "cache/bws_cache.json",
    "pairing",
    "mcp-tokens",
    "sessions",
    "browser-profile",
];

/// Databases in such a directory, by the beginning of their names.
const STATE_DATABASES: [&[u8]; 2] = [b"state.db", b"kanban.db"];

/// Names that mean a secret wherever they are.
const SECRET_NAMES: [&[u8]; 9] = [
    b".env",
    b".envrc",
    b"id_rsa",
    b"id_ed25519",
    b"id_ecdsa",
    b"id_dsa",
    b"credentials.json",
    b".netrc",
    b"kubeconfig",
];

/// The rule against the place of `path`.
pub(super) fn place(
    path: &SandboxPath,
    homes: &[SandboxPath],
    written: &[SandboxPath],
) -> Option<String> {
    let parts = parts(path.as_bytes());
    system(path, &parts, homes, written)
        .map(|directory| format!("system directory {directory}"))
        .or_else(|| home(path, &parts, homes).map(|entry| format!("home entry {entry}")))
        .or_else(|| state(&parts).map(|entry| format!("state file {entry}")))
}

/// The rule against the name of `path`.
pub(super) fn secret_name(path: &SandboxPath) -> Option<String> {
    let name = path.name().to_ascii_lowercase();
    let environment = name.starts_with(b".env.") && name != b".env.example";
    (environment || SECRET_NAMES.contains(&name.as_slice()))
        .then(|| format!("secret name {}", path.name().escape_ascii()))
}

/// Whether the name is one that private keys have.
pub(super) fn may_be_key(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(b".pem") || name.ends_with(b".key")
}

/// Homes in `/root` and `/var/lib`, where services have theirs, may be used, and so may roots in any such directory
/// that an operator wrote down.
fn system(
    path: &SandboxPath,
    parts: &[&[u8]],
    homes: &[SandboxPath],
    written: &[SandboxPath],
) -> Option<&'static str> {
    let directory = SYSTEM_DIRECTORIES
        .into_iter()
        .find(|directory| starts_with(parts, directory))?;
    let at_home = homes.iter().any(|home| {
        let inside = home.as_bytes() == b"/root" || is_inside(home, directory);
        HOME_PARENTS.contains(&directory) && inside && path.is_beneath(home)
    });
    let at_root = written
        .iter()
        .any(|root| is_inside(root, directory) && path.is_beneath(root));
    (!at_home && !at_root).then_some(directory)
}

/// Whether a path lies in a directory and is not that itself.
fn is_inside(path: &SandboxPath, directory: &str) -> bool {
    path.as_bytes() != directory.as_bytes() && starts_with(&parts(path.as_bytes()), directory)
}

/// Beneath a known home exactly; at any depth when no home is known.
fn home(path: &SandboxPath, parts: &[&[u8]], homes: &[SandboxPath]) -> Option<&'static str> {
    let anywhere = homes.is_empty();
    DENIED_IN_HOME.into_iter().find(|entry| {
        if anywhere {
            return (0..parts.len())
                .any(|from| starts_with(parts.get(from..).unwrap_or_default(), entry));
        }
        homes
            .iter()
            .filter(|home| path.is_beneath(home))
            .any(|home| {
                let depth = self::parts(home.as_bytes()).len();
                starts_with(parts.get(depth..).unwrap_or_default(), entry)
            })
    })
}

/// State lies in a state directory wherever that is.
fn state(parts: &[&[u8]]) -> Option<String> {
    let at = parts
        .iter()
        .position(|part| STATE_DIRECTORIES.contains(part))?;
    let inside = parts.get(at + 1..).unwrap_or_default();
    if let Some(entry) = DENIED_STATE
        .into_iter()
        .find(|entry| starts_with(inside, entry))
    {
        return Some(entry.to_owned());
    }
    let first = inside.first()?;
    STATE_DATABASES
        .into_iter()
        .find(|database| first.starts_with(database))
        .map(|database| database.escape_ascii().to_string())
}

/// The names in a path.
fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect()
}

/// Whether a path begins with the names of `entry`.
fn starts_with(parts: &[&[u8]], entry: &str) -> bool {
    let mut parts = parts.iter();
    entry
        .split('/')
        .filter(|name| !name.is_empty())
        .all(|name| parts.next().is_some_and(|part| *part == name.as_bytes()))
}
