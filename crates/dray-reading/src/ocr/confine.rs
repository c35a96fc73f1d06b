//! Confines the OCR program: it may only compute and read its own files and system files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    path_beneath_rules,
};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::worker::confine::{COMPUTE_SYSCALLS, allow_only, argument_compares};

/// Files that a dynamic linker and the C library read.
const SYSTEM_FILES: [&str; 6] = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/sys/devices/system/cpu",
];

/// Calls beyond computing: becoming the program, and reading files.
const PROGRAM_SYSCALLS: &[i64] = &[
    libc::SYS_execve,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_newfstatat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_mmap,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_lseek,
];

/// Requests of `fcntl` that neither signal another process nor change a file that it shares.
const DESCRIPTOR_REQUESTS: [i32; 5] = [
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
];

/// Confines this process and the program that replaces it. It can read only `program`'s own files and system files (if
/// the kernel has Landlock), and write only to the standard output and error. It cannot create processes, threads or
/// sockets, and cannot gain privileges.
pub(super) fn seal(program: &Path) -> io::Result<()> {
    // Landlock comes first, because the filter refuses its system calls.
    restrict_files(program)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = COMPUTE_SYSCALLS
        .iter()
        .chain(PROGRAM_SYSCALLS)
        .map(|call| (*call, Vec::new()))
        .collect();
    for call in [libc::SYS_clone, libc::SYS_clone3, libc::SYS_tgkill] {
        rules.remove(&call);
    }
    let own_process = argument_compares(0, SeccompCmpOp::Eq, u64::from(std::process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![own_process]);
    for call in [libc::SYS_write, libc::SYS_writev] {
        let standard_outputs = [
            argument_compares(0, SeccompCmpOp::Eq, 1)?,
            argument_compares(0, SeccompCmpOp::Eq, 2)?,
        ];
        rules.insert(call, standard_outputs.to_vec());
    }
    // Limits can be read and not set: those of any process of this user could be set otherwise.
    let own_limits = [
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0),
        // The address of a new limit is compared as a whole, since half of an address may be zero.
        SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0),
    ];
    let own_limits = own_limits.into_iter().collect::<Result<Vec<_>, _>>();
    let own_limits = own_limits
        .and_then(SeccompRule::new)
        .map_err(io::Error::other)?;
    rules.insert(libc::SYS_prlimit64, vec![own_limits]);
    let requests = DESCRIPTOR_REQUESTS
        .map(|request| argument_compares(1, SeccompCmpOp::Eq, u64::from(request.cast_unsigned())));
    rules.insert(
        libc::SYS_fcntl,
        requests.into_iter().collect::<io::Result<_>>()?,
    );
    // Opens files only for reading, and creates none.
    let writing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;
    let mask = u64::from(writing.cast_unsigned());
    rules.insert(
        libc::SYS_openat,
        vec![argument_compares(2, SeccompCmpOp::MaskedEq(mask), 0)?],
    );
    allow_only(rules)
}

/// Restricts reading to the program's own files and system files. Without Landlock, all files remain readable that the
/// user may read.
fn restrict_files(program: &Path) -> io::Result<()> {
    let access = AccessFs::from_read(ABI::V3);
    let readable: Vec<PathBuf> = SYSTEM_FILES
        .iter()
        .map(PathBuf::from)
        .chain(own_files(program))
        .filter(|path| path.exists())
        .collect();
    // Best effort is the default of the crate: older kernels enforce the access rights that they support.
    Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V3))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(readable, access)))
        .and_then(landlock::RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    Ok(())
}

/// Where a program keeps its files: `/opt/ocr` for `/opt/ocr/bin/tesseract`; otherwise only the program itself.
fn own_files(program: &Path) -> Vec<PathBuf> {
    let directory = program.parent();
    let prefix = directory
        .filter(|directory| directory.file_name().is_some_and(|name| name == "bin"))
        .and_then(Path::parent)
        // `/bin/tesseract` would open `/`, which is every file.
        .filter(|prefix| prefix.parent().is_some());
    vec![prefix.unwrap_or(program).to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_reads_its_own_prefix_and_never_the_whole_system() {
        let own = |program: &str| own_files(Path::new(program));
        assert_eq!(own("/opt/ocr/bin/tesseract"), [Path::new("/opt/ocr")]);
        assert_eq!(own("/bin/tesseract"), [Path::new("/bin/tesseract")]);
        assert_eq!(own("/home/me/tesseract"), [Path::new("/home/me/tesseract")]);
    }

    /// The filter and the rules apply to the thread that installs them.
    #[test]
    fn a_confined_thread_reads_the_system_only_and_has_no_network() {
        use std::fs::File;
        use std::io::ErrorKind::PermissionDenied;
        use std::net::TcpListener;

        let secret = tempfile::NamedTempFile::new().unwrap();
        let path = secret.path().to_owned();
        let refused = std::thread::spawn(move || {
            seal(Path::new("/bin/sh")).unwrap();
            assert!(File::open("/usr").is_ok());
            [
                File::open(&path).map(drop),
                File::create(path.with_extension("new")).map(drop),
                TcpListener::bind("127.0.0.1:0").map(drop),
                std::thread::Builder::new().spawn(|| {}).map(drop),
            ]
            .map(|tried| tried.unwrap_err().kind())
        });
        assert_eq!(refused.join().unwrap(), [PermissionDenied; 4]);
    }

    #[test]
    fn a_confined_thread_changes_no_limit_and_no_shared_file() {
        use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
        use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd};
        use rustix::process::{Resource, getpid, getppid, getrlimit, prlimit, setrlimit};

        let limits = std::thread::spawn(|| {
            let (pipe, _writer) = io::pipe().unwrap();
            let unchanged = getrlimit(Resource::Nofile);
            let processes = [getppid(), Some(getpid())];
            seal(Path::new("/bin/sh")).unwrap();
            assert_eq!(getrlimit(Resource::Nofile), unchanged);
            fcntl_getfd(&pipe).unwrap();
            fcntl_dupfd_cloexec(&pipe, 0).unwrap();
            let flags = fcntl_getfl(&pipe).unwrap();
            let by_id = processes.map(|process| prlimit(process, Resource::Nofile, unchanged));
            let by_id = by_id.map(|tried| tried.map(drop));
            let own = setrlimit(Resource::Nofile, unchanged);
            let asynchronous = OFlags::from_bits_retain(libc::O_ASYNC.cast_unsigned());
            let signals = fcntl_setfl(&pipe, flags | asynchronous);
            for tried in by_id.into_iter().chain([own, signals]) {
                assert_eq!(tried, Err(Errno::PERM));
            }
        });
        limits.join().unwrap();
    }
}
