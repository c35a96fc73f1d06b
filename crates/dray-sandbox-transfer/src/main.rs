//! The sandbox-transfer service as a separate process.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_sandbox_transfer::SandboxTransfer>()
}
