//! Compares the required configuration with the one that was read back, field by field.

use std::fmt;

use super::{ConsumerSpec, FullStreamPolicy, StreamSpec, SubjectContract};
use crate::subject;

/// One field that differs from the configuration on which services depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyMismatch {
    /// `<stream>` or `<stream>/<durable>`.
    pub object: String,
    /// The field; `existence` when the object is absent.
    pub field: &'static str,
    /// The required value.
    pub expected: String,
    /// The value that the server reports; `absent` for a missing object.
    pub found: String,
}

impl fmt::Display for TopologyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} must be {}, is {}",
            self.object, self.field, self.expected, self.found
        )
    }
}

/// Every method of the contracts.
pub(super) fn call_contracts() -> Vec<SubjectContract> {
    use super::contracts::call_subject;
    use dray_proto::v1;
    vec![
        call_subject::<v1::BindSessionRequest>(),
        call_subject::<v1::ShowSessionRequest>(),
        call_subject::<v1::UnbindSessionRequest>(),
        call_subject::<v1::FindSessionRequest>(),
        call_subject::<v1::ProbeSandboxRequest>(),
        call_subject::<v1::StatSandboxRequest>(),
        call_subject::<v1::ListSandboxRequest>(),
        call_subject::<v1::GetSandboxFileRequest>(),
        call_subject::<v1::PutSandboxFileRequest>(),
        call_subject::<v1::MakeSandboxDirectoryRequest>(),
        call_subject::<v1::RemoveSandboxPathRequest>(),
        call_subject::<v1::GetSandboxTreeRequest>(),
        call_subject::<v1::PutSandboxTreeRequest>(),
        call_subject::<v1::SettleUploadsRequest>(),
        call_subject::<v1::ExecSandboxRequest>(),
        call_subject::<v1::ExecSandboxStreamRequest>(),
        call_subject::<v1::SendFileRequested>(),
        call_subject::<v1::DeliveryOutcomeRequest>(),
        call_subject::<v1::ListReceiptsRequest>(),
        call_subject::<v1::ResendRequest>(),
        call_subject::<v1::CancelDeliveryRequest>(),
        call_subject::<v1::SendTextRequested>(),
        call_subject::<v1::PrepareUploadRequest>(),
        call_subject::<v1::FinishUploadRequest>(),
        call_subject::<v1::CheckAccountsRequest>(),
        call_subject::<v1::AskInChatRequest>(),
        call_subject::<v1::DecideInChatRequest>(),
        call_subject::<v1::CheckBackendsRequest>(),
        call_subject::<v1::FetchRequest>(),
        call_subject::<v1::ExplainRequest>(),
        call_subject::<v1::PurgeFetchRequest>(),
        call_subject::<v1::ListEgressQuestionsRequest>(),
        call_subject::<v1::AnswerEgressQuestionRequest>(),
        call_subject::<v1::ShowEgressPolicyRequest>(),
        call_subject::<v1::ReadAttachmentRequest>(),
        call_subject::<v1::BuildContextRequest>(),
        call_subject::<v1::ReadFilesRequest>(),
        call_subject::<v1::SubstituteIdsRequest>(),
        call_subject::<v1::FetchUserFileRequest>(),
        call_subject::<v1::OpenArtifactRequest>(),
        call_subject::<v1::ListArtifactsRequest>(),
        call_subject::<v1::ListFileHoldersRequest>(),
        call_subject::<v1::IssueTicketRequest>(),
        call_subject::<v1::ListTicketsRequest>(),
        call_subject::<v1::InspectTicketRequest>(),
        call_subject::<v1::RevokeTicketRequest>(),
        call_subject::<v1::CreatePreviewRequest>(),
        call_subject::<v1::ListPreviewsRequest>(),
        call_subject::<v1::RevokePreviewRequest>(),
        call_subject::<v1::ResolveRequest>(),
        call_subject::<v1::ToolCallRequested>(),
        call_subject::<v1::ToolCallOutcomeRequest>(),
    ]
}

/// Every call subject of the contracts, with the subject on which callers cancel.
pub fn call_subjects() -> Vec<String> {
    use dray_proto::{contract::call_subject, v1};
    let calls = call_contracts();
    let mut subjects: Vec<_> = calls.into_iter().map(|call| call.subject).collect();
    // Publishers that may call only for their own tenant use a subject that ends in it.
    subjects.push(format!(
        "{}.*",
        call_subject::<v1::ToolCallOutcomeRequest>()
    ));
    let areas: std::collections::BTreeSet<_> = subjects
        .iter()
        .filter_map(|name| subject::call_area(name).map(str::to_owned))
        .collect();
    // The subjects of cancellations belong to no method of the contracts.
    subjects.extend(areas.iter().map(|area| subject::cancel_subject(area)));
    subjects
}

struct FieldComparison {
    object: String,
    mismatches: Vec<TopologyMismatch>,
}

impl FieldComparison {
    fn field<T: PartialEq + fmt::Debug>(&mut self, field: &'static str, expected: &T, found: &T) {
        self.rule(field, expected == found, expected, found);
    }

    fn rule(
        &mut self,
        field: &'static str,
        holds: bool,
        expected: &dyn fmt::Debug,
        found: &dyn fmt::Debug,
    ) {
        if !holds {
            self.mismatches.push(TopologyMismatch {
                object: self.object.clone(),
                field,
                expected: format!("{expected:?}"),
                found: format!("{found:?}"),
            });
        }
    }
}

fn absent_object(object: String) -> Vec<TopologyMismatch> {
    vec![TopologyMismatch {
        object,
        field: "existence",
        expected: "present".to_owned(),
        found: "absent".to_owned(),
    }]
}

/// Compares the fields that the services depend on. The operator chooses the size limit of a stream and its number of
/// copies, but there must be a limit.
pub(super) fn compare_stream(
    required: &StreamSpec,
    found: Option<&StreamSpec>,
) -> Vec<TopologyMismatch> {
    let Some(found) = found else {
        return absent_object(required.name.clone());
    };
    let mut comparison = FieldComparison {
        object: required.name.clone(),
        mismatches: Vec::new(),
    };
    comparison.field("subjects", &required.subjects, &found.subjects);
    comparison.field("retention", &required.retention, &found.retention);
    comparison.field("discard", &required.discard, &found.discard);
    comparison.field("max_age", &required.max_age, &found.max_age);
    comparison.field(
        "duplicate_window",
        &required.duplicate_window,
        &found.duplicate_window,
    );
    comparison.field(
        "max_msg_size",
        &required.max_message_size,
        &found.max_message_size,
    );
    comparison.field(
        "max_msgs_per_subject",
        &required.max_per_subject,
        &found.max_per_subject,
    );
    comparison.field("allow_direct", &required.allow_direct, &found.allow_direct);
    comparison.field("allow_rollup", &required.allow_rollup, &found.allow_rollup);
    comparison.field("deny_delete", &required.deny_delete, &found.deny_delete);
    comparison.field("deny_purge", &required.deny_purge, &found.deny_purge);
    comparison.rule(
        "max_bytes",
        // The server writes "unbounded" as -1, which reads as 0 here. Any bound that the operator sets is accepted.
        (1..=i64::MAX.unsigned_abs()).contains(&found.max_bytes),
        &"a bound",
        &found.max_bytes,
    );
    // A stream that captures a call subject would send its acknowledgement to the caller before the service can respond
    // (F-17).
    for call in call_subjects() {
        let covered = found
            .subjects
            .iter()
            .find(|filter| subject::filters_overlap(filter, &call));
        if let Some(filter) = covered {
            comparison.rule("subjects", false, &format!("disjoint from {call}"), filter);
        }
    }
    comparison.mismatches
}

/// Compares all fields, because the operator chooses no field of a consumer.
pub(super) fn compare_consumer(
    required: &ConsumerSpec,
    found: Option<&ConsumerSpec>,
) -> Vec<TopologyMismatch> {
    let Some(found) = found else {
        return absent_object(required.object());
    };
    let mut comparison = FieldComparison {
        object: required.object(),
        mismatches: Vec::new(),
    };
    comparison.field("filter_subject", &required.filter, &found.filter);
    comparison.field(
        "ack_policy_explicit",
        &required.ack_explicit,
        &found.ack_explicit,
    );
    comparison.field("ack_wait", &required.ack_wait, &found.ack_wait);
    comparison.field(
        "max_ack_pending",
        &required.max_ack_pending,
        &found.max_ack_pending,
    );
    comparison.field("max_batch", &required.max_batch, &found.max_batch);
    comparison.field("max_deliver", &required.max_deliver, &found.max_deliver);
    comparison.field("backoff", &required.backoff, &found.backoff);
    comparison.field(
        "other_settings",
        &required.other_settings,
        &found.other_settings,
    );
    comparison.mismatches
}

impl fmt::Display for FullStreamPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Old => "old",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prost::Message as _;

    use super::super::{StreamRetention, Topology};
    use super::*;

    #[test]
    fn one_deviating_field_of_a_stream_is_named() {
        let required = Topology::default().streams.remove(0);
        let check = |field: &str, change: fn(&mut StreamSpec)| {
            let mut found = required.clone();
            change(&mut found);
            let fields: Vec<_> = compare_stream(&required, Some(&found))
                .into_iter()
                .map(|mismatch| mismatch.field)
                .collect();
            assert_eq!(fields, [field]);
        };
        check("subjects", |spec| spec.subjects.push("other.>".into()));
        check("retention", |spec| {
            spec.retention = StreamRetention::WorkQueue;
        });
        check("discard", |spec| spec.discard = FullStreamPolicy::Old);
        check("max_age", |spec| spec.max_age += Duration::from_secs(1));
        check("duplicate_window", |spec| spec.duplicate_window /= 2);
        check("max_msg_size", |spec| spec.max_message_size += 1);
        check("max_msgs_per_subject", |spec| spec.max_per_subject = 1);
        check("allow_direct", |spec| spec.allow_direct = true);
        check("allow_rollup", |spec| spec.allow_rollup = true);
        check("deny_delete", |spec| spec.deny_delete = false);
        check("deny_purge", |spec| spec.deny_purge = false);
        check("max_bytes", |spec| spec.max_bytes = 0);
        assert_eq!(compare_stream(&required, Some(&required)), []);
        assert_eq!(compare_stream(&required, None)[0].field, "existence");
    }

    #[test]
    fn size_and_copies_are_the_operators_choice() {
        let required = Topology::default().streams.remove(0);
        let found = StreamSpec {
            max_bytes: 1,
            replicas: 5,
            ..required.clone()
        };
        assert_eq!(compare_stream(&required, Some(&found)), []);
    }

    #[test]
    fn one_deviating_field_of_a_consumer_is_named() {
        let required = Topology::default().consumers.remove(0);
        let check = |field: &str, change: fn(&mut ConsumerSpec)| {
            let mut found = required.clone();
            change(&mut found);
            let fields: Vec<_> = compare_consumer(&required, Some(&found))
                .into_iter()
                .map(|mismatch| mismatch.field)
                .collect();
            assert_eq!(fields, [field]);
        };
        check("filter_subject", |spec| spec.filter.clear());
        check("ack_policy_explicit", |spec| spec.ack_explicit = false);
        check("ack_wait", |spec| spec.ack_wait *= 2);
        check("max_ack_pending", |spec| spec.max_ack_pending = 1);
        check("max_batch", |spec| spec.max_batch = 1);
        check("max_deliver", |spec| spec.max_deliver = 5);
        check("backoff", |spec| spec.backoff.push(Duration::from_secs(1)));
        check("other_settings", |spec| {
            spec.other_settings.push("headers_only");
        });
        assert_eq!(compare_consumer(&required, None)[0].field, "existence");
    }

    #[test]
    fn every_method_of_the_contracts_is_a_call() {
        let described =
            prost_types::FileDescriptorSet::decode(dray_proto::FILE_DESCRIPTOR_SET).unwrap();
        let methods: usize = described
            .file
            .iter()
            .flat_map(|file| &file.service)
            .map(|service| service.method.len())
            .sum();
        let calls = call_subjects();
        let further = calls
            .iter()
            .filter(|call| call.ends_with(".cancel") || call.ends_with(".*"))
            .count();
        assert_eq!(calls.len() - further, methods, "{calls:?}");
    }

    #[test]
    fn a_stream_may_not_cover_a_call() {
        let mut required = Topology::default().streams.remove(0);
        required.subjects = vec!["dray.*.v1.fetch".into()];
        let mismatches = compare_stream(&required, Some(&required));
        assert_eq!(mismatches.len(), 1);
        assert_eq!(
            mismatches[0].expected,
            "\"disjoint from dray.egress.v1.fetch\""
        );
    }
}
