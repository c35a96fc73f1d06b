//! What a worker gives up before it touches the file: memory, time, new descriptors, and every system call that
//! reaches beyond its own memory, the open file and the pipe.

use std::collections::BTreeMap;
use std::io;

use dray_documents::limits::Limits;
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Seconds of processor time beyond the limit of time; the parent looks at the clock.
const SPARE_SECONDS: u64 = 2;
/// Descriptors: the three standard ones, the file again, and a few that libraries open for a moment.
const DESCRIPTORS: u64 = 16;

/// Sets the limits of the process.
pub(super) fn limit(limits: &Limits) -> io::Result<()> {
    let set = |resource, most: u64| {
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
    };
    set(Resource::As, limits.memory_bytes)?;
    set(Resource::Cpu, limits.wall_ms.div_ceil(1000) + SPARE_SECONDS)?;
    set(Resource::Core, 0)?;
    set(Resource::Fsize, 0)?;
    set(Resource::Nofile, DESCRIPTORS)?;
    Ok(())
}

/// Leaves only the system calls that computing needs. Any other one fails with `EPERM` instead of ending the process:
/// libraries ask for things that they can do without. New privileges are given up with it.
pub(super) fn seal() -> io::Result<()> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    // An abort is a signal to oneself; signals to anybody else are not computing.
    let me = u64::from(std::process::id());
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, me)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)?;
    rules.insert(libc::SYS_tgkill, vec![own]);
    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture)
        .map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)
}

/// Reading and writing what is open, memory, threads, time, random numbers, ending.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_mmap,
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
