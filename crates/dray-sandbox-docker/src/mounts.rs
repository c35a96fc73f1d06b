//! Mounts of a container that the archive calls cannot see (sandbox-transfer 4.2, R-6).
//!
//! The engine accesses a container's file system from outside. It does not see files that exist only in the container's
//! own mount namespace. What it writes there lies beneath the mount, where the container does not find it.

use bollard::models::ContainerInspectResponse;
use dray_sandbox::{Error, ErrorKind, Follow, SandboxPath};

use crate::client::Client;
use crate::resolve::{ResolvedPath, resolve};

/// Mount points that every container has, with contents that the archive calls do not see.
const EVERY_CONTAINER: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The mounts of a container, as far as they matter for the archive calls.
#[derive(Clone, Debug)]
pub(crate) struct Mounts {
    /// Mount points, each with whether the archive calls see its contents.
    points: Vec<(SandboxPath, bool)>,
}

impl Mounts {
    /// The mounts that the engine made, and those that every container has.
    pub(crate) fn of(known: &ContainerInspectResponse) -> Self {
        let mut mounts = Self { points: Vec::new() };
        for path in EVERY_CONTAINER {
            // The kernel fills these in the container's own view; on the host they are empty directories.
            mounts.add(path, false);
        }
        let host = known.host_config.as_ref();
        let memory = host.and_then(|host| host.tmpfs.as_ref());
        for path in memory.into_iter().flat_map(|memory| memory.keys()) {
            mounts.add(path, false);
        }
        for mount in known.mounts.iter().flatten() {
            if let Some(path) = &mount.destination {
                // `--mount type=tmpfs` is listed here, `--tmpfs` is listed above.
                mounts.add(path, mount.typ.as_deref() != Some("tmpfs"));
            }
        }
        mounts
    }

    /// Adds the real paths of mount points that are reached through links, because the engine reports them as they were
    /// requested.
    pub(crate) async fn resolve(&mut self, client: &Client, container: &str) -> Result<(), Error> {
        // The engine refuses to mount these over links.
        let points = self.points.iter().skip(EVERY_CONTAINER.len()).cloned();
        for (point, seen) in points.collect::<Vec<_>>() {
            match resolve(client, container, None, &point, Follow::Yes).await {
                Ok(ResolvedPath::Seen { real_path, .. }) if real_path != point => {
                    self.points.push((real_path, seen));
                }
                Err(error) if error.kind() == ErrorKind::SandboxGone => return Err(error),
                // A mount point that cannot be resolved counts as being at the path that the engine reports.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, seen: bool) {
        if let Ok(path) = SandboxPath::new(path) {
            self.points.push((path, seen));
        }
    }

    /// Whether the archive calls see what is at a resolved path. The innermost mount decides.
    pub(crate) fn sees(&self, path: &SandboxPath) -> bool {
        self.points
            .iter()
            .filter(|(point, _)| path.is_beneath(point))
            // The innermost mount decides: a volume may be mounted inside a tmpfs.
            .max_by_key(|(point, _)| point.as_bytes().len())
            .is_none_or(|(_, seen)| *seen)
    }

    /// Whether the archive calls see everything beneath a resolved directory.
    pub(crate) fn sees_all(&self, directory: &SandboxPath) -> bool {
        let inside = |point: &SandboxPath| point.is_beneath(directory);
        self.sees(directory)
            && self
                .points
                .iter()
                .all(|(point, seen)| *seen || !inside(point))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bollard::models::{HostConfig, MountPoint};

    use super::*;

    fn mounts() -> Mounts {
        let mount = |typ: &str, destination: &str| MountPoint {
            typ: Some(typ.to_owned()),
            destination: Some(destination.to_owned()),
            ..MountPoint::default()
        };
        Mounts::of(&ContainerInspectResponse {
            host_config: Some(HostConfig {
                tmpfs: Some(HashMap::from([("/run/".to_owned(), String::new())])),
                ..HostConfig::default()
            }),
            mounts: Some(vec![
                mount("volume", "/run/data"),
                mount("bind", "/workspace/host"),
                mount("tmpfs", "/workspace/memory"),
                mount("bind", "/dev/shared"),
            ]),
            ..ContainerInspectResponse::default()
        })
    }

    #[test]
    fn r_6_the_innermost_mount_decides_what_is_seen() {
        let mounts = mounts();
        for (path, seen) in [
            ("/", true),
            ("/workspace/file", true),
            ("/workspace/host/file", true),
            ("/workspace/memory", false),
            ("/workspace/memory/file", false),
            ("/workspace/memory2", true),
            ("/run/lock", false),
            ("/run/data/file", true),
            ("/proc/self/status", false),
            ("/dev/shm/x", false),
            ("/dev/shared/x", true),
            ("/system", true),
        ] {
            let path = SandboxPath::new(path).unwrap();
            assert_eq!(mounts.sees(&path), seen, "{path}");
        }
    }

    #[test]
    fn r_6_a_tree_with_a_hole_is_not_seen_whole() {
        let mounts = mounts();
        for (path, seen) in [
            ("/", false),
            ("/workspace", false),
            ("/workspace/host", true),
            ("/home", true),
            ("/run/data", true),
        ] {
            let path = SandboxPath::new(path).unwrap();
            assert_eq!(mounts.sees_all(&path), seen, "{path}");
        }
    }
}
