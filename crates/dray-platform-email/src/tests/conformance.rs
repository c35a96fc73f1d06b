//! What every platform does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dray_platform::conformance::{self, Fault as Wanted, Fixture, Seen, SeenFile, Traits};
use dray_platform::{Platform, Target};
use dray_types::{ByteSize, Secret};

use super::{sender, target};
use crate::Options;
use crate::double::{Double, Fault, NOBODY, PASSWORD};

#[derive(Debug)]
struct World {
    double: Double,
    next: AtomicUsize,
}

impl World {
    /// More than large providers take, so that a mail held in memory would show.
    fn options(&self) -> Options {
        Options {
            upload_limit: Some(ByteSize::mib(64)),
            ..self.double.options()
        }
    }
}

#[async_trait]
impl Fixture for World {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(sender(self.options()))
    }

    async fn chat(&self) -> Target {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        target(&format!("user{number}@example.org"))
    }

    async fn seen(&self, target: &Target) -> Vec<Seen> {
        let mails = self.double.mails(&target.chat).into_iter();
        mails
            .map(|mail| Seen {
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
                    .map(|file| SeenFile {
                        name: Some(file.name),
                        size: file.size,
                        sha256: file.sha256,
                    })
                    .collect(),
            })
            .collect()
    }

    async fn script(&self, fault: Wanted) -> bool {
        self.double.script(match fault {
            Wanted::FailAfterBody => Fault::Refuse("451 4.3.0 try later"),
            Wanted::LoseAnswer => Fault::LoseAnswer,
            Wanted::CloseDuringBody => Fault::CloseDuringBody,
            Wanted::TooLarge => Fault::Refuse("552 5.3.4 too big"),
            Wanted::Gibberish => Fault::Gibberish,
            // No server names a delay, and none says what it has.
            Wanted::RateLimit(_) | Wanted::ForgetFiles => return false,
        });
        true
    }

    fn nowhere(&self) -> Option<Target> {
        Some(target(NOBODY))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(sender(Options {
            password: Secret::new("a wrong password"),
            ..self.options()
        })))
    }

    fn with_nobody_there(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(sender(Options {
            port: 1,
            ..self.options()
        })))
    }

    fn received(&self) -> u64 {
        self.double.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![PASSWORD.to_owned(), "a wrong password".to_owned()]
    }

    fn traits(&self) -> Traits {
        Traits {
            empty_files: true,
            failures_are_ambiguous: false,
            thread: Some("<root@example.org>"),
            ..Traits::default()
        }
    }
}

#[tokio::test]
async fn it_does_what_every_platform_does() {
    let world = World {
        double: Double::start(100 << 20, None).await.unwrap(),
        next: AtomicUsize::new(0),
    };
    match conformance::run_all(&world).await {
        Ok(report) => assert_eq!(
            report.skipped,
            [
                "a_known_file_id_saves_the_upload",
                "a_rate_limit_is_told_exactly",
                "a_success_without_the_file_is_no_delivery"
            ]
        ),
        Err(failures) => panic!("{failures}"),
    }
}
