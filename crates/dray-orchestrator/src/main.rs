//! The orchestrator as a separate process.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_orchestrator::Orchestrator>()
}
