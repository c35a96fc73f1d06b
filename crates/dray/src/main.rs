//! The program `dray`. Everything is in the library, which says why.

use std::process::ExitCode;

fn main() -> ExitCode {
    dray::run_program()
}
