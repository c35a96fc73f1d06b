//! The suite that every platform passes.

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_platform::conformance::{self, Fault, Fixture, Seen, SeenFile, Traits};
use dray_platform::{Platform, Target};
use dray_types::Secret;
use tokio::net::TcpListener;

use super::{Arc, Double, Options, Telegram, options, target};
use crate::double;

#[derive(Debug)]
struct Bench {
    double: Double,
    nobody: String,
    local_mode: bool,
}

impl Bench {
    async fn new(double: Double, local_mode: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = format!("http://{}", listener.local_addr().unwrap());
        Self {
            double,
            nobody,
            local_mode,
        }
    }

    fn options(&self) -> Options {
        Options {
            local_mode: self.local_mode,
            ..options(&self.double)
        }
    }
}

#[async_trait]
impl Fixture for Bench {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(Telegram::new("", self.options()).unwrap())
    }

    async fn chat(&self) -> Target {
        target(self.double.group())
    }

    async fn seen(&self, target: &Target) -> Vec<Seen> {
        let text = |number: i64| match number {
            0 => String::new(),
            number => number.to_string(),
        };
        let shown = self.double.seen(target.chat.parse().unwrap());
        let seen = shown.into_iter().map(|shown| Seen {
            message_id: shown.message_id.to_string(),
            text: shown.text,
            files: Vec::from_iter(shown.file.map(|file| SeenFile {
                name: file.name,
                size: file.size,
                sha256: file.sha256,
            })),
            thread: text(shown.thread),
            reply_to: text(shown.reply_to),
        });
        seen.collect()
    }

    async fn script(&self, fault: Fault) -> bool {
        self.double.script(match fault {
            Fault::RateLimit(wait) => double::Fault::RateLimit(wait.as_secs()),
            Fault::FailAfterBody => double::Fault::FailAfterBody(502),
            Fault::LoseAnswer => double::Fault::LoseAnswer,
            Fault::CloseDuringBody => double::Fault::CloseDuringBody,
            Fault::TooLarge => double::Fault::Refuse(413, "Request Entity Too Large".to_owned()),
            Fault::ForgetFiles => double::Fault::ForgetFiles,
            Fault::Gibberish => double::Fault::CutAnswer,
        });
        true
    }

    fn nowhere(&self) -> Option<Target> {
        Some(target(31_337))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        let options = Options {
            token: Secret::new("4242:another-token"),
            ..self.options()
        };
        Some(Arc::new(Telegram::new("", options).unwrap()))
    }

    fn with_nobody_there(&self) -> Option<Arc<dyn Platform>> {
        let options = Options {
            base_url: self.nobody.clone(),
            ..self.options()
        };
        Some(Arc::new(Telegram::new("", options).unwrap()))
    }

    fn received(&self) -> u64 {
        self.double.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![double::TOKEN.to_owned(), "4242:another-token".to_owned()]
    }

    fn traits(&self) -> Traits {
        Traits {
            unit: Unit::Utf16,
            thread: Some("7"),
            ..Traits::default()
        }
    }
}

#[tokio::test]
async fn telegram_does_what_every_platform_does() {
    let bench = Bench::new(Double::start().await.unwrap(), false).await;
    let report = conformance::run_all(&bench).await.unwrap();
    assert_eq!(report.skipped, Vec::<&str>::new());
    assert_eq!(report.passed.len(), conformance::CASES.len());
}

#[tokio::test]
async fn r_18_sixty_megabytes_for_an_own_server_are_not_held_in_memory() {
    let double = Double::start_with(2_000_000_000).await.unwrap();
    let bench = Bench::new(double, true).await;
    let large: Vec<_> = conformance::CASES
        .iter()
        .copied()
        .filter(|(name, _)| *name == "a_large_file_is_not_held_in_memory")
        .collect();
    let report = conformance::run(&bench, &large).await.unwrap();
    assert_eq!(report.passed.len(), 1);
}
