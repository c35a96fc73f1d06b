//! Tests with golden files, which contain the encoded bytes of every message of every released revision.
//!
//! `tests/golden/<Message>.<n>.hex` contains one message with every field set (one file for each choice of a `oneof`
//! and for each revision), made from the descriptors. Every file must decode with the current code and encode to the
//! same bytes. When a message has no file of its current shape, the test writes one and fails, so that a person reviews
//! it. When a file no longer decodes, the contract is broken: never rewrite a golden file.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::format_collect,
    reason = "this file contains only tests and their helpers"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use dray_proto::{FILE_DESCRIPTOR_SET, v1};
use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value,
};

/// Decodes with the current code and encodes again.
type Recode = fn(&[u8]) -> Vec<u8>;

fn recode<M: Message + Default>(bytes: &[u8]) -> Vec<u8> {
    M::decode(bytes)
        .expect("a golden message decodes")
        .encode_to_vec()
}

fn entry<M: Message + Name + Default>() -> (String, Recode) {
    (M::full_name(), recode::<M>)
}

/// Every message of the contracts, with its decoder in the current code.
#[expect(clippy::too_many_lines, reason = "a list, a line for each message")]
fn known_messages() -> Vec<(String, Recode)> {
    vec![
        entry::<v1::AccountCheck>(),
        entry::<v1::AccountLimits>(),
        entry::<v1::AgentTurn>(),
        entry::<v1::AnswerEgressQuestionReply>(),
        entry::<v1::AnswerEgressQuestionRequest>(),
        entry::<v1::AppPolicy>(),
        entry::<v1::ApprovalAudit>(),
        entry::<v1::Artifact>(),
        entry::<v1::AskInChatReply>(),
        entry::<v1::AskInChatRequest>(),
        entry::<v1::AuditAnswer>(),
        entry::<v1::AuditHop>(),
        entry::<v1::BackendCheck>(),
        entry::<v1::BindSessionRequest>(),
        entry::<v1::BuildContextReply>(),
        entry::<v1::BuildContextRequest>(),
        entry::<v1::CancelDeliveryRequest>(),
        entry::<v1::ChatTarget>(),
        entry::<v1::CheckAccountsReply>(),
        entry::<v1::CheckAccountsRequest>(),
        entry::<v1::CheckBackendsReply>(),
        entry::<v1::CheckBackendsRequest>(),
        entry::<v1::Claim>(),
        entry::<v1::ConsoleAudit>(),
        entry::<v1::CommandOutput>(),
        entry::<v1::Content>(),
        entry::<v1::ContinueDelivery>(),
        entry::<v1::CreatePreviewRequest>(),
        entry::<v1::CreatedPreview>(),
        entry::<v1::DeadLetter>(),
        entry::<v1::DecideInChatReply>(),
        entry::<v1::DecideInChatRequest>(),
        entry::<v1::DeliverFiles>(),
        entry::<v1::DeliveredFile>(),
        entry::<v1::DeliveryAccepted>(),
        entry::<v1::DeliveryAudit>(),
        entry::<v1::DeliveryDone>(),
        entry::<v1::DeliveryFlags>(),
        entry::<v1::DeliveryOutcomeRequest>(),
        entry::<v1::DeliveryProgressed>(),
        entry::<v1::DeliveryRecord>(),
        entry::<v1::DeliveryRejected>(),
        entry::<v1::DeliveryReport>(),
        entry::<v1::DeliveryStep>(),
        entry::<v1::DialCredentials>(),
        entry::<v1::DocumentSource>(),
        entry::<v1::EgressAudit>(),
        entry::<v1::EgressPolicyAudit>(),
        entry::<v1::EgressPolicyRefusal>(),
        entry::<v1::EgressQuestion>(),
        entry::<v1::EgressQuestionAudit>(),
        entry::<v1::EnvironmentVariable>(),
        entry::<v1::ExecSandboxEvent>(),
        entry::<v1::ExecSandboxReply>(),
        entry::<v1::ExecSandboxRequest>(),
        entry::<v1::ExecSandboxStreamRequest>(),
        entry::<v1::ExplainReply>(),
        entry::<v1::ExplainRequest>(),
        entry::<v1::Fault>(),
        entry::<v1::FetchReply>(),
        entry::<v1::FetchRequest>(),
        entry::<v1::FetchUserFileReply>(),
        entry::<v1::FetchUserFileRequest>(),
        entry::<v1::FileHolder>(),
        entry::<v1::FindSessionRequest>(),
        entry::<v1::FinishUploadReply>(),
        entry::<v1::FinishUploadRequest>(),
        entry::<v1::GetSandboxFileRequest>(),
        entry::<v1::GetSandboxTreeRequest>(),
        entry::<v1::Header>(),
        entry::<v1::HostAllowlist>(),
        entry::<v1::InspectTicketRequest>(),
        entry::<v1::InvalidParameter>(),
        entry::<v1::IssueTicketRequest>(),
        entry::<v1::IssuedTicket>(),
        entry::<v1::JudgementStep>(),
        entry::<v1::LedgerRecord>(),
        entry::<v1::ListArtifactsReply>(),
        entry::<v1::ListArtifactsRequest>(),
        entry::<v1::ListEgressQuestionsReply>(),
        entry::<v1::ListEgressQuestionsRequest>(),
        entry::<v1::ListFileHoldersReply>(),
        entry::<v1::ListFileHoldersRequest>(),
        entry::<v1::ListPreviewsReply>(),
        entry::<v1::ListPreviewsRequest>(),
        entry::<v1::ListReceiptsReply>(),
        entry::<v1::ListReceiptsRequest>(),
        entry::<v1::ListSandboxReply>(),
        entry::<v1::ListSandboxRequest>(),
        entry::<v1::ListTicketsReply>(),
        entry::<v1::ListTicketsRequest>(),
        entry::<v1::MakeSandboxDirectoryRequest>(),
        entry::<v1::MessageReceived>(),
        entry::<v1::MessageRefused>(),
        entry::<v1::NewDelivery>(),
        entry::<v1::OpenArtifactRequest>(),
        entry::<v1::PlaceUpload>(),
        entry::<v1::PlacedFile>(),
        entry::<v1::PrepareUploadReply>(),
        entry::<v1::PrepareUploadRequest>(),
        entry::<v1::PresignedUrl>(),
        entry::<v1::Preview>(),
        entry::<v1::PreviewAudit>(),
        entry::<v1::PreviewReceipt>(),
        entry::<v1::PreviewRecord>(),
        entry::<v1::PreviewRecords>(),
        entry::<v1::ProbeSandboxRequest>(),
        entry::<v1::PurgeFetchReply>(),
        entry::<v1::PurgeFetchRequest>(),
        entry::<v1::PutSandboxFileRequest>(),
        entry::<v1::PutSandboxTreeReply>(),
        entry::<v1::PutSandboxTreeRequest>(),
        entry::<v1::ReadAttachmentReply>(),
        entry::<v1::ReadAttachmentRequest>(),
        entry::<v1::ReadFilesReply>(),
        entry::<v1::ReadFilesRequest>(),
        entry::<v1::ReceiveMessage>(),
        entry::<v1::ReceivedAttachment>(),
        entry::<v1::RecordedEvent>(),
        entry::<v1::RemoveSandboxPathReply>(),
        entry::<v1::RemoveSandboxPathRequest>(),
        entry::<v1::ResendOffer>(),
        entry::<v1::ResendRequest>(),
        entry::<v1::ResolveOptions>(),
        entry::<v1::ResolveReply>(),
        entry::<v1::ResolveRequest>(),
        entry::<v1::ResolvedArguments>(),
        entry::<v1::ResolvedFile>(),
        entry::<v1::RevokePreviewRequest>(),
        entry::<v1::RevokeTicketRequest>(),
        entry::<v1::RouteLimit>(),
        entry::<v1::SandboxCommandAudit>(),
        entry::<v1::SandboxEntry>(),
        entry::<v1::SandboxFile>(),
        entry::<v1::SandboxHandle>(),
        entry::<v1::SandboxPath>(),
        entry::<v1::SandboxProbe>(),
        entry::<v1::SandboxRef>(),
        entry::<v1::SandboxTree>(),
        entry::<v1::SendFileRequested>(),
        entry::<v1::SendTextReply>(),
        entry::<v1::SendTextRequested>(),
        entry::<v1::Session>(),
        entry::<v1::SettleUploadsReply>(),
        entry::<v1::SettleUploadsRequest>(),
        entry::<v1::ShowEgressPolicyReply>(),
        entry::<v1::ShowEgressPolicyRequest>(),
        entry::<v1::ShowSessionRequest>(),
        entry::<v1::StatSandboxRequest>(),
        entry::<v1::StepConfirmation>(),
        entry::<v1::StoredArtifact>(),
        entry::<v1::SubstituteIdsReply>(),
        entry::<v1::SubstituteIdsRequest>(),
        entry::<v1::Ticket>(),
        entry::<v1::TicketAudit>(),
        entry::<v1::TicketDestination>(),
        entry::<v1::TokenCounts>(),
        entry::<v1::ToolCallAccepted>(),
        entry::<v1::ToolCallOutcome>(),
        entry::<v1::ToolCallOutcomeRequest>(),
        entry::<v1::ToolCallRejected>(),
        entry::<v1::ToolCallRequested>(),
        entry::<v1::ToolCallResolved>(),
        entry::<v1::TransferReceipt>(),
        entry::<v1::TurnBegun>(),
        entry::<v1::TurnCall>(),
        entry::<v1::TurnCallBegun>(),
        entry::<v1::TurnCallEnded>(),
        entry::<v1::TurnEnded>(),
        entry::<v1::TurnModel>(),
        entry::<v1::TurnTool>(),
        entry::<v1::UnbindSessionReply>(),
        entry::<v1::UnbindSessionRequest>(),
        entry::<v1::Upload>(),
        entry::<v1::UploadList>(),
        entry::<v1::UploadPlaced>(),
        entry::<v1::UploadRefused>(),
        entry::<v1::UserNotice>(),
        entry::<v1::WorkDeadLettered>(),
    ]
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("the compiled descriptors decode")
}

/// Messages with every field set, one for each choice of a `oneof`.
fn samples(message: &MessageDescriptor) -> Vec<DynamicMessage> {
    let choices = message
        .oneofs()
        .filter(|oneof| !oneof.is_synthetic())
        .map(|oneof| oneof.fields().count())
        .max()
        .unwrap_or(1);
    (0..choices)
        .map(|choice| fill_message(message, choice))
        .collect()
}

fn fill_message(message: &MessageDescriptor, choice: usize) -> DynamicMessage {
    let mut sample = DynamicMessage::new(message.clone());
    for field in message.fields() {
        let chosen = field.containing_oneof().is_none_or(|oneof| {
            let at = choice % oneof.fields().count();
            oneof.is_synthetic() || oneof.fields().nth(at).is_some_and(|wanted| wanted == field)
        });
        if chosen {
            sample.set_field(&field, value(&field, choice));
        }
    }
    sample
}

fn value(field: &FieldDescriptor, choice: usize) -> Value {
    assert!(
        !field.is_map(),
        "maps have no fixed order on the wire: {}",
        field.full_name()
    );
    if field.is_list() {
        return Value::List(vec![single(field, choice), single(field, choice)]);
    }
    single(field, choice)
}

fn single(field: &FieldDescriptor, choice: usize) -> Value {
    let number = field.number();
    match field.kind() {
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String(field.name().to_owned()),
        Kind::Bytes => Value::Bytes(vec![0, 255, u8::try_from(number).unwrap_or(7)].into()),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(-7),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(-7),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(1_000 + number),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(5_000_000_000 + u64::from(number)),
        Kind::Float => Value::F32(0.5),
        Kind::Double => Value::F64(0.5),
        Kind::Enum(kind) => {
            let last = kind.values().map(|value| value.number()).max();
            Value::EnumNumber(last.unwrap_or_default())
        }
        Kind::Message(message) => Value::Message(fill_message(&message, choice)),
    }
}

/// Lower-case hexadecimal digits, on lines of 40 bytes each.
fn hex_lines(bytes: &[u8]) -> String {
    bytes
        .chunks(40)
        .map(|line| {
            line.iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                + "\n"
        })
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The golden files of one message.
fn goldens(message: &str) -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = std::fs::read_dir(directory())
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            stem.and_then(|stem| stem.split_once('.'))
                .is_some_and(|(name, _)| name == message)
        })
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, text)
        })
        .collect()
}

#[test]
fn every_message_of_the_contracts_is_in_the_list() {
    let described: BTreeSet<String> = pool()
        .all_messages()
        .filter(|message| message.package_name() == "dray.v1")
        .map(|message| message.full_name().to_owned())
        .collect();
    let known: BTreeSet<String> = known_messages().into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, described);
}

#[test]
fn every_message_encodes_to_the_bytes_of_its_golden_file() {
    let mut written = Vec::new();
    for (name, recode) in known_messages() {
        let message = pool().get_message_by_name(&name).unwrap();
        for sample in samples(&message) {
            let encoded = sample.encode_to_vec();
            assert_eq!(recode(&encoded), encoded, "{name} loses a field");
            let hex = hex_lines(&encoded);
            let goldens = goldens(message.name());
            if !goldens.iter().any(|(_, golden)| *golden == hex) {
                let file = directory().join(format!("{}.{}.hex", message.name(), goldens.len()));
                std::fs::write(&file, hex).unwrap();
                written.push(file);
            }
        }
    }
    assert!(
        written.is_empty(),
        "review the new golden files and commit them: {written:?}"
    );
}

#[test]
fn every_golden_file_decodes_without_losing_a_byte() {
    let known = known_messages();
    let mut read = 0;
    for file in std::fs::read_dir(directory()).unwrap() {
        let path = file.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let (message, _) = stem.split_once('.').unwrap();
        let (_, recode) = known
            .iter()
            .find(|(name, _)| name.strip_prefix("dray.v1.") == Some(message))
            .unwrap_or_else(|| panic!("{message} was removed from the contracts"));
        let golden = bytes(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(recode(&golden), golden, "{stem}");
        read += 1;
    }
    assert!(read >= known.len());
}

#[test]
fn unknown_fields_of_later_revisions_are_ignored() {
    let mut later = v1::Header {
        name: "n".to_owned(),
        value: "v".to_owned(),
    }
    .encode_to_vec();
    // Field 1000, length-delimited, two bytes.
    later.extend([0xc2, 0x3e, 0x02, 0x68, 0x69]);
    let read = v1::Header::decode(later.as_slice()).unwrap();
    assert_eq!((read.name.as_str(), read.value.as_str()), ("n", "v"));
}

#[test]
fn an_absent_list_and_an_empty_list_of_a_policy_are_different() {
    let silent = v1::AppPolicy::default();
    let nothing_allowed = v1::AppPolicy {
        enabled: Some(false),
        host_allowlist: Some(v1::HostAllowlist::default()),
    };
    for policy in [silent, nothing_allowed] {
        let read = v1::AppPolicy::decode(policy.encode_to_vec().as_slice()).unwrap();
        assert_eq!(read, policy);
    }
}
