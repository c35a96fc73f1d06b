//! The suite itself: it passes a platform that does what it must, and finds each way of not doing so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use dray_content::caption::{self, Caption, Unit};
use dray_types::Sha256Digest;
use futures_util::StreamExt as _;

use super::{CASES, Failures, Fault, Fixture, Seen, SeenFile, Traits, run};
use crate::delivery::{Confirmed, Step, Target};
use crate::error::{Error, ErrorKind};
use crate::limits::Limits;
use crate::platform::{Ambiguity, Delivery, Platform, Progress, Rates, Send};

/// Something done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
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

const TOKEN: &str = "token-of-a-test";

#[derive(Debug, Default)]
struct Server {
    chats: Mutex<BTreeMap<String, Vec<Seen>>>,
    fault: Mutex<Option<Fault>>,
    received: AtomicU64,
    last: AtomicU64,
}

/// A platform without a wire: it is its own server.
#[derive(Debug)]
struct Fake {
    server: Arc<Server>,
    wrong: Wrong,
    token: &'static str,
    is_there: bool,
}

impl Fake {
    fn chats(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Seen>>> {
        self.server.chats.lock().unwrap()
    }

    fn error(&self, kind: ErrorKind) -> Error {
        let shown = if self.wrong == Wrong::ShowsToken {
            TOKEN
        } else {
            "refused"
        };
        Error::new(kind, shown)
    }

    /// Reads the files of a step as a server would.
    async fn upload(
        &self,
        send: Send<'_>,
        progress: &dyn Progress,
        closes: bool,
    ) -> Result<Vec<SeenFile>, Error> {
        let mut files = Vec::new();
        let indices = match send.step {
            Step::Link(_) if self.wrong == Wrong::AttachesLinkedFiles => {
                (0..send.delivery.files.len()).collect()
            }
            step => step.files().to_vec(),
        };
        for index in indices {
            let file = &send.delivery.files[index];
            if file.size == 0 && self.wrong != Wrong::SendsEmptyFiles {
                return Err(self.error(ErrorKind::Empty));
            }
            let mut stream = file.source.open().await?;
            let mut bytes = Vec::new();
            let mut held = 0;
            while let Some(piece) = stream.next().await {
                let piece = match piece {
                    Ok(piece) => piece,
                    Err(_) if self.wrong == Wrong::IgnoresSource => break,
                    Err(error) => return Err(error),
                };
                bytes.extend_from_slice(&piece);
                held += piece.len() as u64;
                if self.wrong != Wrong::HoldsAll {
                    self.server.received.fetch_add(held, Ordering::SeqCst);
                    progress.sent(std::mem::take(&mut held));
                }
                tokio::task::yield_now().await;
                if closes {
                    let error = self.error(ErrorKind::Transient);
                    return Err(match self.wrong {
                        Wrong::CallsBreakAmbiguous => error.ambiguous(),
                        _ => error,
                    });
                }
            }
            self.server.received.fetch_add(held, Ordering::SeqCst);
            progress.sent(held);
            if bytes.len() as u64 != file.size && self.wrong != Wrong::IgnoresSource {
                return Err(self.error(ErrorKind::Source));
            }
            if self.wrong == Wrong::ChangesBytes {
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

    fn show(&self, send: Send<'_>, files: Vec<SeenFile>) -> String {
        let number = self.server.last.fetch_add(1, Ordering::SeqCst).to_string();
        let target = &send.delivery.target;
        let thread = match self.wrong {
            Wrong::ForgetsThread => String::new(),
            _ => target.thread.clone(),
        };
        let seen = Seen {
            message_id: number.clone(),
            text: send.step.text().to_owned(),
            files,
            thread,
            reply_to: target.reply_to.clone(),
        };
        self.chats()
            .entry(target.chat.clone())
            .or_default()
            .push(seen);
        number
    }

    /// What becomes of a request that was read.
    fn answer(&self, send: Send<'_>, files: Vec<SeenFile>) -> Result<String, Error> {
        let fault = self.server.fault.lock().unwrap().take();
        let lost = || match self.wrong {
            Wrong::CallsLossUnsent => self.error(ErrorKind::Transient),
            _ => self.error(ErrorKind::Transient).ambiguous(),
        };
        match fault {
            None => Ok(self.show(send, files)),
            Some(Fault::RateLimit(wait)) => {
                let told = match self.wrong {
                    Wrong::RoundsDelays => wait.min(std::time::Duration::from_mins(1)),
                    _ => wait,
                };
                Err(self.error(ErrorKind::RateLimited).with_retry_after(told))
            }
            Some(Fault::TooLarge) => Err(self.error(ErrorKind::TooLarge)),
            Some(Fault::FailAfterBody | Fault::CloseDuringBody) => Err(lost()),
            Some(Fault::LoseAnswer) => {
                if self.wrong == Wrong::SendsTwiceAfterLoss {
                    self.show(send, files.clone());
                }
                self.show(send, files);
                Err(lost())
            }
            Some(Fault::ForgetFiles | Fault::Gibberish) => {
                let number = self.show(send, files);
                match self.wrong {
                    Wrong::BelievesStatus => Ok(number),
                    _ => Err(self.error(ErrorKind::Unknown).ambiguous()),
                }
            }
        }
    }
}

#[async_trait]
impl Platform for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::Unknown
    }

    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 1,
            chat_per_minute: 1,
        }
    }

    async fn limits(&self, _target: &Target) -> Result<Limits, Error> {
        Ok(Limits {
            routes: Vec::new(),
            any: 32 << 20,
            caption: 50,
            text: 200,
            per_message: 10,
            request: None,
            download: None,
        })
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        let fits = |index: &usize| delivery.files[*index].size <= limits.any;
        let mut steps: Vec<Step> = (0..delivery.files.len())
            .filter(fits)
            .map(|index| Step::files_by("file", vec![index]))
            .collect();
        if self.wrong == Wrong::ReversesOrder {
            steps.reverse();
        }
        if self.wrong == Wrong::DropsSiblings && steps.len() < delivery.files.len() {
            steps.clear();
        }
        let text = match self.wrong {
            Wrong::MentionsEverybody => delivery.message.clone(),
            _ => caption::neutralise(&delivery.message),
        };
        let words = caption::Limits {
            caption: if steps.is_empty() { 0 } else { limits.caption },
            message: limits.text,
            unit: Unit::Chars,
        };
        match caption::fit(&text, words) {
            Caption::None => {}
            Caption::Fits(text) => steps[0].set_text(text),
            Caption::Separate(texts) => {
                let texts = texts.into_iter().map(Step::Text);
                let at = match self.wrong {
                    Wrong::TextLast => steps.len(),
                    _ => 0,
                };
                steps.splice(at..at, texts);
            }
        }
        steps
    }

    async fn send(&self, send: Send<'_>, progress: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        if !self.is_there {
            return Err(self.error(ErrorKind::Transient));
        }
        if self.token != TOKEN {
            return Err(self.error(ErrorKind::Auth));
        }
        if send.delivery.target.chat == "nowhere" {
            return Err(self.error(ErrorKind::NotFound));
        }
        let fault = *self.server.fault.lock().unwrap();
        let closes = fault == Some(Fault::CloseDuringBody);
        let uploaded = self.upload(send, progress, closes).await;
        if closes {
            self.server.fault.lock().unwrap().take();
        }
        let message_id = self.answer(send, uploaded?)?;
        let confirmed = |file: Option<usize>| Confirmed {
            file,
            message_id: message_id.clone(),
            file_id: String::new(),
            size: None,
            route: send.step.route().to_owned(),
            provisional: false,
        };
        let files = send.step.files().iter();
        let mut all: Vec<Confirmed> = files.map(|file| confirmed(Some(*file))).collect();
        if all.is_empty() {
            all.push(confirmed(None));
        }
        Ok(all)
    }
}

#[derive(Debug)]
struct Bench {
    server: Arc<Server>,
    wrong: Wrong,
}

impl Bench {
    fn new(wrong: Wrong) -> Self {
        Self {
            server: Arc::default(),
            wrong,
        }
    }

    fn fake(&self, token: &'static str, is_there: bool) -> Arc<dyn Platform> {
        Arc::new(Fake {
            server: Arc::clone(&self.server),
            wrong: self.wrong,
            token,
            is_there,
        })
    }
}

fn target(chat: &str) -> Target {
    format!("fake:{chat}").parse().unwrap()
}

#[async_trait]
impl Fixture for Bench {
    fn platform(&self) -> Arc<dyn Platform> {
        self.fake(TOKEN, true)
    }

    async fn chat(&self) -> Target {
        target(&self.server.last.fetch_add(1, Ordering::SeqCst).to_string())
    }

    async fn seen(&self, target: &Target) -> Vec<Seen> {
        let chats = self.server.chats.lock().unwrap();
        chats.get(&target.chat).cloned().unwrap_or_default()
    }

    async fn script(&self, fault: Fault) -> bool {
        *self.server.fault.lock().unwrap() = Some(fault);
        true
    }

    fn nowhere(&self) -> Option<Target> {
        Some(target("nowhere"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(self.fake("another", true))
    }

    fn with_nobody_there(&self) -> Option<Arc<dyn Platform>> {
        Some(self.fake(TOKEN, false))
    }

    fn received(&self) -> u64 {
        self.server.received.load(Ordering::SeqCst)
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned()]
    }

    fn traits(&self) -> Traits {
        Traits {
            thread: Some("7"),
            ..Traits::default()
        }
    }
}

#[tokio::test]
async fn a_platform_that_does_what_it_must_passes() {
    let report = run(&Bench::new(Wrong::Nothing), CASES).await.unwrap();
    assert_eq!(report.skipped, ["a_known_file_id_saves_the_upload"]);
    assert_eq!(report.passed.len(), CASES.len() - 1);
}

#[tokio::test]
async fn each_way_of_doing_wrong_is_found() {
    for (wrong, found_by) in [
        (Wrong::ChangesBytes, "every_kind_arrives_byte_for_byte"),
        (
            Wrong::DropsSiblings,
            "what_is_too_large_is_left_out_and_the_rest_arrives",
        ),
        (Wrong::HoldsAll, "a_large_file_is_not_held_in_memory"),
        (
            Wrong::SendsEmptyFiles,
            "an_empty_file_is_explained_or_delivered",
        ),
        (Wrong::MentionsEverybody, "mass_mentions_call_nobody"),
        (
            Wrong::TextLast,
            "a_long_text_comes_whole_and_before_the_file",
        ),
        (Wrong::ReversesOrder, "files_of_a_kind_keep_their_order"),
        (
            Wrong::SendsTwiceAfterLoss,
            "a_lost_answer_is_ambiguous_and_never_shown_twice",
        ),
        (
            Wrong::CallsLossUnsent,
            "a_lost_answer_is_ambiguous_and_never_shown_twice",
        ),
        (
            Wrong::CallsBreakAmbiguous,
            "a_connection_closed_in_the_body_sent_nothing",
        ),
        (Wrong::RoundsDelays, "a_rate_limit_is_told_exactly"),
        (
            Wrong::BelievesStatus,
            "a_success_without_the_file_is_no_delivery",
        ),
        (Wrong::ShowsToken, "wrong_credentials_are_told"),
        (Wrong::ForgetsThread, "a_thread_is_kept"),
        (
            Wrong::IgnoresSource,
            "bytes_that_cannot_be_read_show_nothing",
        ),
        (
            Wrong::AttachesLinkedFiles,
            "a_link_arrives_without_its_file",
        ),
        (
            Wrong::AttachesLinkedFiles,
            "a_link_to_a_file_above_every_limit_arrives",
        ),
    ] {
        let case: Vec<_> = CASES
            .iter()
            .copied()
            .filter(|(name, _)| *name == found_by)
            .collect();
        let Failures(failed) = run(&Bench::new(wrong), &case).await.unwrap_err();
        assert_eq!(failed.len(), 1, "{wrong:?}");
    }
}
