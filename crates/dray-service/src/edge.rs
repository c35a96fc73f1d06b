//! The edge of a service's binary: arguments, runtime, signals, exit status.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::config::{ConfigSources, Environment, FieldOverride};
use crate::host::{ErrorChain, Host, HostError, RunningHost};
use crate::stop_signals::StopSignals;
use crate::{Service, Settings};

/// How a process ended, as its exit status (see [`Self::code`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// 0: stopped in order.
    Success,
    /// 1: could not start, or did not stop in order: the grace period ended, or a second signal arrived.
    Failure,
    /// 2: the command line is not valid.
    Usage,
    /// 78: the configuration is not valid (`EX_CONFIG` of sysexits).
    Config,
}

impl ExitStatus {
    /// The number that the operating system gets.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Config => 78,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

impl HostError {
    /// The exit status of a process that could not start for this reason.
    pub const fn exit_status(&self) -> ExitStatus {
        match self {
            // The memory limits count as configuration: the remedy is another value in the configuration, not another
            // attempt.
            Self::Config(_) | Self::Memory(_) | Self::GrpcSecurity(_) => ExitStatus::Config,
            Self::UnknownService { .. } => ExitStatus::Usage,
            Self::Twice(_)
            | Self::DuplicateCallHandler(_)
            | Self::TwoKindsOfWork(_)
            | Self::Telemetry(_)
            | Self::Bind { .. }
            | Self::State { .. }
            | Self::Bus(_)
            | Self::Store(_)
            | Self::Topology(_)
            | Self::Service { .. }
            | Self::Subscribe(_)
            | Self::Grpc(_)
            | Self::Signal(_)
            | Self::Runtime(_) => ExitStatus::Failure,
        }
    }
}

/// Exit status: 0 stopped in order, 1 failure or cut short, 2 wrong command line, 78 wrong configuration.
#[derive(Debug, Parser)]
struct ServiceArguments {
    /// Read the configuration from this TOML file. Without it, the variable `DRAY_CONFIG` may name one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, with precedence over all other sources. Can be given several times.
    #[arg(long, value_name = "SECTION.FIELD=VALUE")]
    set: Vec<FieldOverride>,
    /// Check the configuration, print it with the source of every value, and exit.
    #[arg(long)]
    check: bool,
}

/// The complete `main` of a service: reads arguments, environment and file, runs the service until SIGTERM, SIGINT
/// or SIGHUP and stops it in order. A second signal ends the process immediately. See [`ExitStatus`].
pub fn main<S: Service>() -> ExitCode {
    let arguments = match ServiceArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // `--help` and `--version` are errors for the parser, too; their text goes to standard output.
            let is_requested = !error.use_stderr();
            // Help that cannot be printed has no reader.
            let _ = error.print();
            return if is_requested {
                ExitStatus::Success
            } else {
                ExitStatus::Usage
            }
            .into();
        }
    };
    let sources = ConfigSources {
        file: arguments.config,
        environment: Environment::from_process(),
        overrides: arguments.set,
    };
    let host = Host::new(Settings::new(sources)).with::<S>();
    let status = if arguments.check {
        check_config(&host)
    } else {
        run_host(host.install_subscriber())
    };
    status.into()
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the edge of a binary"
)]
fn check_config(host: &Host) -> ExitStatus {
    match host.load() {
        Ok(loaded) => {
            for warning in loaded.warnings() {
                eprintln!("warning: {warning}");
            }
            print!("{}", loaded.report());
            ExitStatus::Success
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitStatus::Config
        }
    }
}

/// Runs a host on its own runtime until a signal, and returns the exit status. Errors go to standard error.
pub fn run_host(host: Host) -> ExitStatus {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(HostError::Runtime);
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(serve_until_signal(host));
        // Tasks that still run are abandoned on purpose: waiting for blocking threads could delay the exit without a
        // limit.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(status) => status,
        Err(error) => {
            print_error(&error);
            error.exit_status()
        }
    }
}

#[expect(clippy::print_stderr, reason = "the edge of a binary")]
fn print_error(error: &HostError) {
    eprintln!("error: {}", ErrorChain(error));
}

/// Starts a host, waits for SIGTERM, SIGINT or SIGHUP, and stops it in order. A second signal returns immediately; the
/// caller is expected to exit then.
pub async fn serve_until_signal(host: Host) -> Result<ExitStatus, HostError> {
    serve_with(host, |_| ()).await
}

/// Runs a host as [`serve_until_signal`] does, and calls `started` once everything serves.
pub async fn serve_with(
    host: Host,
    started: impl FnOnce(&RunningHost),
) -> Result<ExitStatus, HostError> {
    // The signals are handled from before the start, which can take minutes: the default action of a signal would kill
    // the process half way.
    let mut signals = StopSignals::listen().map_err(HostError::Signal)?;
    let running = tokio::select! {
        running = host.start() => running?,
        // The drop of the start closes all that it had opened.
        _ = signals.next() => return Ok(ExitStatus::Failure),
    };
    running.mark_long_lived();
    started(&running);
    signals.next().await;
    // The second signal is caught, too, so that the exit status shows that the stop did not complete.
    tokio::select! {
        status = stop_host(running) => Ok(status),
        _ = signals.next() => {
            tracing::warn!("second signal; ending immediately");
            Ok(ExitStatus::Failure)
        }
    }
}

async fn stop_host(running: RunningHost) -> ExitStatus {
    if running.stop().await.cut_short {
        ExitStatus::Failure
    } else {
        ExitStatus::Success
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_read_and_wrong_ones_are_usage_errors() {
        ServiceArguments::command().debug_assert();
        let read = |arguments: &[&str]| ServiceArguments::try_parse_from(arguments);
        let arguments = read(&[
            "x", "--config", "f.toml", "--set", "a.b=1", "--set", "a.c=2", "--check",
        ])
        .unwrap();
        assert_eq!(arguments.config, Some("f.toml".into()));
        assert_eq!(arguments.set.len(), 2);
        assert!(arguments.check);
        for wrong in [
            ["x", "--set", "nothing"],
            ["x", "--no", "y"],
            ["x", "y", "z"],
        ] {
            assert!(read(&wrong).unwrap_err().use_stderr(), "{wrong:?}");
        }
    }

    #[test]
    fn exit_statuses_are_the_documented_numbers() {
        let statuses = [
            ExitStatus::Success,
            ExitStatus::Failure,
            ExitStatus::Usage,
            ExitStatus::Config,
        ];
        assert_eq!(statuses.map(ExitStatus::code), [0, 1, 2, 78]);
    }
}
