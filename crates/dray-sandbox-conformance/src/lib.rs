//! The conformance suite: one set of cases that every backend must pass (sandbox-transfer R-17).
//!
//! A backend writes a [`Fixture`] for its sandbox and calls [`run_all`]. Every case gets a separate directory. A
//! case that does not apply to the sandbox, for instance because no command can create a link in it, is reported as
//! skipped. The backend's test lists the expected skips, so that no case is left out silently.
//!
//! [`fake`] is a sandbox in memory for tests of the code above a backend.
//!
//! ```no_run
//! use dray_sandbox_conformance::{CaseFailures, Fixture, run_all};
//!
//! async fn a_sandbox_passes_the_conformance_suite(fixture: &dyn Fixture) -> Result<(), CaseFailures> {
//!     let report = run_all(fixture).await?;
//!     assert_eq!(report.skipped, ["access_without_permission_is_refused"]);
//!     Ok(())
//! }
//! ```
//!
//! The suite does not start a sandbox. It is not a part of the product: crates use it only in their tests.

mod bytes;
mod changes;
mod commands;
mod context;
mod directories;
mod engine;
mod expect;
pub mod fake;
mod handles;
mod hostile;
mod names;
mod partial;
mod proof;
mod renames;
mod stats;
mod streams;
mod trees;
mod views;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

pub use context::CaseContext;
pub use dray_conformance::{CaseEnd, CaseFailures, ConformanceReport};

use dray_conformance::case_list;
use dray_sandbox::backend::Backend;
use dray_sandbox::handle::Address;
use dray_sandbox::path::SandboxPath;

/// A sandbox for the cases, and a second access to it, independent of the backend under test.
#[async_trait]
pub trait Fixture: Debug + Send + Sync {
    /// The backend under test.
    fn backend(&self) -> Arc<dyn Backend>;

    /// Address of the sandbox under test.
    fn address(&self) -> Address;

    /// An empty directory in the sandbox that the sandbox user may write to.
    fn workspace(&self) -> SandboxPath;

    /// Runs a script with `sh` in a directory of the sandbox, by other means than the backend, and returns what it
    /// printed. Scripts use relative paths and what `BusyBox` has. `None` when no program can be run there.
    async fn sh(&self, directory: &SandboxPath, script: &str) -> Option<String>;

    /// The capabilities of this sandbox.
    fn traits(&self) -> SandboxTraits {
        SandboxTraits::default()
    }

    /// Ends the sandbox and starts another that has the same address and an empty workspace. `false` when it cannot.
    async fn replace(&self) -> bool {
        false
    }
}

/// Capabilities of a backend that cases depend on. The default is all of them; a fixture removes those that its wire
/// cannot carry, with the reason.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent property of a sandbox"
)]
#[derive(Clone, Copy, Debug)]
pub struct SandboxTraits {
    /// Whether names that are not UTF-8 are supported; if not, they give `invalid_name`.
    pub byte_names: bool,
    /// Whether symbolic links exist and are distinguished from their targets.
    pub links: bool,
    /// Whether named pipes exist and are distinguished from files.
    pub fifo: bool,
    /// Whether files get the requested mode bits.
    pub modes: bool,
    /// Whether reads and writes are made with the rights of the sandbox user, not of a daemon.
    pub permissions: bool,
    /// Whether a path that was replaced between `stat` and `read` is always detected.
    pub identity: bool,
    /// Whether a file can be renamed.
    pub rename: bool,
    /// Whether a digest can be computed in the sandbox.
    pub fingerprint: bool,
    /// Whether programs can be run.
    pub commands: bool,
    /// Whether the output of a program arrives while it runs.
    pub live_output: bool,
}

impl Default for SandboxTraits {
    fn default() -> Self {
        Self {
            byte_names: true,
            links: true,
            fifo: true,
            modes: true,
            permissions: true,
            identity: true,
            rename: true,
            fingerprint: true,
            commands: true,
            live_output: true,
        }
    }
}

/// One case: an asynchronous function of its context.
pub type Case = for<'a> fn(&'a CaseContext<'a>) -> BoxFuture<'a, Result<(), CaseEnd>>;

/// All cases by name, in the order in which [`run_all`] runs them; the last one ends the sandbox.
pub const CONFORMANCE_CASES: &[(&str, Case)] = case_list![
    handles::a_probe_reports_transports_and_handle,
    handles::a_name_without_a_sandbox_is_gone,
    bytes::every_size_comes_back_by_every_transport,
    bytes::five_mebibytes_come_back_by_every_transport,
    bytes::an_existing_file_is_never_written_to,
    bytes::nothing_is_written_through_a_link,
    bytes::a_short_body_is_a_failure,
    bytes::a_long_body_is_a_failure,
    bytes::a_body_that_breaks_is_a_failure,
    bytes::written_files_have_the_mode_and_the_owner,
    bytes::nothing_is_written_below_a_file,
    bytes::digests_are_those_of_the_bytes,
    bytes::eight_transfers_run_concurrently,
    partial::a_read_begins_at_the_given_offset,
    partial::a_write_continues_where_it_was_cut,
    partial::a_dropped_read_leaves_the_sandbox_usable,
    partial::a_dropped_write_leaves_the_sandbox_usable,
    stats::files_and_directories_are_described,
    stats::links_are_distinguished_and_followed,
    stats::links_in_a_path_are_resolved,
    stats::a_link_to_nowhere_is_a_link_and_not_found,
    stats::a_loop_of_links_is_a_loop,
    stats::a_missing_entry_is_not_found,
    stats::times_are_those_of_the_sandbox,
    directories::a_listing_has_everything_in_order,
    directories::a_listing_is_as_deep_as_requested,
    directories::a_listing_follows_no_link,
    directories::a_listing_stops_at_its_limit,
    directories::only_directories_are_listed,
    directories::directories_are_made_with_their_parents,
    directories::several_directories_are_made_with_their_parents,
    directories::files_and_links_are_removed,
    directories::directories_are_removed_only_on_request,
    names::every_name_survives,
    names::names_that_are_not_text_survive_or_are_refused,
    names::the_longest_name_is_a_name,
    names::directories_may_have_any_name_too,
    renames::a_file_is_renamed,
    renames::an_existing_target_is_kept,
    renames::a_target_is_replaced_on_request,
    renames::one_of_two_renames_wins,
    hostile::a_fifo_is_refused_and_never_waited_for,
    hostile::a_directory_is_not_read,
    hostile::devices_and_pseudo_files_are_not_read,
    hostile::a_path_swapped_after_the_check_is_noticed,
    hostile::a_link_put_in_place_after_the_check_is_not_followed,
    hostile::access_without_permission_is_refused,
    changes::a_file_that_shrinks_is_never_read_short_without_an_error,
    changes::a_file_that_grows_is_cut_or_refused,
    changes::a_file_that_is_rewritten_keeps_its_length,
    changes::a_file_that_is_removed_is_whole_or_refused,
    changes::a_modification_time_that_was_set_back_changes_the_marker,
    trees::a_tree_comes_out_whole,
    trees::only_directories_come_as_trees,
    trees::a_tree_goes_in_whole,
    trees::a_broken_tar_is_a_failure,
    trees::a_tree_does_not_go_through_a_link,
    engine::a_file_comes_out_with_its_proof,
    engine::a_file_goes_in_with_its_proof,
    proof::a_large_file_comes_out_with_its_proof,
    engine::a_put_that_fails_leaves_nothing,
    engine::a_file_rewritten_during_a_read_is_never_torn,
    views::a_range_is_that_part_of_the_file,
    views::a_view_of_a_file_that_changed_breaks_off,
    views::a_link_that_leads_out_is_not_viewed,
    commands::a_program_ends_with_its_status,
    commands::a_signal_is_part_of_the_status,
    commands::input_reaches_the_program,
    commands::much_input_arrives_or_is_refused,
    commands::input_that_breaks_is_a_failure,
    commands::variables_reach_the_program,
    commands::arguments_reach_the_program_as_they_are,
    commands::long_output_comes_whole_or_is_cut,
    commands::output_may_be_any_bytes,
    commands::standard_error_is_kept_apart,
    commands::a_program_runs_in_its_directory,
    commands::an_unknown_program_is_refused,
    commands::an_ambiguous_request_is_refused,
    commands::a_dropped_program_ends_with_its_children,
    commands::children_end_with_their_program,
    commands::output_of_a_child_does_not_delay_the_end_of_its_program,
    commands::a_program_ends_with_its_lifetime,
    commands::a_stopped_program_reports_what_it_wrote,
    commands::eight_programs_run_concurrently,
    streams::output_comes_while_the_program_runs,
    streams::both_outputs_come_whole_side_by_side,
    streams::a_program_whose_reader_is_gone_ends_with_its_children,
    handles::a_replaced_sandbox_is_gone,
];

/// Cases of programs that a caller runs, which a sandbox without [`SandboxTraits::commands`] skips.
pub const PROGRAM_CASES: &[&str] = &[
    "a_program_ends_with_its_status",
    "a_signal_is_part_of_the_status",
    "input_reaches_the_program",
    "much_input_arrives_or_is_refused",
    "input_that_breaks_is_a_failure",
    "variables_reach_the_program",
    "arguments_reach_the_program_as_they_are",
    "long_output_comes_whole_or_is_cut",
    "output_may_be_any_bytes",
    "standard_error_is_kept_apart",
    "a_program_runs_in_its_directory",
    "an_unknown_program_is_refused",
    "an_ambiguous_request_is_refused",
    "a_dropped_program_ends_with_its_children",
    "children_end_with_their_program",
    "output_of_a_child_does_not_delay_the_end_of_its_program",
    "a_program_ends_with_its_lifetime",
    "a_stopped_program_reports_what_it_wrote",
    "eight_programs_run_concurrently",
    "output_comes_while_the_program_runs",
    "both_outputs_come_whole_side_by_side",
    "a_program_whose_reader_is_gone_ends_with_its_children",
];

/// Cases that a sandbox without [`SandboxTraits::live_output`] skips.
pub const LIVE_OUTPUT_CASES: &[&str] = &[
    "output_comes_while_the_program_runs",
    "a_program_whose_reader_is_gone_ends_with_its_children",
];

/// Runs all cases.
///
/// # Errors
///
/// All cases that failed, by name, with the line and the reason.
pub async fn run_all(fixture: &dyn Fixture) -> Result<ConformanceReport, CaseFailures> {
    run_cases(fixture, CONFORMANCE_CASES).await
}

/// Runs some of the cases.
///
/// # Errors
///
/// Those of [`run_all`].
pub async fn run_cases(
    fixture: &dyn Fixture,
    cases: &[(&'static str, Case)],
) -> Result<ConformanceReport, CaseFailures> {
    dray_conformance::run_cases(cases, |name, case| async move {
        // The opening counts as part of the case, so that a backend that cannot open fails each of them.
        let context = CaseContext::open(fixture, name).await?;
        case(&context).await
    })
    .await
}
