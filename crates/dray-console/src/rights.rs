//! The permissions of a console on the bus, for the generated accounts.

use dray_bus::Permissions;
use dray_proto::v1;

/// Adds the permissions of a console whose logins may only look: it reads events and dead letters, calls services for
/// the data of its pages, and records logins.
#[must_use]
pub fn declare_looking(identity: Permissions) -> Permissions {
    identity
        .observes()
        .publishes_audit::<v1::ConsoleAudit>()
        .calls::<v1::ExplainRequest>()
        .calls::<v1::ShowEgressPolicyRequest>()
        .calls::<v1::ListReceiptsRequest>()
        .calls::<v1::DeliveryOutcomeRequest>()
        .calls::<v1::ToolCallOutcomeRequest>()
        .calls::<v1::ShowSessionRequest>()
        .calls::<v1::ListSandboxRequest>()
        .calls::<v1::ListArtifactsRequest>()
        .calls::<v1::ListFileHoldersRequest>()
        .calls::<v1::ListEgressQuestionsRequest>()
}

/// Adds the permissions of a console whose logins may also act: resend deliveries, restart dead letters, copy files
/// into and out of sandboxes, send them to chats, and answer questions about hosts.
#[must_use]
pub fn declare_acting(identity: Permissions) -> Permissions {
    declare_looking(identity)
        .operates()
        .calls::<v1::ResendRequest>()
        .calls::<v1::SendFileRequested>()
        .calls::<v1::GetSandboxFileRequest>()
        .calls::<v1::PutSandboxFileRequest>()
        .calls::<v1::CreatePreviewRequest>()
        .calls::<v1::ListPreviewsRequest>()
        .calls::<v1::RevokePreviewRequest>()
        .calls::<v1::AnswerEgressQuestionRequest>()
        .calls::<v1::CheckAccountsRequest>()
        .calls::<v1::CheckBackendsRequest>()
}
