//! `dray doctor`: finds problems of this machine or a running system, each with its remedy.
//!
//! It makes no lasting change: it writes a key to the bus and probe objects to the store and removes them, asks
//! services for objects that do not exist, and opens the configured listeners for a moment.

mod accounts;
mod clock;
mod directories;
mod egress_files;
mod engine;
mod finding;
mod grpc_files;
mod listeners;
mod machine;
mod names;
mod policy_bucket;
mod policy_replicas;
mod sweeper;
mod system;

use std::time::Duration;

use dray_service::config::LoadedConfig;
use dray_service::settings::{
    BusMode, BusSection, GrpcSection, HttpSection, LimitsSection, StateSection,
};
use dray_types::Clock;
use serde_json::json;

use self::finding::{Finding, FindingLevel};
use self::listeners::ListenAddress;
use crate::cli::{DoctorArgs, GlobalOptions};
use crate::context;
use crate::outcome::{CommandFailure, print_line, print_styled_line};

/// Runs all checks and prints their findings. Fails if one of them is a problem.
pub(crate) async fn run(global: &GlobalOptions, doctor: &DoctorArgs) -> Result<(), CommandFailure> {
    let findings = Box::pin(examine(global, doctor)).await?;
    report(global, &findings);
    let worst = findings.iter().map(|finding| finding.level).max();
    if worst == Some(FindingLevel::Problem) {
        return Err(CommandFailure::Reported);
    }
    Ok(())
}

async fn examine(
    global: &GlobalOptions,
    doctor: &DoctorArgs,
) -> Result<Vec<Finding>, CommandFailure> {
    let limit = Duration::from_secs(doctor.timeout);
    let tenant = context::tenant_of(global)?;
    let mut findings = vec![
        machine::check_versions(),
        machine::check_clock(),
        machine::check_open_files(),
        machine::check_memory(),
    ];
    // A wrong command line is an error. A wrong configuration is not: this command reports it.
    let sources = context::with_home(context::config_sources(global)?);
    let loaded = match sources.and_then(|sources| context::load_service_config(&sources)) {
        Ok(loaded) => loaded,
        Err(failure @ CommandFailure::Configuration(_)) => {
            findings.push(Finding::problem(
                "configuration",
                failure.to_string(),
                "Correct the values that are named; docs/configuration.md describes each.",
            ));
            return Ok(findings);
        }
        Err(other) => return Err(other),
    };
    findings.extend(check_configuration(&loaded)?);
    let state: StateSection = context::config_section(&loaded, "state")?;
    let limits: LimitsSection = context::config_section(&loaded, "limits")?;
    let egress: dray_egress_fetcher::Config = context::config_section(&loaded, "egress-fetcher")?;
    let resolver: dray_file_resolver::Config = context::config_section(&loaded, "file-resolver")?;
    let transfer: dray_sandbox_transfer::Config =
        context::config_section(&loaded, "sandbox-transfer")?;
    findings.extend(machine::check_state(&state, &limits));
    findings.extend(directories::check_directories(
        &resolver, &transfer, &limits,
    ));
    let chat: dray_orchestrator::Config = context::config_section(&loaded, "orchestrator")?;
    findings.extend(chat.manifests.as_deref().map(directories::check_manifests));
    findings.extend(engine::check_engine(&transfer));
    findings.extend(check_listeners(&loaded, doctor, &egress, &transfer).await?);
    findings.push(machine::check_reading(limit).await);
    findings.extend(egress_files::check_egress_files(&egress).await);
    let grpc: GrpcSection = context::config_section(&loaded, "grpc")?;
    findings.extend(grpc_files::check_files(&grpc, &Clock::system()).await);
    findings.extend(names::check_name_servers(&egress, limit).await);
    findings.extend(system::check_bus(&loaded, &tenant, doctor).await?);
    findings.extend(system::check_store(&loaded, limit).await?);
    Ok(findings)
}

/// Checks the addresses of all services, which `dray up` opens in one process.
async fn check_listeners(
    loaded: &LoadedConfig,
    doctor: &DoctorArgs,
    egress: &dray_egress_fetcher::Config,
    transfer: &dray_sandbox_transfer::Config,
) -> Result<Vec<Finding>, CommandFailure> {
    let http: HttpSection = context::config_section(loaded, "http")?;
    let grpc: GrpcSection = context::config_section(loaded, "grpc")?;
    let delivery: dray_platform_delivery::Config =
        context::config_section(loaded, "platform-delivery")?;
    let chat: dray_orchestrator::Config = context::config_section(loaded, "orchestrator")?;
    let addresses = [
        ListenAddress::of("http.listen", http.listen),
        ListenAddress::of("grpc.listen", grpc.listen),
        ListenAddress::of("egress-fetcher.proxy.listen", egress.proxy.listen),
        ListenAddress::of("sandbox-transfer.preview.listen", transfer.preview.listen),
        ListenAddress::of("platform-delivery.listen", delivery.listen),
        ListenAddress::of("orchestrator.listen", Some(chat.listen)),
        ListenAddress::of("--console", doctor.console),
        ListenAddress::of("--tickets", doctor.tickets),
        ListenAddress::of("--mcp", doctor.mcp),
    ];
    let addresses = addresses.into_iter().flatten().collect();
    let limit = Duration::from_secs(doctor.timeout);
    Ok(listeners::check_listeners(addresses, http.listen, limit).await)
}

fn check_configuration(loaded: &LoadedConfig) -> Result<Vec<Finding>, CommandFailure> {
    let warn = |text: &String| {
        Finding::warning(
            "configuration",
            text,
            "Rename or remove it; `dray config show` prints every value with its source.",
        )
    };
    let mut findings: Vec<_> = loaded.warnings().iter().map(warn).collect();
    if let Err(failure) = context::check_accounts(loaded) {
        let advice = "Correct the accounts that are named; docs/platforms/ describes the settings of each platform.";
        let bus: BusSection = context::config_section(loaded, "bus")?;
        findings.push(match bus.mode {
            BusMode::Embedded => Finding::problem("configuration", failure.to_string(), advice),
            // The services of a running system may have secrets that this machine has not.
            BusMode::Nats => Finding::warning("configuration", failure.to_string(), advice),
        });
    }
    if findings.is_empty() {
        findings.push(Finding::good("configuration", "it is valid"));
    }
    Ok(findings)
}

fn report(global: &GlobalOptions, findings: &[Finding]) {
    let count = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    let (problems, warnings) = (count(FindingLevel::Problem), count(FindingLevel::Warning));
    if global.json {
        let all: Vec<_> = findings.iter().map(Finding::to_json).collect();
        print_line(
            &json!({ "problems": problems, "warnings": warnings, "findings": all }).to_string(),
        );
        return;
    }
    for finding in findings {
        print_styled_line(&finding.to_text());
    }
    print_line(&format!(
        "{}, {}",
        count_text(problems, "problem"),
        count_text(warnings, "warning")
    ));
}

/// A number with its noun: `1 problem`, `2 problems`.
fn count_text(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
