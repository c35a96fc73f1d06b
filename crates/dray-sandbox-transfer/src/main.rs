//! The sandbox-transfer service as a process of its own.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_sandbox_transfer::SandboxTransfer>()
}
