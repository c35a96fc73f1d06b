//! What every platform does.

use std::sync::Arc;

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_platform::conformance::{self, Fault as Wanted, Fixture, Seen, SeenFile, Traits};
use dray_platform::{Platform, Target};
use dray_types::Secret;
use serde_json::Value;

use super::{options, start, target, user};
use crate::Options;
use crate::double::{Double, Fault, TOKEN};

#[derive(Debug)]
struct World {
    double: Double,
}

#[async_trait]
impl Fixture for World {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(user(options(&self.double)))
    }

    async fn chat(&self) -> Target {
        target(&self.double.room())
    }

    async fn seen(&self, target: &Target) -> Vec<Seen> {
        let shown = self.double.seen(&target.chat).into_iter();
        shown
            .map(|shown| {
                let text = |pointer: &str| {
                    let text = shown.content.pointer(pointer).and_then(Value::as_str);
                    text.unwrap_or_default().to_owned()
                };
                let (body, name) = (text("/body"), text("/filename"));
                let files = shown.file.iter().map(|content| SeenFile {
                    name: Some(name.clone()),
                    size: content.size,
                    sha256: content.sha256,
                });
                Seen {
                    message_id: shown.event_id.clone(),
                    files: files.collect(),
                    text: if body == name { String::new() } else { body },
                    thread: text("/m.relates_to/event_id"),
                    reply_to: text("/m.relates_to/m.in_reply_to/event_id"),
                }
            })
            .collect()
    }

    async fn script(&self, fault: Wanted) -> bool {
        self.double.script(match fault {
            Wanted::RateLimit(wait) => Fault::RateLimit(wait),
            Wanted::FailAfterBody => Fault::Fail,
            Wanted::LoseAnswer => Fault::LoseAnswer,
            Wanted::CloseDuringBody => Fault::CloseDuringUpload,
            Wanted::TooLarge => Fault::TooLarge,
            Wanted::ForgetFiles => Fault::ForgetEvent,
            Wanted::Gibberish => Fault::Gibberish,
        });
        true
    }

    fn nowhere(&self) -> Option<Target> {
        Some(target("#nowhere:double.example"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(user(Options {
            token: Secret::new("syt_wrong"),
            ..options(&self.double)
        })))
    }

    fn with_nobody_there(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(user(Options {
            homeserver: "http://127.0.0.1:1".to_owned(),
            ..options(&self.double)
        })))
    }

    fn received(&self) -> u64 {
        self.double.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned(), "syt_wrong".to_owned()]
    }

    fn traits(&self) -> Traits {
        Traits {
            unit: Unit::Bytes,
            empty_files: true,
            thread: Some("$root"),
            ..Traits::default()
        }
    }
}

#[tokio::test]
async fn it_does_what_every_platform_does() {
    let world = World {
        double: start().await,
    };
    match conformance::run_all(&world).await {
        Ok(report) => assert_eq!(report.skipped, [""; 0]),
        Err(failures) => panic!("{failures}"),
    }
}
