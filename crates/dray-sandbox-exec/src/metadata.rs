//! Parses the output of `stat` and `ls` into metadata.

use dray_sandbox::metadata::{FileKind, FileState};

/// File systems of this kernel, on disk or in memory, that update the times at every write: ext, XFS, Btrfs, overlay,
/// tmpfs, ramfs, F2FS, ZFS, bcachefs.
const LOCAL_FILE_SYSTEMS: &[u32] = &[
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x794c_7630,
    0x0102_1994,
    0x8584_58f6,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// File systems whose regular files are generated while they are read (`stat -f -c %t`): proc, sysfs, cgroups,
/// debugfs, tracefs, securityfs, configfs, BPF, EFI variables, `binfmt_misc`.
const PSEUDO_FILE_SYSTEMS: &[u32] = &[
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
    0xde5e_81e4,
    0x4249_4e4d,
];

/// Facts about one path, as a tool printed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathFacts {
    /// Type and permission bits of `st_mode`.
    pub(super) st_mode: u32,
    pub(super) size: u64,
    pub(super) mtime_ns: Option<i128>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) links: Option<u64>,
    pub(super) identity: Option<(u64, u64)>,
}

impl PathFacts {
    pub(super) fn kind(&self) -> FileKind {
        FileKind::from_st_mode(self.st_mode)
    }

    pub(super) fn mode(&self) -> u32 {
        self.st_mode & 0o7777
    }

    /// Reads `%f %s %Y %u %g %h %d %i %y`.
    pub(super) fn of_stat(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let st_mode = u32::from_str_radix(words.next()?, 16).ok()?;
        let size = words.next()?.parse().ok()?;
        let seconds: i128 = words.next()?.parse().ok()?;
        Some(Self {
            st_mode,
            size,
            uid: words.next()?.parse().ok(),
            gid: words.next()?.parse().ok(),
            links: words.next()?.parse().ok(),
            identity: words.next()?.parse().ok().zip(words.next()?.parse().ok()),
            mtime_ns: Some(seconds * 1_000_000_000 + fraction(words)),
        })
    }

    /// Reads `%f %s %Y %y`, the format of a listing.
    pub(super) fn of_entry(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let st_mode = u32::from_str_radix(words.next()?, 16).ok()?;
        let size = words.next()?.parse().ok()?;
        let seconds: i128 = words.next()?.parse().ok()?;
        Some(Self {
            st_mode,
            size,
            mtime_ns: Some(seconds * 1_000_000_000 + fraction(words)),
            ..Self::default()
        })
    }

    /// Reads the output of `ls -ldn`, for sandboxes whose `stat` accepts no format. `ls` prints times without seconds,
    /// so the result has none.
    pub(super) fn of_ls(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let st_mode = mode_of(words.next()?)?;
        let links = words.next()?.parse().ok();
        let uid = words.next()?.parse().ok();
        let gid = words.next()?.parse().ok();
        let size = words.next()?;
        // Devices have two numbers in place of a size.
        let size = if size.ends_with(',') {
            0
        } else {
            size.parse().ok()?
        };
        Some(Self {
            st_mode,
            size,
            uid,
            gid,
            links,
            ..Self::default()
        })
    }
}

/// Nanoseconds in the words of `%y`, such as `2001-09-09 01:46:40.500000000 +0000`; 0 without a fraction.
fn fraction<'w>(words: impl Iterator<Item = &'w str>) -> i128 {
    words
        .filter(|word| word.contains(':'))
        .find_map(|word| {
            let digits = word.split_once('.')?.1;
            let padded: String = digits.chars().chain("000000000".chars()).take(9).collect();
            padded.parse().ok()
        })
        .unwrap_or(0)
}

/// Reads the ten letters of a mode as `st_mode`.
fn mode_of(letters: &str) -> Option<u32> {
    let mut letters = letters.chars();
    let kind = match letters.next()? {
        '-' => 0o100_000,
        'd' => 0o040_000,
        'l' => 0o120_000,
        'p' => 0o010_000,
        's' => 0o140_000,
        'c' => 0o020_000,
        'b' => 0o060_000,
        _ => 0,
    };
    let mut mode = kind;
    for shift in [8_u32, 7, 6, 5, 4, 3, 2, 1, 0] {
        // The execute letter also shows set-id and sticky: small with execute, capital without.
        let special = match shift {
            6 => 0o4000,
            3 => 0o2000,
            0 => 0o1000,
            _ => 0,
        };
        mode |= match letters.next()? {
            '-' => 0,
            's' | 't' => special | 1 << shift,
            'S' | 'T' => special,
            _ => 1 << shift,
        };
    }
    Some(mode)
}

/// Whether a file system with this type, as hexadecimal digits, updates times at every write.
pub(super) fn keeps_times(magic: &str) -> bool {
    u32::from_str_radix(magic, 16).is_ok_and(|magic| LOCAL_FILE_SYSTEMS.contains(&magic))
}

/// Reads `%f %d:%i %s %Y %Z %y %z`, with the time of the sandbox in seconds.
pub(super) fn state_of(line: &str, now: Option<i64>) -> Option<FileState> {
    let mut words = line.split_whitespace();
    let st_mode = u32::from_str_radix(words.next()?, 16).ok()?;
    let (device, inode) = words.next()?.split_once(':')?;
    let size = words.next()?.parse().ok()?;
    let modified: i128 = words.next()?.parse().ok()?;
    let changed_s = words.next()?.parse().ok()?;
    Some(FileState {
        kind: FileKind::from_st_mode(st_mode),
        identity: (device.parse().ok()?, inode.parse().ok()?),
        size,
        modified_ns: modified * 1_000_000_000 + fraction(words),
        changed_s,
        now_s: now?,
        text: line.to_owned(),
    })
}

/// Whether a file system type, as hexadecimal digits, generates its files.
pub(super) fn is_pseudo(magic: &str) -> bool {
    u32::from_str_radix(magic, 16).is_ok_and(|magic| PSEUDO_FILE_SYSTEMS.contains(&magic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_gnu_and_of_busybox_is_read() {
        let gnu = "81a4 10 1000000000 1000 100 2 65024 77 2001-09-09 01:46:40.500000000 +0000";
        let facts = PathFacts::of_stat(gnu).unwrap();
        assert_eq!(facts.kind(), FileKind::File);
        assert_eq!(
            (facts.mode(), facts.size, facts.links),
            (0o644, 10, Some(2))
        );
        assert_eq!((facts.uid, facts.gid), (Some(1000), Some(100)));
        assert_eq!(facts.identity, Some((65024, 77)));
        assert_eq!(facts.mtime_ns, Some(1_000_000_000_500_000_000));
        let old = "41ed 0 -5 0 0 1 1 2 1969-12-31 23:59:55";
        assert_eq!(
            PathFacts::of_stat(old).unwrap().mtime_ns,
            Some(-5_000_000_000)
        );
        assert_eq!(PathFacts::of_stat("stat: no such"), None);
    }

    #[test]
    fn the_last_resort_is_the_long_listing() {
        for (line, kind, mode, size) in [
            (
                "-rwsr-xr-T 1 0 0 5 Jan 1 1970 /a",
                FileKind::File,
                0o5754,
                5,
            ),
            (
                "drwxrwxrwt 9 0 0 4096 Jan 1 1970 /tmp",
                FileKind::Directory,
                0o1777,
                4096,
            ),
            (
                "crw-rw-rw- 1 0 0 1, 3 Jan 1 1970 /dev/null",
                FileKind::CharDevice,
                0o666,
                0,
            ),
            ("prw-r--r-- 1 0 0 0 Jan 1 1970 /p", FileKind::Fifo, 0o644, 0),
            (
                "lrwxrwxrwx 1 0 0 1 Jan 1 1970 /l -> a",
                FileKind::Symlink,
                0o777,
                1,
            ),
        ] {
            let facts = PathFacts::of_ls(line).unwrap();
            assert_eq!(
                (facts.kind(), facts.mode(), facts.size),
                (kind, mode, size),
                "{line}"
            );
            assert_eq!(facts.mtime_ns, None);
        }
        assert_eq!(PathFacts::of_ls("ls: /a: No such file or directory"), None);
    }

    #[test]
    fn the_state_of_a_file_is_read_from_gnu_and_busybox_alike() {
        let line = "81a4 65024:77 26214400 1000000000 1000000001 2001-09-09 01:46:40.5 +0000 2001-09-09 01:46:41.5 +0000";
        let state = state_of(line, Some(1_000_000_003)).unwrap();
        assert_eq!(state.kind, FileKind::File);
        assert_eq!((state.identity, state.size), ((65024, 77), 26_214_400));
        assert_eq!(state.modified_ns, 1_000_000_000_500_000_000);
        assert!(state.is_settled());
        assert!(!state_of(line, Some(1_000_000_002)).unwrap().is_settled());
        assert!(!state_of(line, Some(999_999_999)).unwrap().is_settled());
        assert!(state_of(line, None).is_none());
        assert!(state_of("stat: bad format", Some(1)).is_none());
        // A write in the same second differs in the digits after the point.
        let later = line.replace("40.5", "40.6");
        assert!(!state.is_same(&state_of(&later, Some(1_000_000_009)).unwrap()));
        assert!(state.is_same(&state_of(line, Some(1_000_000_009)).unwrap()));
    }

    #[test]
    fn times_count_only_where_this_kernel_keeps_them() {
        for local in ["ef53", "794c7630", "1021994", "58465342", "9123683e"] {
            assert!(keeps_times(local), "{local}");
        }
        // NFS, FUSE, 9P, CIFS, and unknown ones.
        for other in ["6969", "65735546", "1021997", "ff534d42", "", "?"] {
            assert!(!keeps_times(other), "{other}");
        }
    }

    #[test]
    fn file_systems_with_generated_files_are_recognised() {
        assert!(is_pseudo("9fa0") && is_pseudo("62656572"));
        assert!(!is_pseudo("ef53") && !is_pseudo("") && !is_pseudo("?"));
    }
}
