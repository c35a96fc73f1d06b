//! The orchestrator as a process of its own.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_orchestrator::Orchestrator>()
}
