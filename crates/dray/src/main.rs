//! The program `dray`. Everything is in the library, which says why.

use std::process::ExitCode;

/// The allocator of a static program. The one of musl takes one lock for all threads, and each call of it is slower.
#[cfg(target_env = "musl")]
#[global_allocator]
static GLOBAL_ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    dray::run_program()
}
