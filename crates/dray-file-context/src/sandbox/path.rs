//! Paths in a sandbox that may be written.

/// The absolute path of `target` below `directory`, resolved without access to the disk. One leading slash is ignored,
/// and `a/../b` is resolved. `None` if the path leaves the directory, is the directory itself or contains a control
/// character.
pub(super) fn resolve_below(directory: &str, target: &str) -> Option<String> {
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
