//! Paths in a sandbox that may be written.

/// The absolute path of `target` below `directory`, resolved without access to the disk. One leading slash is ignored,
/// and `a/../b` is resolved. `None` if the path leaves the directory, is the directory itself or contains a control
/// character.
pub fn resolve_below(directory: &str, target: &str) -> Option<String> {
    if target.contains(char::is_control) {
        return None;
    }
    let target = target.strip_prefix('/').unwrap_or(target);
    if target.starts_with('/') || target.ends_with('/') {
        return None;
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                // `None` above the directory, even if a later segment would return into it.
                segments.pop()?;
            }
            other => segments.push(other),
        }
    }
    let last = target.rsplit('/').next().unwrap_or_default();
    if segments.is_empty() || matches!(last, "." | "..") {
        return None;
    }
    let root = directory.trim_end_matches('/');
    Some(format!("{root}/{}", segments.join("/")))
}

/// Whether a path with all links resolved on the disk is still below the resolved directory. Check this between
/// the download and the write.
pub fn confirm_below(real_directory: &str, real_path: &str) -> bool {
    let root = real_directory.trim_end_matches('/');
    let below = real_path
        .strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .split('/')
                .all(|segment| !matches!(segment, "" | "." | ".."))
    })
}
