//! Tests of the suite: a correct platform passes, and each kind of violation is detected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use dray_presentation::caption::{self, CaptionPlacement, CaptionUnit};
use dray_types::Sha256Digest;
use futures_util::StreamExt as _;

use super::{
    CONFORMANCE_CASES, CaseFailures, PlatformFault, PlatformFixture, PlatformTraits, SeenFile,
    VisibleMessage, run_cases,
};
use crate::delivery::{ConfirmedFile, DeliveryTarget, SendStep};
use crate::error::{ErrorKind, PlatformError};
use crate::limits::ChatLimits;
use crate::platform::{
    DuplicateProtection, OutgoingDelivery, Platform, RateLimits, SendRequest, UploadProgress,
};

/// A defect of the fake platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InjectedDefect {
    Nothing,
    ChangesBytes,
    DropsSiblings,
    HoldsAll,
    SendsEmptyFiles,
    MentionsEverybody,
    TextLast,
    ReversesOrder,
    SendsTwiceAfterLoss,
    CallsLossUnsent,
    CallsBreakAmbiguous,
    RoundsDelays,
    BelievesStatus,
    ShowsToken,
    ForgetsThread,
    IgnoresSource,
    AttachesLinkedFiles,
}

const TEST_TOKEN: &str = "token-of-a-test";

#[derive(Debug, Default)]
struct FakeState {
    chats: Mutex<BTreeMap<String, Vec<VisibleMessage>>>,
    fault: Mutex<Option<PlatformFault>>,
    received: AtomicU64,
    last: AtomicU64,
}

/// A platform without a network protocol, which is its own server.
#[derive(Debug)]
struct FakePlatform {
    server: Arc<FakeState>,
    defect: InjectedDefect,
    token: &'static str,
    is_reachable: bool,
}

impl FakePlatform {
    fn chats(&self) -> MutexGuard<'_, BTreeMap<String, Vec<VisibleMessage>>> {
        self.server.chats.lock().unwrap()
    }

    fn error(&self, kind: ErrorKind) -> PlatformError {
        let text = if self.defect == InjectedDefect::ShowsToken {
            TEST_TOKEN
        } else {
            "refused"
        };
        PlatformError::new(kind, text)
    }

    /// Reads the files of a step as a server would.
    async fn upload(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
        closes: bool,
    ) -> Result<Vec<SeenFile>, PlatformError> {
        let mut files = Vec::new();
        let indices = match send.step {
            SendStep::Link(_) if self.defect == InjectedDefect::AttachesLinkedFiles => {
                (0..send.delivery.files.len()).collect()
            }
            step => step.files().to_vec(),
        };
        for index in indices {
            let file = &send.delivery.files[index];
            if file.size == 0 && self.defect != InjectedDefect::SendsEmptyFiles {
                return Err(self.error(ErrorKind::Empty));
            }
            let mut stream = file.source.open().await?;
            let mut bytes = Vec::new();
            let mut unsent_bytes = 0;
            while let Some(chunk) = stream.next().await {
                let chunk = match chunk {
                    Ok(chunk) => chunk,
                    Err(_) if self.defect == InjectedDefect::IgnoresSource => break,
                    Err(error) => return Err(error),
                };
                bytes.extend_from_slice(&chunk);
                unsent_bytes += chunk.len() as u64;
                if self.defect != InjectedDefect::HoldsAll {
                    self.server
                        .received
                        .fetch_add(unsent_bytes, Ordering::SeqCst);
                    progress.sent(std::mem::take(&mut unsent_bytes));
                }
                tokio::task::yield_now().await;
                if closes {
                    let error = self.error(ErrorKind::Transient);
                    return Err(match self.defect {
                        InjectedDefect::CallsBreakAmbiguous => error.ambiguous(),
                        _ => error,
                    });
                }
            }
            self.server
                .received
                .fetch_add(unsent_bytes, Ordering::SeqCst);
            progress.sent(unsent_bytes);
            if bytes.len() as u64 != file.size && self.defect != InjectedDefect::IgnoresSource {
                return Err(self.error(ErrorKind::Source));
            }
            if self.defect == InjectedDefect::ChangesBytes {
                bytes.push(0);
            }
            files.push(SeenFile {
                name: Some(file.name.replace(['\r', '\n'], " ")),
                size: bytes.len() as u64,
                sha256: Sha256Digest::of(&bytes),
            });
        }
        Ok(files)
    }

    fn show(&self, send: SendRequest<'_>, files: Vec<SeenFile>) -> String {
        let number = self.server.last.fetch_add(1, Ordering::SeqCst).to_string();
        let target = &send.delivery.target;
        let thread = match self.defect {
            InjectedDefect::ForgetsThread => String::new(),
            _ => target.thread.clone(),
        };
        let visible = VisibleMessage {
            message_id: number.clone(),
            text: send.step.text().to_owned(),
            files,
            thread,
            reply_to: target.reply_to.clone(),
        };
        self.chats()
            .entry(target.chat.clone())
            .or_default()
            .push(visible);
        number
    }

    /// Returns the outcome of a request whose body was read, and consumes the fault.
    fn respond(
        &self,
        send: SendRequest<'_>,
        files: Vec<SeenFile>,
    ) -> Result<String, PlatformError> {
        let fault = self.server.fault.lock().unwrap().take();
        let lost = || match self.defect {
            InjectedDefect::CallsLossUnsent => self.error(ErrorKind::Transient),
            _ => self.error(ErrorKind::Transient).ambiguous(),
        };
        match fault {
            None => Ok(self.show(send, files)),
            Some(PlatformFault::RateLimit(wait)) => {
                let retry_after = match self.defect {
                    InjectedDefect::RoundsDelays => wait.min(std::time::Duration::from_mins(1)),
                    _ => wait,
                };
                Err(self
                    .error(ErrorKind::RateLimited)
                    .with_retry_after(retry_after))
            }
            Some(PlatformFault::TooLarge) => Err(self.error(ErrorKind::TooLarge)),
            Some(PlatformFault::FailAfterBody | PlatformFault::CloseDuringBody) => Err(lost()),
            Some(PlatformFault::LoseResponse) => {
                if self.defect == InjectedDefect::SendsTwiceAfterLoss {
                    self.show(send, files.clone());
                }
                self.show(send, files);
                Err(lost())
            }
            Some(PlatformFault::ForgetFiles | PlatformFault::Gibberish) => {
                let number = self.show(send, files);
                match self.defect {
                    InjectedDefect::BelievesStatus => Ok(number),
                    _ => Err(self.error(ErrorKind::Unknown).ambiguous()),
                }
            }
        }
    }
}

#[async_trait]
impl Platform for FakePlatform {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn ambiguity(&self) -> DuplicateProtection {
        DuplicateProtection::Unknown
    }

    fn rate_limits(&self, _target: &DeliveryTarget) -> RateLimits {
        RateLimits {
            account_per_minute: 1,
            chat_per_minute: 1,
        }
    }

    async fn limits(&self, _target: &DeliveryTarget) -> Result<ChatLimits, PlatformError> {
        Ok(ChatLimits {
            routes: Vec::new(),
            any: 32 << 20,
            caption: 50,
            text: 200,
            per_message: 10,
            request: None,
            download: None,
        })
    }

    fn plan(&self, delivery: &OutgoingDelivery, limits: &ChatLimits) -> Vec<SendStep> {
        let fits = |index: &usize| delivery.files[*index].size <= limits.any;
        let mut steps: Vec<SendStep> = (0..delivery.files.len())
            .filter(fits)
            .map(|index| SendStep::files_by(crate::Route::File, vec![index]))
            .collect();
        if self.defect == InjectedDefect::ReversesOrder {
            steps.reverse();
        }
        if self.defect == InjectedDefect::DropsSiblings && steps.len() < delivery.files.len() {
            steps.clear();
        }
        let text = match self.defect {
            InjectedDefect::MentionsEverybody => delivery.message.clone(),
            _ => caption::neutralise_mentions(&delivery.message),
        };
        let caption_limits = caption::CaptionLimits {
            caption: if steps.is_empty() { 0 } else { limits.caption },
            message: limits.text,
            unit: CaptionUnit::Chars,
        };
        match caption::fit_caption(&text, caption_limits) {
            CaptionPlacement::None => {}
            CaptionPlacement::Fits(text) => steps[0].set_text(text),
            CaptionPlacement::Separate(texts) => {
                let texts = texts.into_iter().map(SendStep::Text);
                let position = match self.defect {
                    InjectedDefect::TextLast => steps.len(),
                    _ => 0,
                };
                steps.splice(position..position, texts);
            }
        }
        steps
    }

    async fn send(
        &self,
        send: SendRequest<'_>,
        progress: &dyn UploadProgress,
    ) -> Result<Vec<ConfirmedFile>, PlatformError> {
        if !self.is_reachable {
            return Err(self.error(ErrorKind::Transient));
        }
        if self.token != TEST_TOKEN {
            return Err(self.error(ErrorKind::Auth));
        }
        if send.delivery.target.chat == "nowhere" {
            return Err(self.error(ErrorKind::NotFound));
        }
        let fault = *self.server.fault.lock().unwrap();
        let closes = fault == Some(PlatformFault::CloseDuringBody);
        let uploaded = self.upload(send, progress, closes).await;
        if closes {
            self.server.fault.lock().unwrap().take();
        }
        let message_id = self.respond(send, uploaded?)?;
        let confirmed = |file: Option<usize>| ConfirmedFile {
            file,
            message_id: message_id.clone(),
            file_id: String::new(),
            size: None,
            route: send.step.route(),
            provisional: false,
        };
        let files = send.step.files().iter();
        let mut all: Vec<ConfirmedFile> = files.map(|file| confirmed(Some(*file))).collect();
        if all.is_empty() {
            all.push(confirmed(None));
        }
        Ok(all)
    }
}

#[derive(Debug)]
struct FakeFixture {
    server: Arc<FakeState>,
    defect: InjectedDefect,
}

impl FakeFixture {
    fn new(defect: InjectedDefect) -> Self {
        Self {
            server: Arc::default(),
            defect,
        }
    }

    fn fake(&self, token: &'static str, is_reachable: bool) -> Arc<dyn Platform> {
        Arc::new(FakePlatform {
            server: Arc::clone(&self.server),
            defect: self.defect,
            token,
            is_reachable,
        })
    }
}

fn target(chat: &str) -> DeliveryTarget {
    format!("fake:{chat}").parse().unwrap()
}

#[async_trait]
impl PlatformFixture for FakeFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        self.fake(TEST_TOKEN, true)
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.server.last.fetch_add(1, Ordering::SeqCst).to_string())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let chats = self.server.chats.lock().unwrap();
        chats.get(&target.chat).cloned().unwrap_or_default()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        *self.server.fault.lock().unwrap() = Some(fault);
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("nowhere"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(self.fake("another", true))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(self.fake(TEST_TOKEN, false))
    }

    fn received(&self) -> u64 {
        self.server.received.load(Ordering::SeqCst)
    }

    fn secrets(&self) -> Vec<String> {
        vec![TEST_TOKEN.to_owned()]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            thread: Some("7"),
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn a_correct_platform_passes() {
    let report = run_cases(
        &FakeFixture::new(InjectedDefect::Nothing),
        CONFORMANCE_CASES,
    )
    .await
    .unwrap();
    assert_eq!(report.skipped, ["a_known_file_id_saves_the_upload"]);
    assert_eq!(report.passed.len(), CONFORMANCE_CASES.len() - 1);
}

/// Each defect with the case that finds it.
const DEFECT_CASES: &[(InjectedDefect, &str)] = &[
    (
        InjectedDefect::ChangesBytes,
        "every_kind_arrives_byte_for_byte",
    ),
    (
        InjectedDefect::DropsSiblings,
        "a_file_that_is_too_large_is_left_out_and_the_others_arrive",
    ),
    (
        InjectedDefect::HoldsAll,
        "a_large_file_is_not_held_in_memory",
    ),
    (
        InjectedDefect::SendsEmptyFiles,
        "an_empty_file_is_explained_or_delivered",
    ),
    (
        InjectedDefect::MentionsEverybody,
        "mass_mentions_notify_no_one",
    ),
    (
        InjectedDefect::TextLast,
        "a_long_text_arrives_complete_and_before_the_file",
    ),
    (
        InjectedDefect::ReversesOrder,
        "files_of_a_kind_keep_their_order",
    ),
    (
        InjectedDefect::SendsTwiceAfterLoss,
        "a_lost_response_is_ambiguous_and_its_message_is_shown_once",
    ),
    (
        InjectedDefect::CallsLossUnsent,
        "a_lost_response_is_ambiguous_and_its_message_is_shown_once",
    ),
    (
        InjectedDefect::CallsBreakAmbiguous,
        "a_connection_closed_in_the_body_sent_nothing",
    ),
    (
        InjectedDefect::RoundsDelays,
        "a_rate_limit_is_reported_exactly",
    ),
    (
        InjectedDefect::BelievesStatus,
        "a_success_without_the_file_does_not_count_as_a_delivery",
    ),
    (InjectedDefect::ShowsToken, "wrong_credentials_are_reported"),
    (InjectedDefect::ForgetsThread, "a_thread_is_kept"),
    (
        InjectedDefect::IgnoresSource,
        "bytes_that_cannot_be_read_show_nothing",
    ),
    (
        InjectedDefect::AttachesLinkedFiles,
        "a_link_arrives_without_its_file",
    ),
    (
        InjectedDefect::AttachesLinkedFiles,
        "a_link_to_a_file_above_every_limit_arrives",
    ),
];

#[tokio::test]
async fn each_injected_defect_is_found() {
    for (defect, found_by) in DEFECT_CASES {
        let case: Vec<_> = CONFORMANCE_CASES
            .iter()
            .copied()
            .filter(|(name, _)| name == found_by)
            .collect();
        let CaseFailures(failed) = run_cases(&FakeFixture::new(*defect), &case)
            .await
            .unwrap_err();
        assert_eq!(failed.len(), 1, "{defect:?}");
    }
}
