//! The file-resolver as a separate process.

fn main() -> std::process::ExitCode {
    // A conversion starts this executable again as a worker process.
    if let Some(code) = dray_reading::worker::child(std::env::args_os()) {
        return code;
    }
    dray_service::main::<dray_file_resolver::FileResolver>()
}
