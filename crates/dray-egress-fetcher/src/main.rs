//! The egress fetcher as a separate process.

fn main() -> std::process::ExitCode {
    dray_service::main::<dray_egress_fetcher::EgressFetcher>()
}
