//! Restricts a worker before it reads the file: limits of memory, time and descriptors, and a filter that refuses every
//! system call except those for its own memory, the open file and the pipe.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use dray_documents::limits::Limits;
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Seconds of processor time beyond the limit of time; the parent enforces the wall-clock time.
const SPARE_SECONDS: u64 = 2;
/// Descriptors: the three standard ones, the file again, and a few that libraries open for a moment.
const MAX_DESCRIPTORS: u64 = 16;

/// Ends this process together with its parent, because its result then has no receiver.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Sets the limits of the process.
pub(crate) fn set_limits(limits: &Limits) -> io::Result<()> {
    let set = |resource, wanted: u64| {
        let limit = lower_limit(wanted, getrlimit(resource).maximum);
        setrlimit(
            resource,
            // Both limits are set, since a process may raise the soft one up to the hard one.
            Rlimit {
                current: Some(limit),
                maximum: Some(limit),
            },
        )
    };
    set(Resource::As, limits.memory_bytes)?;
    set(Resource::Cpu, limits.wall_ms.div_ceil(1000) + SPARE_SECONDS)?;
    set(Resource::Core, 0)?;
    // The result is written to a pipe, to which this limit does not apply.
    set(Resource::Fsize, 0)?;
    set(Resource::Nofile, MAX_DESCRIPTORS)?;
    Ok(())
}

/// The wanted limit, or a lower hard limit that was set from outside, which only the superuser may raise.
fn lower_limit(wanted: u64, outer: Option<u64>) -> u64 {
    outer.map_or(wanted, |outer| wanted.min(outer))
}

/// Allows only the system calls that a computation needs. Others fail with `EPERM` and do not end the process, because
/// libraries also make optional calls. The process cannot gain privileges afterwards.
///
/// Only `file` can be read, and only the standard output and error can be written. The program that started the parent
/// may have left other descriptors open, which this process inherits and a document must not use.
pub(super) fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = COMPUTE_SYSCALLS
        .iter()
        .map(|call| (*call, Vec::new()))
        .collect();
    // An abort is a signal to the own process; signals to other processes are refused.
    rules.insert(
        libc::SYS_tgkill,
        vec![argument_is(0, std::process::id().cast_signed())?],
    );
    for call in READ_SYSCALLS {
        rules.insert(*call, vec![argument_is(0, file.as_raw_fd())?]);
    }
    for call in WRITE_SYSCALLS {
        rules.insert(*call, vec![argument_is(0, 1)?, argument_is(0, 2)?]);
    }
    // New threads alone: a process would have limits of its own.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(
        libc::SYS_clone,
        vec![argument_compares(
            0,
            SeccompCmpOp::MaskedEq(thread),
            thread,
        )?],
    );
    refuse_clone3()?;
    // Anonymous memory alone, which has the descriptor -1: a file mapping reads without a read call.
    rules.insert(libc::SYS_mmap, vec![argument_is(4, -1)?]);
    allow_only(rules)
}

/// Makes `clone3` look missing: a filter cannot read its flags, and the C library then uses `clone`.
fn refuse_clone3() -> io::Result<()> {
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(rules, SeccompAction::Allow, missing)
}

/// From now on, a system call that matches no rule fails with `EPERM`, in this thread and in those that it starts.
pub(crate) fn allow_only(rules: BTreeMap<i64, Vec<SeccompRule>>) -> io::Result<()> {
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    apply(rules, refuse, SeccompAction::Allow)
}

/// Adds a filter: system calls that match a rule get the action `matching`, all others `other`. Of several filters, the
/// strictest action counts.
fn apply(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    matching: SeccompAction,
) -> io::Result<()> {
    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let filter =
        SeccompFilter::new(rules, other, matching, architecture).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// A rule for calls whose argument at this position is `number`.
fn argument_is(argument: u8, number: i32) -> io::Result<SeccompRule> {
    argument_compares(
        argument,
        SeccompCmpOp::Eq,
        u64::from(number.cast_unsigned()),
    )
}

/// A rule for calls whose argument at this position has this relation to `value`, by its lower 32 bits.
pub(crate) fn argument_compares(
    argument: u8,
    comparison: SeccompCmpOp,
    value: u64,
) -> io::Result<SeccompRule> {
    // Callers sign-extend or zero-extend a C `int`; only the lower half of the register is defined.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)
}

/// System calls that are allowed only on the descriptor of the document.
const READ_SYSCALLS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_lseek,
];

/// System calls that are allowed only on the standard output and error.
const WRITE_SYSCALLS: &[i64] = &[libc::SYS_write, libc::SYS_writev];

/// System calls for own memory, threads, time, random numbers and exit.
pub(crate) const COMPUTE_SYSCALLS: &[i64] = &[
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{ErrorKind, Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::*;

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn existing_lower_limits_are_kept() {
        assert_eq!(lower_limit(17, None), 17);
        assert_eq!(lower_limit(17, Some(5)), 5);
        assert_eq!(lower_limit(17, Some(90)), 17);
    }

    #[test]
    fn a_descriptor_that_was_left_open_cannot_be_used() {
        let (mut document, mut other) = (file("words"), file("secret"));
        // The filter applies to the thread that installs it.
        let sealed = std::thread::spawn(move || {
            seal(document.as_fd()).unwrap();
            let mut text = String::new();
            let refused = [
                other.read_to_string(&mut text).unwrap_err().kind(),
                other.write_all(b"x").unwrap_err().kind(),
                document.write_all(b"x").unwrap_err().kind(),
            ];
            document.read_to_string(&mut text).unwrap();
            (refused, text)
        });
        let (refused, text) = sealed.join().unwrap();
        assert_eq!(refused, [ErrorKind::PermissionDenied; 3]);
        assert_eq!(text, "words");
    }

    /// A sealed thread reads its document and reaches nothing else; the filter applies only to the thread.
    #[test]
    fn a_confined_thread_reads_its_document_and_reaches_nothing_else() {
        use std::net::{TcpStream, UdpSocket};

        let mut document = file("text");
        let mut other = file("secret");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sealed = std::thread::spawn(move || {
            seal(document.as_fd()).unwrap();
            let mut text = [0; 4];
            let read = document.read(&mut text).map(|_| text);
            let refused = [
                File::open("/etc/hostname").map(drop),
                File::create("/tmp/sealed").map(drop),
                other.read(&mut [0; 6]).map(drop),
                document.write(b"x").map(drop),
                TcpStream::connect(address).map(drop),
                UdpSocket::bind("127.0.0.1:0").map(drop),
                std::process::Command::new("/bin/true").spawn().map(drop),
            ];
            (
                read,
                refused.map(|tried| tried.map_err(|error| error.raw_os_error())),
            )
        });
        let (read, refused) = sealed.join().unwrap();
        assert_eq!(&read.unwrap(), b"text");
        for (number, tried) in refused.into_iter().enumerate() {
            assert_eq!(tried, Err(Some(libc::EPERM)), "{number}");
        }
        assert!(!std::path::Path::new("/tmp/sealed").exists());
    }

    #[test]
    fn a_confined_thread_starts_threads_and_no_process() {
        let (report, reported) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let sealed = std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            seal(file("").as_fd()).unwrap();
            std::thread::spawn(|| {}).join().unwrap();
            // The call fails also in a new process, which cannot become the program.
            let spawned = std::process::Command::new("/bin/true").spawn();
            report.send((own, spawned.is_err())).unwrap();
            ended.recv().unwrap_err();
        });
        let (own, failed) = reported.recv().unwrap();
        let path = std::path::Path::new("/proc").join(own).join("children");
        let children = std::fs::read_to_string(path).unwrap();
        drop(end);
        sealed.join().unwrap();
        assert_eq!((children.as_str(), failed), ("", true));
    }
}
