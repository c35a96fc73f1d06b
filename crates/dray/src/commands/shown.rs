//! Values of messages as text for people.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use dray_presentation::name;

/// Longest path in a line, in characters.
const MAX_PATH_CHARACTERS: usize = 4096;

/// A text from outside, such as a host that an agent wrote, in one line, without characters that change a terminal.
pub(crate) fn outside_line(text: &str) -> String {
    name::shown_text(text.as_bytes(), MAX_PATH_CHARACTERS)
}

/// A path of this machine in one line, without characters that change a terminal.
pub(crate) fn path_line(path: &Path) -> String {
    name::shown_text(path.as_os_str().as_bytes(), MAX_PATH_CHARACTERS)
}

/// Unix milliseconds as RFC 3339, always with three digits after the second: such texts have one width, and sort by time.
/// A number when they are out of range.
pub(crate) fn rfc3339_time(unix_ms: u64) -> String {
    i64::try_from(unix_ms)
        .ok()
        .and_then(|unix_ms| jiff::Timestamp::from_millisecond(unix_ms).ok())
        .map_or_else(|| unix_ms.to_string(), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_milliseconds() {
        assert_eq!(rfc3339_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339_time(22_700), "1970-01-01T00:00:22.700Z");
        assert_eq!(rfc3339_time(22_750), "1970-01-01T00:00:22.750Z");
    }
}
