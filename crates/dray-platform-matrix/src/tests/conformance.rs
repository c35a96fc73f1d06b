//! The conformance tests of all platforms.

use std::sync::Arc;

use async_trait::async_trait;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage,
};
use dray_platform::{DeliveryTarget, Platform};
use dray_presentation::caption::CaptionUnit;
use dray_types::Secret;
use serde_json::Value;

use super::{options, start, target, user};
use crate::MatrixOptions;
use crate::fake_server::{ACCESS_TOKEN, FakeHomeserver, InjectedFault};

#[derive(Debug)]
struct MatrixFixture {
    fake: FakeHomeserver,
}

#[async_trait]
impl PlatformFixture for MatrixFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(user(options(&self.fake)))
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.fake.room())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let messages = self.fake.visible_messages(&target.chat).into_iter();
        messages
            .map(|message| {
                let text = |pointer: &str| {
                    let text = message.content.pointer(pointer).and_then(Value::as_str);
                    text.unwrap_or_default().to_owned()
                };
                let (body, name) = (text("/body"), text("/filename"));
                let files = message
                    .file
                    .iter()
                    .map(|content| SeenFile::named(name.clone(), content.size, content.sha256));
                VisibleMessage {
                    message_id: message.event_id.clone(),
                    files: files.collect(),
                    text: if body == name { String::new() } else { body },
                    thread: text("/m.relates_to/event_id"),
                    reply_to: text("/m.relates_to/m.in_reply_to/event_id"),
                }
            })
            .collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Fail,
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringUpload,
            PlatformFault::TooLarge => InjectedFault::TooLarge,
            PlatformFault::ForgetFiles => InjectedFault::ForgetEvent,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("#nowhere:fake.example"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(user(MatrixOptions {
            token: Secret::new("syt_wrong"),
            ..options(&self.fake)
        })))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(user(MatrixOptions {
            homeserver: "http://127.0.0.1:1".to_owned(),
            ..options(&self.fake)
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![ACCESS_TOKEN.to_owned(), "syt_wrong".to_owned()]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            unit: CaptionUnit::Bytes,
            empty_files: true,
            thread: Some("$root"),
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = MatrixFixture {
        fake: start().await,
    };
    match conformance::run_all(&fixture).await {
        Ok(report) => assert_eq!(report.skipped, [""; 0]),
        Err(failures) => panic!("{failures}"),
    }
}
