//! The context of a case: platform, chat, and the steps that cases share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dray_conformance::{CaseEnd, expect_equal, expect_true};
use dray_types::{ErrorChain, Sha256Digest};

use super::single_step::plain_delivery;
use super::watch::SentByteCounter;
use super::{PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage};
use crate::delivery::{ConfirmedFile, DeliveryTarget, OutgoingFile, SendStep};
use crate::error::{PlatformError, SendOutcome};
use crate::limits::ChatLimits;
use crate::platform::{OutgoingDelivery, Platform, SendRequest};

/// Most routes that are tried for one step when the platform refuses it.
const MAX_ROUTES: usize = 4;

/// Platform and chat of one case.
#[derive(Debug)]
pub struct CaseContext<'f> {
    /// The fixture that made the platform.
    pub fixture: &'f dyn PlatformFixture,
    /// The platform under test.
    pub platform: Arc<dyn Platform>,
    /// The chat of this case; it is empty at the start.
    pub target: DeliveryTarget,
    /// The facts in which the platform differs from others.
    pub traits: PlatformTraits,
    keys: AtomicU64,
}

impl<'f> CaseContext<'f> {
    /// A context with a new chat.
    pub async fn open(fixture: &'f dyn PlatformFixture) -> Self {
        Self {
            fixture,
            platform: fixture.platform(),
            target: fixture.chat().await,
            traits: fixture.traits(),
            keys: AtomicU64::new(0),
        }
    }

    /// The same platform with another new chat.
    pub(super) async fn with_new_chat(&self) -> Self {
        Self::open(self.fixture).await
    }

    /// The same fixture with another platform and chat.
    pub(super) fn with(&self, platform: Arc<dyn Platform>, target: DeliveryTarget) -> Self {
        Self {
            fixture: self.fixture,
            platform,
            target,
            traits: self.traits,
            keys: AtomicU64::new(0),
        }
    }

    /// A delivery to the chat, without flags.
    pub(super) fn delivery(&self, message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
        plain_delivery(self.target.clone(), message, files)
    }

    /// The limits of the chat.
    pub(super) async fn limits(&self) -> Result<ChatLimits, CaseEnd> {
        Ok(self.platform.limits(&self.target).await?)
    }

    /// The steps of a delivery by the limits of the chat.
    pub(super) async fn plan(&self, delivery: &OutgoingDelivery) -> Result<Vec<SendStep>, CaseEnd> {
        Ok(self.platform.plan(delivery, &self.limits().await?))
    }

    /// The only step of a delivery; fails if there are more.
    pub(super) async fn only_step(&self, delivery: &OutgoingDelivery) -> Result<SendStep, CaseEnd> {
        let mut steps = self.plan(delivery).await?;
        expect_equal("steps", steps.len(), 1)?;
        steps.pop().ok_or_else(|| CaseEnd::fail("no step"))
    }

    /// A key that no other step of this chat has.
    pub(super) fn key(&self) -> String {
        let number = self.keys.fetch_add(1, Ordering::SeqCst);
        let seed = format!("{} {number}", self.target);
        // Digits of a digest, of which 22 are as long as a real key.
        let mut key = Sha256Digest::of(seed.as_bytes()).to_hex();
        key.truncate(22);
        key
    }

    /// Injects a fault. If the protocol has no such fault, the case is skipped.
    pub(super) async fn script(&self, fault: PlatformFault) -> Result<(), CaseEnd> {
        if self.fixture.script(fault).await {
            return Ok(());
        }
        Err(CaseEnd::Skip(
            "the protocol of this platform has no such fault",
        ))
    }

    /// One attempt of one step: prepare, then send. Fails the case when an error shows a secret.
    pub(super) async fn attempt(
        &self,
        delivery: &OutgoingDelivery,
        step: &SendStep,
        key: &str,
    ) -> Result<Result<Vec<ConfirmedFile>, PlatformError>, CaseEnd> {
        self.attempt_counting_bytes(delivery, step, key, &SentByteCounter::default())
            .await
    }

    /// Like [`Self::attempt`], and counts the sent bytes.
    pub(super) async fn attempt_counting_bytes(
        &self,
        delivery: &OutgoingDelivery,
        step: &SendStep,
        key: &str,
        counter: &SentByteCounter,
    ) -> Result<Result<Vec<ConfirmedFile>, PlatformError>, CaseEnd> {
        let send = |prepared| SendRequest {
            delivery,
            step,
            prepared,
            key,
            repeated: false,
        };
        let result = match self.platform.prepare(send(""), counter).await {
            Ok(prepared) => self.platform.send(send(&prepared), counter).await,
            Err(error) => {
                // Preparing shows nothing, so its errors cannot be ambiguous.
                expect_equal(
                    "outcome of a failed preparation",
                    error.send_outcome(),
                    SendOutcome::NotSent,
                )?;
                Err(error)
            }
        };
        if let Err(error) = &result {
            // The text includes `Debug`: logs of tests and panics use it.
            let printed = format!("{error} {error:?} {}", ErrorChain(error));
            for secret in self.fixture.secrets() {
                expect_true(
                    !printed.contains(&secret),
                    format_args!("an error shows a secret: {printed}"),
                )?;
            }
        }
        Ok(result)
    }

    /// Plans and sends everything, on other routes where needed, and checks that each file was confirmed once.
    pub(super) async fn deliver(
        &self,
        delivery: &OutgoingDelivery,
    ) -> Result<Vec<(SendStep, Vec<ConfirmedFile>)>, CaseEnd> {
        let mut done = Vec::new();
        for step in self.plan(delivery).await? {
            let confirmed = self.send_on_any_route(delivery, &step).await?;
            done.push((step, confirmed));
        }
        for index in 0..delivery.files.len() {
            let times = done
                .iter()
                .flat_map(|(_, confirmed)| confirmed)
                .filter(|confirmed| confirmed.file == Some(index))
                .count();
            expect_equal("confirmations of a file", times, 1)?;
        }
        Ok(done)
    }

    async fn send_on_any_route(
        &self,
        delivery: &OutgoingDelivery,
        step: &SendStep,
    ) -> Result<Vec<ConfirmedFile>, CaseEnd> {
        let mut step = step.clone();
        let key = self.key();
        for _ in 0..MAX_ROUTES {
            match self.attempt(delivery, &step, &key).await? {
                Ok(confirmed) => return Ok(confirmed),
                // As in the delivery service, another route is used only if no message is visible.
                Err(error) => match self.platform.fallback(delivery, &step, &error) {
                    Some(other) if error.send_outcome() == SendOutcome::NotSent => step = other,
                    _ => return Err(error.into()),
                },
            }
        }
        Err(CaseEnd::fail(format_args!("no route worked: {step:?}")))
    }

    /// The visible messages of the chat.
    pub(super) async fn visible_messages(&self) -> Vec<VisibleMessage> {
        self.fixture.visible_messages(&self.target).await
    }

    /// The visible files of the chat, in order.
    pub(super) async fn visible_files(&self) -> Vec<SeenFile> {
        let visible = self.visible_messages().await;
        visible
            .into_iter()
            .flat_map(|message| message.files)
            .collect()
    }

    /// Delivers, and checks that exactly these files are visible, each with its bytes.
    pub(super) async fn arrives(
        &self,
        delivery: &OutgoingDelivery,
    ) -> Result<Vec<ConfirmedFile>, CaseEnd> {
        let done = self.deliver(delivery).await?;
        let confirmed: Vec<ConfirmedFile> = done.into_iter().flat_map(|(_, all)| all).collect();
        let mut visible_files: Vec<_> = self
            .visible_files()
            .await
            .iter()
            .map(bytes_of_seen)
            .collect();
        let mut expected_files: Vec<_> = delivery.files.iter().map(bytes_of_file).collect();
        // The files are compared as sets: albums may change the order between kinds, which other cases check.
        visible_files.sort();
        expected_files.sort();
        expect_equal("visible files", visible_files, expected_files)?;
        let visible = self.visible_messages().await;
        for confirmed in &confirmed {
            expect_true(
                visible
                    .iter()
                    .any(|message| message.message_id == confirmed.message_id),
                format_args!("{confirmed:?} is not visible; visible: {visible:?}"),
            )?;
        }
        Ok(confirmed)
    }

    /// Fails when anything is visible in the chat.
    pub(super) async fn expect_nothing_visible(&self) -> Result<(), CaseEnd> {
        expect_equal(
            "visible messages",
            self.visible_messages().await,
            Vec::new(),
        )
    }
}

fn bytes_of_seen(file: &SeenFile) -> (String, u64) {
    (file.sha256.to_hex(), file.size)
}

fn bytes_of_file(file: &OutgoingFile) -> (String, u64) {
    (file.sha256.to_hex(), file.size)
}
