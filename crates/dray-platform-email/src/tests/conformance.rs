//! The conformance tests of all platforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage,
};
use dray_platform::{DeliveryTarget, Platform};
use dray_types::{ByteSize, Secret};

use super::{sender, target};
use crate::EmailOptions;
use crate::fake_server::{FakeMailServer, InjectedFault, UNKNOWN_RECIPIENT, USER_PASSWORD};

#[derive(Debug)]
struct EmailFixture {
    fake: FakeMailServer,
    next: AtomicUsize,
}

impl EmailFixture {
    /// Options with a file limit above that of large providers, so that a mail that is kept in memory is detected.
    fn options(&self) -> EmailOptions {
        EmailOptions {
            upload_limit: Some(ByteSize::mib(64)),
            ..self.fake.options()
        }
    }
}

#[async_trait]
impl PlatformFixture for EmailFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(sender(self.options()))
    }

    async fn chat(&self) -> DeliveryTarget {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        target(&format!("user{number}@example.org"))
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let mails = self.fake.mails(&target.chat).into_iter();
        mails
            .map(|mail| VisibleMessage {
                message_id: mail.header("message-id").to_owned(),
                text: mail.text.clone(),
                reply_to: mail.header("in-reply-to").to_owned(),
                thread: mail
                    .header("references")
                    .split(' ')
                    .next()
                    .unwrap()
                    .to_owned(),
                files: mail
                    .files
                    .into_iter()
                    .map(|file| SeenFile::named(file.name, file.size, file.sha256))
                    .collect(),
            })
            .collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::FailAfterBody => InjectedFault::Refuse("451 4.3.0 try later"),
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringBody,
            PlatformFault::TooLarge => InjectedFault::Refuse("552 5.3.4 too big"),
            PlatformFault::Gibberish => InjectedFault::Gibberish,
            // SMTP servers report neither a delay nor the files of a mail.
            PlatformFault::RateLimit(_) | PlatformFault::ForgetFiles => return false,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target(UNKNOWN_RECIPIENT))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(sender(EmailOptions {
            password: Secret::new("a wrong password"),
            ..self.options()
        })))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(sender(EmailOptions {
            port: 1,
            ..self.options()
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![USER_PASSWORD.to_owned(), "a wrong password".to_owned()]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            empty_files: true,
            failures_are_ambiguous: false,
            thread: Some("<root@example.org>"),
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = EmailFixture {
        fake: FakeMailServer::start(100 << 20, None).await.unwrap(),
        next: AtomicUsize::new(0),
    };
    match conformance::run_all(&fixture).await {
        Ok(report) => assert_eq!(
            report.skipped,
            [
                "a_known_file_id_saves_the_upload",
                "a_rate_limit_is_reported_exactly",
                "a_success_without_the_file_does_not_count_as_a_delivery"
            ]
        ),
        Err(failures) => panic!("{failures}"),
    }
}
