//! `dray dlq` on the command line.

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand};
use dray_bus::dead::LetterState;
use dray_types::{FaultCode, Period, TenantId};

/// Parses a number above 0.
fn limit_parser() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// `dray dlq`
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters, newest last, with their state: open, restarted, resolved or unknown.
    List {
        /// Most letters to list.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit_parser())]
        limit: usize,
        #[command(flatten)]
        filter: DlqFilter,
    },
    /// Show one dead letter.
    Show {
        /// The dead letter's sequence, from `list`.
        sequence: u64,
    },
    /// Start the work of dead letters again: of those named, or of the open ones that the filters select. Work that was
    /// started again before or is done is skipped.
    Redrive {
        /// Sequences of dead letters, from `list`.
        #[arg(value_name = "SEQUENCE")]
        sequences: Vec<u64>,
        #[command(flatten)]
        filter: DlqFilter,
        /// Start every open dead letter again.
        #[arg(long)]
        all: bool,
        /// Print what would be started again, and do nothing.
        #[arg(long)]
        dry_run: bool,
        /// Most letters to restart.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = limit_parser())]
        limit: usize,
    },
}

/// Which dead letters are meant; several options must all match.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DlqFilter {
    /// Only letters of this tenant, in place of that of --tenant.
    #[arg(long, value_name = "TENANT")]
    pub(crate) of_tenant: Option<TenantId>,
    /// Only letters of this area of work, for example `toolcall`.
    #[arg(long, value_name = "AREA")]
    pub(crate) area: Option<String>,
    /// Only letters that failed with this code, for example `unavailable`.
    #[arg(long, value_name = "CODE", value_parser = fault_code)]
    pub(crate) code: Option<FaultCode>,
    /// Only letters that failed with this detail, for example `no_responder`.
    #[arg(long, value_name = "DETAIL")]
    pub(crate) detail: Option<String>,
    /// Only letters in this state: open, restarted, resolved or unknown. Can be given several times.
    #[arg(long = "in-state", value_name = "STATE", value_parser = letter_state)]
    pub(crate) states: Vec<LetterState>,
    /// Only letters that failed within this time, for example `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) newer_than: Option<Period>,
    /// Only letters that failed longer ago than this, for example `10m`.
    #[arg(long, value_name = "TIME")]
    pub(crate) older_than: Option<Period>,
}

fn fault_code(name: &str) -> Result<FaultCode, String> {
    // The code is parsed by hand instead of by `ValueEnum`: the codes are defined outside of this crate.
    let found = FaultCode::ALL_CODES
        .into_iter()
        .find(|code| code.as_str() == name);
    found.ok_or_else(|| {
        let names = FaultCode::ALL_CODES.map(FaultCode::as_str).join(", ");
        format!("must be one of {names}")
    })
}

fn letter_state(name: &str) -> Result<LetterState, String> {
    let found = LetterState::ALL_STATES
        .into_iter()
        .find(|state| state.as_str() == name);
    found.ok_or_else(|| {
        let names = LetterState::ALL_STATES.map(LetterState::as_str).join(", ");
        format!("must be one of {names}")
    })
}
