//! Matrix, by the client-server API (platform-delivery 8): out by upload and event, in by sync.
//!
//! - [`Matrix`]: one user on one homeserver, as [`Platform`] and [`Inbox`].
//! - [`Options`]: what an operator sets about it.
//! - `double` (feature `double`): a homeserver that speaks the same wire, for tests and the demo.
//!
//! What it does not do: it writes into no encrypted room, joins none by itself, and keeps no state.

mod api;
#[cfg(any(test, feature = "double"))]
pub mod double;
mod event;
mod options;
mod send;
mod sync;
#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dray_content::caption::Unit;
use dray_content::kind::{Audio, Kind};
use dray_platform::{
    Ambiguity, ByteStream, Confirmed, Deliver, Delivery, Error, ErrorKind, InboundAttachment,
    Inbox, Limits, OutgoingFile, Platform, Progress, Rates, Send, Step, Target, WebhookReply,
    WebhookRequest, http, plan,
};
use dray_types::Clock;
use tokio_util::sync::CancellationToken;

pub use options::Options;

use api::Api;

/// The platform's name in targets.
const NAME: &str = "matrix";

/// One user on one homeserver.
#[derive(Debug)]
pub struct Matrix {
    account: String,
    options: Options,
    api: Api,
    clock: Clock,
}

impl Matrix {
    /// A user under the name of an account; the name is empty for the only one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::BadFormat`] for options that cannot be: no token, an address that is none, authorities that
    /// cannot be read.
    pub fn new(account: &str, options: Options, clock: Clock) -> Result<Self, Error> {
        let api = Api::new(&options)?;
        Ok(Self {
            account: account.to_owned(),
            options,
            api,
            clock,
        })
    }
}

#[async_trait]
impl Platform for Matrix {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The transaction id is in the path of the event.
    fn ambiguity(&self) -> Ambiguity {
        Ambiguity::ResendAlways
    }

    /// Homeservers have their own and say when to come back.
    fn rates(&self, _target: &Target) -> Rates {
        Rates {
            account_per_minute: 60,
            chat_per_minute: 30,
        }
    }

    /// What the homeserver takes.
    async fn limits(&self, target: &Target) -> Result<Limits, Error> {
        let told = match self.api.room(&target.chat).await {
            Ok(_) => self.api.largest().await,
            Err(error) => Err(error),
        };
        match told {
            Ok(told) => Ok(self.options.limits(told)),
            Err(error) if matches!(error.kind(), ErrorKind::Transient | ErrorKind::RateLimited) => {
                tracing::debug!(%error, "the homeserver's limit is unknown; the default holds");
                Ok(self.options.limits(None))
            }
            Err(error) => Err(error),
        }
    }

    fn plan(&self, delivery: &Delivery, limits: &Limits) -> Vec<Step> {
        let mut steps = plan::attachments(delivery, limits, send::FILE, Unit::Bytes);
        for step in &mut steps {
            let Step::Files(step) = step else { continue };
            let file = step.files.first().and_then(|at| delivery.files.get(*at));
            if let Some(file) = file {
                route(delivery, file).clone_into(&mut step.route);
            }
        }
        steps
    }

    async fn prepare(&self, send: Send<'_>, progress: &dyn Progress) -> Result<String, Error> {
        send::prepare(&self.api, send, progress).await
    }

    async fn send(&self, send: Send<'_>, _: &dyn Progress) -> Result<Vec<Confirmed>, Error> {
        send::send(&self.api, send).await
    }
}

/// How a file is shown. The bytes are the same on every route.
fn route(delivery: &Delivery, file: &OutgoingFile) -> &'static str {
    match file.detected.kind {
        _ if delivery.flags.as_document => send::FILE,
        Kind::Image(_) => send::IMAGE,
        Kind::Video(_) => send::VIDEO,
        Kind::Audio(Audio::OggOpus { .. }) if delivery.flags.as_voice => send::VOICE,
        Kind::Audio(_) => send::AUDIO,
        _ => send::FILE,
    }
}

#[async_trait]
impl Inbox for Matrix {
    fn webhook(&self, _: &WebhookRequest) -> Result<WebhookReply, Error> {
        let what = "messages are asked for; nobody calls us";
        Err(Error::new(ErrorKind::BadFormat, what))
    }

    async fn poll(&self, deliver: &dyn Deliver, stop: CancellationToken) -> Result<(), Error> {
        let since = self
            .clock
            .now_ms()
            .saturating_sub(self.options.catch_up.as_millis());
        let sync = sync::Sync {
            account: &self.account,
            options: &self.options,
            api: &self.api,
            since,
        };
        sync.run(deliver, &stop).await
    }

    async fn fetch(&self, attachment: &InboundAttachment) -> Result<ByteStream, Error> {
        Ok(http::stream(
            self.api.download(&attachment.reference).await?,
        ))
    }
}
