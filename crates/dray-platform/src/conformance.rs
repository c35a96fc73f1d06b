//! The conformance suite: checks the common behaviour of all platforms (platform-delivery 17).
//!
//! A platform implements a [`PlatformFixture`] for itself and its fake server, and calls [`run_all`]. Every case has a
//! separate chat. A case that does not apply, for instance because the protocol has no rate limits, is reported as
//! skipped. The test of the platform lists the expected skipped cases, so that none is skipped silently.

mod bytes;
mod context;
mod expect;
mod faults;
mod links;
mod order;
mod places;
mod recording_sink;
pub mod sample;
mod single_step;
#[cfg(test)]
mod tests;
mod text;
mod watch;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dray_conformance::case_list;
use dray_presentation::caption::CaptionUnit;
use dray_types::Sha256Digest;
use futures_util::future::BoxFuture;

pub use context::CaseContext;
pub use dray_conformance::{CaseEnd, CaseFailures, ConformanceReport};
pub use recording_sink::RecordingSink;
pub use single_step::{NoProgress, plain_delivery, repeat_only_step, send_only_step};

use crate::delivery::DeliveryTarget;
use crate::platform::Platform;

/// A platform and the fake server that it talks to.
#[async_trait]
pub trait PlatformFixture: Debug + Send + Sync {
    /// The platform under test. With a server limit for plain documents below 24 MiB, the cases with large files check
    /// less.
    fn platform(&self) -> Arc<dyn Platform>;

    /// An empty chat; a new one for every call.
    async fn chat(&self) -> DeliveryTarget;

    /// The visible messages of that chat, oldest first: one entry per message, even for each message of an album.
    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage>;

    /// Injects a fault, once. Returns `false` if the protocol has no such fault; the case is skipped then.
    async fn script(&self, fault: PlatformFault) -> bool;

    /// A chat that does not exist. `None` when every address is accepted.
    fn unknown_target(&self) -> Option<DeliveryTarget>;

    /// The same platform with credentials that the server refuses. `None` when it has no credentials.
    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>>;

    /// The same platform, configured with a loopback port without a listener. `None` when it needs no network.
    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>>;

    /// Bytes that the server has read from all its connections until now.
    fn received(&self) -> u64;

    /// Tokens and keys that must not appear in any error.
    fn secrets(&self) -> Vec<String>;

    /// The facts in which this platform differs from the others.
    fn traits(&self) -> PlatformTraits {
        PlatformTraits::default()
    }
}

/// A fault for the fake server, once. "The next visible request" is the request that makes a message appear. "The next
/// upload" is the request that carries the bytes of a file, if that is a different one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformFault {
    /// The next visible request is refused: too many requests, with this delay (whole seconds).
    RateLimit(Duration),
    /// The next visible request is read completely, and the response is a server failure. No message becomes visible.
    FailAfterBody,
    /// The next visible request succeeds, but the connection is closed without a response.
    LoseResponse,
    /// The connection of the next upload is closed after the first bytes of the body.
    CloseDuringBody,
    /// The next upload is refused as too large for the chat, for any size.
    TooLarge,
    /// The next visible request with a file gets a success response, but the response contains no file.
    ForgetFiles,
    /// The next visible request gets a success response with a truncated or malformed body.
    Gibberish,
}

/// A message as it is shown to a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisibleMessage {
    /// The id that [`crate::ConfirmedFile::message_id`] must have for this message.
    pub message_id: String,
    /// Text, or caption of the files.
    pub text: String,
    /// The message's files in order.
    pub files: Vec<SeenFile>,
    /// Thread or topic; empty without one.
    pub thread: String,
    /// The message to which it replies; empty without one.
    pub reply_to: String,
}

/// A file as it is shown to a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenFile {
    /// The file's name; `None` if the platform shows none (a photo).
    pub name: Option<String>,
    /// Number of bytes that the user would download.
    pub size: u64,
    /// SHA-256 digest of these bytes.
    pub sha256: Sha256Digest,
}

impl SeenFile {
    /// A file that is shown with its name.
    pub fn named(name: String, size: u64, sha256: Sha256Digest) -> Self {
        Self {
            name: Some(name),
            size,
            sha256,
        }
    }
}

/// The facts in which platforms differ. The default applies to most of them.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a platform"
)]
#[derive(Clone, Copy, Debug)]
pub struct PlatformTraits {
    /// The unit in which limits of text are counted.
    pub unit: CaptionUnit,
    /// Whether files without bytes are delivered; if not, they are refused as `empty` before anything is sent.
    pub empty_files: bool,
    /// Whether a server failure after the complete request leaves its outcome unknown. False if the protocol defines
    /// such a response as a refusal (SMTP).
    pub failures_are_ambiguous: bool,
    /// [`DeliveryTarget::thread`] is a separate thread that the server shows in [`VisibleMessage::thread`]; the value
    /// is valid in every chat.
    pub thread: Option<&'static str>,
    /// [`DeliveryTarget::reply_to`] is shown in [`VisibleMessage::reply_to`].
    pub replies: bool,
    /// Whether people read the texts, so that mass mentions would notify them. False where programs read the texts.
    pub people: bool,
}

impl Default for PlatformTraits {
    fn default() -> Self {
        Self {
            unit: CaptionUnit::Chars,
            empty_files: false,
            failures_are_ambiguous: true,
            thread: None,
            replies: true,
            people: true,
        }
    }
}

/// A case: an asynchronous function that passes, fails, or is skipped.
pub type Case = for<'a> fn(&'a CaseContext<'a>) -> BoxFuture<'a, Result<(), CaseEnd>>;

/// Every case by its name, in the order in which [`run_all`] runs them.
pub const CONFORMANCE_CASES: &[(&str, Case)] = case_list![
    bytes::every_kind_arrives_byte_for_byte,
    bytes::every_kind_arrives_as_a_document,
    bytes::a_voice_message_arrives,
    bytes::one_byte_and_odd_sizes_arrive,
    bytes::the_confirmed_file_is_the_file_that_arrived,
    bytes::a_known_file_id_saves_the_upload,
    bytes::an_empty_file_is_explained_or_delivered,
    bytes::names_arrive_and_break_nothing,
    bytes::a_large_file_is_not_held_in_memory,
    bytes::the_sent_bytes_are_reported,
    text::a_text_alone_arrives,
    text::a_short_text_arrives_with_the_file_or_before_it,
    text::a_long_text_arrives_complete_and_before_the_file,
    text::a_text_of_exactly_the_limit_arrives,
    text::text_is_shown_as_it_was_written,
    text::mass_mentions_notify_no_one,
    links::a_link_arrives_without_its_file,
    links::a_link_to_a_file_above_every_limit_arrives,
    links::the_link_of_a_preview_arrives_unchanged,
    order::every_file_is_planned_once,
    order::files_of_a_kind_keep_their_order,
    order::more_pictures_than_fit_one_message_arrive,
    order::a_file_that_is_too_large_is_left_out_and_the_others_arrive,
    order::two_equal_deliveries_are_both_shown,
    places::a_thread_is_kept,
    places::a_reply_is_kept,
    places::a_chat_that_does_not_exist_is_not_found,
    places::wrong_credentials_are_reported,
    places::an_unreachable_server_is_transient_and_nothing_was_sent,
    faults::a_rate_limit_is_reported_exactly,
    faults::a_failure_after_the_body_is_ambiguous,
    faults::a_lost_response_is_ambiguous_and_its_message_is_shown_once,
    faults::a_connection_closed_in_the_body_sent_nothing,
    faults::a_refusal_for_size_is_reported,
    faults::a_success_without_the_file_does_not_count_as_a_delivery,
    faults::an_unreadable_response_does_not_count_as_a_delivery,
    faults::bytes_that_cannot_be_read_show_nothing,
    faults::bytes_that_end_early_show_nothing,
];

/// Runs every case, one after the other.
///
/// # Errors
///
/// All cases that failed, by name, with the line and the reason.
pub async fn run_all(fixture: &dyn PlatformFixture) -> Result<ConformanceReport, CaseFailures> {
    run_cases(fixture, CONFORMANCE_CASES).await
}

/// Runs some cases, one after the other.
///
/// # Errors
///
/// Those of [`run_all`].
pub async fn run_cases(
    fixture: &dyn PlatformFixture,
    cases: &[(&'static str, Case)],
) -> Result<ConformanceReport, CaseFailures> {
    dray_conformance::run_cases(cases, |_, case| async move {
        // A new chat for each case, so that one cannot see the messages of another.
        let context = CaseContext::open(fixture).await;
        case(&context).await
    })
    .await
}
