//! The deny list (platform-delivery 5.1 and 5.2).

use dray_sandbox::path::{SandboxPath, path_parts};

/// Directories of the system. `/run` is the target of `/var/run`, and container engines put secrets there.
const SYSTEM_DIRECTORIES: [&str; 10] = [
    "/etc", "/proc", "/sys", "/dev", "/root", "/boot", "/var/log", "/var/lib", "/var/run", "/run",
];

/// System directories that contain home directories.
const HOME_PARENTS: [&str; 2] = ["/root", "/var/lib"];

/// Entries of a home that must not leave the sandbox.
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

/// Entries of a state directory that hold credentials or other people's conversations.
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

/// Databases in a state directory, by the beginning of their names, because `-wal` and `-journal` files are beside
/// them.
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

/// The rule that refuses `path` for the directory it lies in.
pub(super) fn denied_directory(
    path: &SandboxPath,
    homes: &[SandboxPath],
    configured_roots: &[SandboxPath],
) -> Option<String> {
    // Directories are compared with their case, as Linux does; only names are folded.
    let parts: Vec<&[u8]> = path_parts(path.as_bytes()).collect();
    system_directory(path, &parts, homes, configured_roots)
        .map(|directory| format!("system directory {directory}"))
        .or_else(|| home_entry(path, &parts, homes).map(|entry| format!("home entry {entry}")))
        .or_else(|| state_entry(&parts).map(|entry| format!("state file {entry}")))
}

/// The rule that refuses `path` for its name.
pub(super) fn denied_name(path: &SandboxPath) -> Option<String> {
    let name = path.name().to_ascii_lowercase();
    // Files with example values contain no secrets; projects share them.
    let environment = name.starts_with(b".env.") && name != b".env.example";
    (environment || SECRET_NAMES.contains(&name.as_slice()))
        .then(|| format!("secret name {}", path.name().escape_ascii()))
}

/// Whether the name is one that private keys have.
pub(super) fn may_be_key(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(b".pem") || name.ends_with(b".key")
}

/// The system directory that refuses the path. Homes in `/root` and in `/var/lib` (homes of services) may be used, and
/// so may roots inside a system directory that an operator configured.
fn system_directory(
    path: &SandboxPath,
    parts: &[&[u8]],
    homes: &[SandboxPath],
    configured_roots: &[SandboxPath],
) -> Option<&'static str> {
    let directory = SYSTEM_DIRECTORIES
        .into_iter()
        .find(|directory| starts_with(parts, directory))?;
    let at_home = homes.iter().any(|home| {
        // `/root` is a system directory and root's home; a home in `/var/lib` must lie deeper.
        let inside = home.as_bytes() == b"/root" || is_inside(home, directory);
        HOME_PARENTS.contains(&directory) && inside && path.is_beneath(home)
    });
    // A root that is the system directory itself does not lift the refusal; only a root inside it does.
    let at_root = configured_roots
        .iter()
        .any(|root| is_inside(root, directory) && path.is_beneath(root));
    (!at_home && !at_root).then_some(directory)
}

/// Whether a path lies beneath a directory and is not the directory itself.
fn is_inside(path: &SandboxPath, directory: &str) -> bool {
    let parts: Vec<&[u8]> = path_parts(path.as_bytes()).collect();
    path.as_bytes() != directory.as_bytes() && starts_with(&parts, directory)
}

/// The entry of a home that covers the path: directly beneath a known home, or at any depth when no home is known.
fn home_entry(path: &SandboxPath, parts: &[&[u8]], homes: &[SandboxPath]) -> Option<&'static str> {
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
                // The names of the home are removed, so that entries match only from its top.
                let depth = path_parts(home.as_bytes()).count();
                starts_with(parts.get(depth..).unwrap_or_default(), entry)
            })
    })
}

/// The entry of a state directory that covers the path, at any depth. State directories may lie inside one another, as
/// when the workspace of an agent lies in one.
fn state_entry(parts: &[&[u8]]) -> Option<String> {
    let named = parts.iter().enumerate();
    named
        .filter(|(_, part)| STATE_DIRECTORIES.contains(part))
        .find_map(|(position, _)| denied_state(parts.get(position + 1..).unwrap_or_default()))
}

/// The entry that covers a path in a state directory, given without that directory.
fn denied_state(inside: &[&[u8]]) -> Option<String> {
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

/// Whether a path begins with the names of `entry`.
fn starts_with(parts: &[&[u8]], entry: &str) -> bool {
    let mut parts = parts.iter();
    entry
        .split('/')
        .filter(|name| !name.is_empty())
        .all(|name| parts.next().is_some_and(|part| *part == name.as_bytes()))
}
