//! Error messages of shells and tools, and the kinds that they mean.

use dray_sandbox::error::{Error, ErrorKind};

use super::channel::CommandExit;

/// Texts of `strerror` of glibc and of musl, and the texts that shells use instead. They are compared in lower case
/// with the end of a line, because a name that a user chose may stand at its beginning.
const ERROR_TEXTS: &[(&str, ErrorKind)] = &[
    ("no such file or directory", ErrorKind::NotFound),
    ("no such file", ErrorKind::NotFound),
    ("directory nonexistent", ErrorKind::NotFound),
    ("nonexistent directory", ErrorKind::NotFound),
    ("permission denied", ErrorKind::PermissionDenied),
    ("operation not permitted", ErrorKind::PermissionDenied),
    ("device or resource busy", ErrorKind::PermissionDenied),
    ("resource busy", ErrorKind::PermissionDenied),
    ("text file busy", ErrorKind::PermissionDenied),
    ("not a directory", ErrorKind::NotDirectory),
    ("is a directory", ErrorKind::IsDirectory),
    ("no such device or address", ErrorKind::NotRegular),
    ("file exists", ErrorKind::Exists),
    ("cannot overwrite existing file", ErrorKind::Exists),
    ("directory not empty", ErrorKind::Exists),
    ("too many levels of symbolic links", ErrorKind::Loop),
    ("symbolic link loop", ErrorKind::Loop),
    ("file name too long", ErrorKind::InvalidName),
    ("filename too long", ErrorKind::InvalidName),
    ("no space left on device", ErrorKind::NoSpace),
    ("disk quota exceeded", ErrorKind::NoSpace),
    ("quota exceeded", ErrorKind::NoSpace),
    ("file too large", ErrorKind::NoSpace),
    ("read-only file system", ErrorKind::ReadOnly),
    (
        "file changed as we read it",
        ErrorKind::ChangedDuringTransfer,
    ),
    (
        "file removed before we read it",
        ErrorKind::ChangedDuringTransfer,
    ),
    ("padding with zeros", ErrorKind::ChangedDuringTransfer),
    ("short read", ErrorKind::Truncated),
    ("truncated input", ErrorKind::Corrupted),
    ("invalid input", ErrorKind::Corrupted),
    ("not in gzip format", ErrorKind::Corrupted),
    ("unexpected end of file", ErrorKind::Corrupted),
    ("crc error", ErrorKind::Corrupted),
    ("input/output error", ErrorKind::Unavailable),
    ("i/o error", ErrorKind::Unavailable),
    ("stale file handle", ErrorKind::Unavailable),
    (
        "transport endpoint is not connected",
        ErrorKind::Unavailable,
    ),
    ("cannot allocate memory", ErrorKind::Unavailable),
    ("out of memory", ErrorKind::Unavailable),
    ("command not found", ErrorKind::ToolMissing),
    ("not found", ErrorKind::ToolMissing),
    ("applet not found", ErrorKind::ToolMissing),
    ("unrecognized option", ErrorKind::ToolMissing),
];

/// The kind of failure that the last known line of an error output means, for all tools: GNU, `BusyBox`, dash or
/// bash, with glibc or musl, in the C locale. `None` when no line is known.
pub fn kind_of_text(text: &str) -> Option<ErrorKind> {
    // The last line is the tool's last message; names with line breaks in them are in earlier lines.
    text.lines().rev().find_map(|line| {
        let line = line.trim_end().to_ascii_lowercase();
        let message = line.rsplit(": ").next().unwrap_or_default();
        ERROR_TEXTS
            .iter()
            .find(|(known, _)| {
                message
                    .strip_suffix(known)
                    // Only after a space, a quote or a parenthesis: the name `/w/not found` must not match.
                    .is_some_and(|before| before.is_empty() || before.ends_with([' ', '\'', ')']))
            })
            .map(|(_, kind)| *kind)
    })
}

/// The error for a command that ended without a response. `response_begun` is whether a part of the response arrived.
pub(super) fn unanswered(exit: &CommandExit, noise: &[u8], response_begun: bool) -> Error {
    let noise = String::from_utf8_lossy(noise);
    let output = format!("{}\n{}", noise, exit.stderr);
    let kind = match (response_begun, exit.status) {
        // A response that began and has no end is truncated, however the command ended.
        (true, _) => ErrorKind::Truncated,
        (false, 126 | 127) => ErrorKind::ToolMissing,
        (false, 0) => ErrorKind::Protocol,
        (false, _) => kind_of_text(&output).unwrap_or(ErrorKind::Unavailable),
    };
    Error::new(
        kind,
        format!("no response, status {}: {}", exit.status, output.trim()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_and_library_is_understood() {
        for (text, kind) in [
            (
                "stat: cannot statx '/a': No such file or directory",
                ErrorKind::NotFound,
            ),
            (
                "dash: 1: cannot create /x/y: Directory nonexistent",
                ErrorKind::NotFound,
            ),
            (
                "sh: can't create /x/y: nonexistent directory",
                ErrorKind::NotFound,
            ),
            ("sh: 1: cannot open /x: No such file", ErrorKind::NotFound),
            ("cat: a: Permission denied\r", ErrorKind::PermissionDenied),
            ("sh: /x: cannot overwrite existing file", ErrorKind::Exists),
            ("ls: /loop: Symbolic link loop", ErrorKind::Loop),
            (
                "cat: write error: No space left on device",
                ErrorKind::NoSpace,
            ),
            ("sh: 1: base64: not found", ErrorKind::ToolMissing),
            (
                "sh: line 1: gzip: command not found",
                ErrorKind::ToolMissing,
            ),
            (
                "mv: can't rename 'a': Read-only file system",
                ErrorKind::ReadOnly,
            ),
            (
                "tar: ./f: file changed as we read it",
                ErrorKind::ChangedDuringTransfer,
            ),
            (
                "tar: ./f: File shrank by 7 bytes; padding with zeros",
                ErrorKind::ChangedDuringTransfer,
            ),
        ] {
            assert_eq!(kind_of_text(text), Some(kind), "{text}");
        }
        assert_eq!(kind_of_text("all is well\n\n"), None);
    }

    #[test]
    fn a_name_cannot_pose_as_an_error() {
        let text = "stat: cannot stat '/w/x: Permission denied\ny': No such file or directory";
        assert_eq!(kind_of_text(text), Some(ErrorKind::NotFound));
        assert_eq!(
            kind_of_text("cat: '/w/not found': Is a directory"),
            Some(ErrorKind::IsDirectory)
        );
    }

    #[test]
    fn a_status_without_an_answer_has_a_kind() {
        let exit = |status, stderr: &str| CommandExit {
            status,
            stderr: stderr.to_owned(),
        };
        for (status, stderr, response_begun, kind) in [
            (127, "", false, ErrorKind::ToolMissing),
            (126, "cannot execute", false, ErrorKind::ToolMissing),
            (0, "", false, ErrorKind::Protocol),
            (137, "", false, ErrorKind::Unavailable),
            (
                2,
                "sh: 1: cannot open /x: Permission denied",
                false,
                ErrorKind::PermissionDenied,
            ),
            (137, "", true, ErrorKind::Truncated),
        ] {
            assert_eq!(
                unanswered(&exit(status, stderr), b"", response_begun).kind(),
                kind,
                "{status} {stderr}"
            );
        }
    }
}
