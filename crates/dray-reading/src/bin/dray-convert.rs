//! A stand-alone worker, which tests, benchmarks and other programs start instead of a complete service.

fn main() -> std::process::ExitCode {
    dray_reading::worker::child(std::env::args_os()).unwrap_or(std::process::ExitCode::FAILURE)
}
