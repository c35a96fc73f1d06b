//! The state that all pages share.

use std::ops::Deref;
use std::sync::Arc;

use dray_bus::Bus;
use dray_store::Store;
use dray_types::{Clock, TenantId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cookie::ConsoleCookie;
use crate::guard::OwnOrigins;
use crate::health::SystemHealth;
use crate::index::EventIndex;
use crate::link::LinkVerifier;
use crate::oidc::OidcLogin;
use crate::playground::agent::AgentClient;
use crate::playground::conversation::ConversationStore;
use crate::replay::job::ReplayStore;
use crate::rules_in_force::PolicyBucketReader;
use crate::session::SessionStore;
use crate::settings::{ConfigValue, ConsoleSettings};
use crate::streams::OpenStreams;

/// Handles of one console; clones share them.
#[derive(Clone)]
pub(crate) struct ConsoleState(Arc<ConsoleParts>);

pub(crate) struct ConsoleParts {
    pub(crate) bus: Bus,
    pub(crate) store: Option<Store>,
    pub(crate) clock: Clock,
    pub(crate) tenant: TenantId,
    pub(crate) config: Vec<ConfigValue>,
    pub(crate) settings: ConsoleSettings,
    pub(crate) origins: OwnOrigins,
    pub(crate) cookie: ConsoleCookie,
    pub(crate) sessions: SessionStore,
    pub(crate) links: LinkVerifier,
    /// Logins through an identity provider, where one is configured.
    pub(crate) oidc: Option<OidcLogin>,
    /// Base of the console's URLs.
    pub(crate) base_url: String,
    pub(crate) index: Arc<EventIndex>,
    pub(crate) health: watch::Receiver<SystemHealth>,
    /// The orchestrator of the playground.
    pub(crate) agents: Option<Arc<AgentClient>>,
    pub(crate) policy_bucket: Option<Arc<dyn PolicyBucketReader>>,
    pub(crate) conversations: ConversationStore,
    pub(crate) replays: ReplayStore,
    /// Turns of the playground, replays and forms that are handled.
    pub(crate) turns: TaskTracker,
    /// Streams of live pages and of the playground.
    pub(crate) streams: OpenStreams,
    /// Ends streams of open pages, so that the server can drain.
    pub(crate) stop: CancellationToken,
}

impl ConsoleState {
    pub(crate) fn new(parts: ConsoleParts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }
}

impl Deref for ConsoleState {
    type Target = ConsoleParts;

    fn deref(&self) -> &ConsoleParts {
        &self.0
    }
}
