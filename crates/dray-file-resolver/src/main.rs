//! The file-resolver as a process of its own.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_file_resolver::FileResolver>()
}
