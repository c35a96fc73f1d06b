//! The HTTP server of the console.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use dray_http_server::{ConnectionLimits, DrainOutcome, serve, with_text_paths};
use dray_types::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::cookie::ConsoleCookie;
use crate::guard::{self, OwnOrigins};
use crate::health::{self, HealthReporter};
use crate::index::{EventIndex, EventSource, follow_events};
use crate::link::{LinkVerifier, LoginLink};
use crate::login::LOGIN_PATH;
use crate::oidc::{self, OidcLogin, OidcProblem, OidcSettings};
use crate::page::{PAGE_ASSETS, missing_page, refused_method};
use crate::playground::agent::AgentClient;
use crate::playground::conversation::ConversationStore;
use crate::replay::job::ReplayStore;
use crate::respond::see_other;
use crate::session::SessionStore;
use crate::settings::{AgentEndpoint, ConsoleSettings, ConsoleSystem};
use crate::state::{ConsoleParts, ConsoleState};
use crate::streams::OpenStreams;
use crate::{
    deliveries, files, letters, live, login, operation, playground, policy, previews, questions,
    replay, sandbox_files, sandboxes, sending, setup,
};

/// How long open responses may take to end after the stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A bound console that serves nothing yet.
#[derive(Debug)]
pub struct ConsoleServer {
    listener: TcpListener,
    address: SocketAddr,
    public_url: Option<Url>,
    settings: ConsoleSettings,
    oidc: Option<OidcLogin>,
    clock: Clock,
    /// Links from before this instant are refused.
    started_ms: u64,
}

/// The console cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The public URL has another scheme than http and https, no host, or more than a host and a port.
    #[error(
        "the public URL of the console must be http or https with a host and no path, not `{0}`"
    )]
    PublicUrl(String),
    /// Other machines reach the address, and no URL with TLS is set for them.
    #[error(
        "other machines reach {0}: set the https URL of the proxy before it, or listen on loopback"
    )]
    Exposed(SocketAddr),
    /// A setting of the identity provider cannot be used.
    #[error("the setting `{setting}` of the identity provider {reason}")]
    Oidc {
        /// Name of the setting.
        setting: &'static str,
        /// The requirement, as the rest of a sentence about the setting.
        reason: String,
    },
    /// The client for the identity provider cannot be made.
    #[error("the file with authorities for the identity provider cannot be used")]
    OidcClient(#[source] dray_http::HttpError),
    /// The address cannot be bound.
    #[error("could not listen on {address}")]
    Bind {
        /// The address that was requested.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl ConsoleServer {
    /// Binds the address. An address that other machines reach needs a public `https` URL, because logins and users'
    /// files must not travel unencrypted. `clock` gives the time for deadlines, logins and sessions.
    ///
    /// # Errors
    ///
    /// [`ConsoleError`].
    pub async fn bind(
        address: SocketAddr,
        settings: ConsoleSettings,
        clock: Clock,
    ) -> Result<Self, ConsoleError> {
        let public_url = settings.public_url.as_deref().map(parse_url).transpose()?;
        let is_encrypted = public_url
            .as_ref()
            .is_some_and(|url| url.scheme() == "https");
        if !address.ip().is_loopback() && !is_encrypted {
            return Err(ConsoleError::Exposed(address));
        }
        if let Some(problem) = settings.oidc.iter().flat_map(OidcSettings::problems).next() {
            let OidcProblem { setting, reason } = problem;
            return Err(ConsoleError::Oidc { setting, reason });
        }
        let bind_error = |source| ConsoleError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        let base_url = base_url(public_url.as_ref(), address);
        let cookie = ConsoleCookie::for_attempt(address.port(), is_encrypted);
        let oidc = settings.oidc.clone();
        let oidc = oidc.map(|oidc| OidcLogin::open(oidc, &base_url, cookie, clock.clone()));
        Ok(Self {
            listener,
            address,
            public_url,
            settings,
            oidc: oidc.transpose().map_err(ConsoleError::OidcClient)?,
            started_ms: clock.now_ms(),
            clock,
        })
    }

    /// The address that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base of the console's URLs, such as `http://127.0.0.1:7300`. Port 0 was replaced by the port that was bound.
    pub fn base_url(&self) -> String {
        base_url(self.public_url.as_ref(), self.address)
    }

    /// A new URL that logs in to this console once, with the highest role that it offers.
    pub fn login_url(&self, system: &ConsoleSystem) -> String {
        let role = self.settings.highest_role;
        let link = LoginLink::new(&system.tenant, role, self.clock.now_ms());
        link.url(&self.base_url(), system.link_keys.current())
    }

    /// Serves pages until `stop` is cancelled. Pages that are still sent after 3 s are cut off.
    pub async fn serve(self, system: ConsoleSystem, stop: CancellationToken) {
        let (reporter, health) = HealthReporter::new();
        let index = Arc::new(EventIndex::new(self.settings.max_events));
        // Dropping the set aborts its tasks, even when the listener fails before `stop` is cancelled.
        let mut tasks = JoinSet::new();
        tasks.spawn(health::watch_system(
            system.bus.clone(),
            system.store.clone(),
            reporter.clone(),
            stop.clone(),
        ));
        // Two streams with two readers, so that many audit events do not delay the others.
        for source in [EventSource::Event, EventSource::Audit] {
            tasks.spawn(follow_events(
                system.bus.clone(),
                system.tenant.clone(),
                source,
                Arc::clone(&index),
                reporter.clone(),
                stop.clone(),
            ));
        }
        let is_secure = self
            .public_url
            .as_ref()
            .is_some_and(|url| url.scheme() == "https");
        let role = self.settings.highest_role;
        let base_url = self.base_url();
        let turns = TaskTracker::new();
        let state = ConsoleState::new(ConsoleParts {
            origins: OwnOrigins::new(self.address, self.public_url.as_ref()),
            cookie: ConsoleCookie::for_session(self.address.port(), is_secure),
            base_url,
            sessions: SessionStore::default(),
            links: LinkVerifier::new(system.link_keys, &system.tenant, role, self.started_ms),
            oidc: self.oidc,
            bus: system.bus,
            store: system.store,
            clock: self.clock,
            tenant: system.tenant,
            config: system.config,
            settings: self.settings,
            index,
            health,
            agents: system.agents.as_ref().and_then(open_agents),
            policy_bucket: system.policy_bucket,
            conversations: ConversationStore::default(),
            replays: ReplayStore::default(),
            turns: turns.clone(),
            streams: OpenStreams::default(),
            stop: stop.clone(),
        });
        let limits = ConnectionLimits {
            drain_timeout: Some(STOP_TIMEOUT),
            ..ConnectionLimits::default()
        };
        let router = with_text_paths(router(state));
        if serve(self.listener, router, limits, stop).await == DrainOutcome::CutOff {
            tracing::debug!("pages were cut off by the end of the console");
        }
        end_turns(&turns).await;
    }
}

/// Waits until turns and replays, whose token is cancelled already, and the actions of forms have published the event of
/// their end.
async fn end_turns(turns: &TaskTracker) {
    turns.close();
    if tokio::time::timeout(STOP_TIMEOUT, turns.wait())
        .await
        .is_err()
    {
        tracing::warn!("the end of an action or of a turn of the playground was not recorded");
    }
}

/// The client of the playground's orchestrator.
fn open_agents(endpoint: &AgentEndpoint) -> Option<Arc<AgentClient>> {
    match AgentClient::new(endpoint) {
        Ok(agents) => Some(Arc::new(agents)),
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the playground has no client for the orchestrator"
            );
            None
        }
    }
}

fn base_url(public_url: Option<&Url>, address: SocketAddr) -> String {
    match public_url {
        Some(url) => url.origin().ascii_serialization(),
        None => format!("http://{address}"),
    }
}

fn parse_url(text: &str) -> Result<Url, ConsoleError> {
    let invalid_url = || ConsoleError::PublicUrl(text.to_owned());
    let url = Url::parse(text).map_err(|_| invalid_url())?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if is_web && is_bare {
        Ok(url)
    } else {
        Err(invalid_url())
    }
}

fn playground_routes() -> Router<ConsoleState> {
    Router::new()
        .route("/playground", get(playground::playground_page))
        .route("/playground/{id}", get(playground::conversation_page))
        .route(
            "/playground/{id}/requests/{turn}",
            get(playground::request_page),
        )
        .route(
            "/playground/{id}/files/{turn}/{number}",
            get(playground::answer_file),
        )
}

/// Every address that the script of an open page requests by itself. Such a request does not count as use of the session.
fn open_page_routes(state: &ConsoleState) -> Router<ConsoleState> {
    let checked = middleware::from_fn_with_state(state.clone(), guard::check_page_request);
    Router::new()
        .route("/status", get(setup::status_json))
        .route("/live/events", get(live::live_events))
        .route("/live/charts", get(live::chart_fragment))
        .route("/policy/replay/progress", get(replay::progress_fragment))
        .route(
            "/playground/{id}/events",
            get(playground::stream::answer_events),
        )
        .method_not_allowed_fallback(refused_method)
        .layer(checked)
}

/// Every address that takes a form, with its handler: the only place with such routes, so that a test sends to each of
/// them.
pub(crate) fn form_routes() -> Vec<(&'static str, MethodRouter<ConsoleState>)> {
    // Handlers of forms with files count their bytes themselves while they arrive.
    let unlimited = DefaultBodyLimit::disable;
    vec![
        ("/logout", post(login::log_out)),
        ("/deliveries/resend", post(deliveries::resend_delivery)),
        ("/letters/redrive", post(letters::redrive_selected)),
        ("/policy", post(policy::judged_page)),
        (
            "/policy/replay",
            post(replay::begin_replay).layer(unlimited()),
        ),
        ("/policy/replay/cancel", post(replay::cancel_replay)),
        ("/questions/answer", post(questions::answer_question)),
        ("/files/{digest}/content", post(files::get_content)),
        ("/sandboxes/file", post(sandbox_files::get_file)),
        (
            "/sandboxes/put",
            post(sandbox_files::put_file).layer(unlimited()),
        ),
        (previews::PREVIEW_PATH, post(previews::create_preview)),
        ("/sandboxes/preview/revoke", post(previews::revoke_preview)),
        (sending::SEND_PATH, post(sending::send_file)),
        (
            "/playground",
            post(playground::begin_conversation).layer(unlimited()),
        ),
        (
            "/playground/{id}",
            post(playground::send_message).layer(unlimited()),
        ),
        ("/playground/{id}/cancel", post(playground::cancel_turn)),
        ("/playground/{id}/end", post(playground::end_conversation)),
        ("/setup/check", post(setup::checks::check_page)),
    ]
}

fn router(state: ConsoleState) -> Router {
    let mut router = Router::new()
        .route("/", get(async || see_other("/deliveries")))
        .route(LOGIN_PATH, get(login::log_in))
        .route(oidc::BEGIN_PATH, get(oidc::begin_login))
        .route(oidc::RETURN_PATH, get(oidc::complete_login))
        .route(oidc::LOGOUT_RETURN_PATH, get(oidc::logout_return_page))
        .route("/live", get(live::live_page))
        .route("/operations/{operation}", get(operation::operation_page))
        .route("/deliveries", get(deliveries::list_page))
        .route("/letters", get(letters::list_page))
        .route("/letters/{sequence}", get(letters::letter_page))
        .route("/policy", get(policy::empty_page))
        .route("/policy/replay", get(replay::replay_page))
        .route("/questions", get(questions::list_page))
        .route("/files", get(files::list_page))
        .route("/files/{digest}", get(files::file_page))
        .route("/sandboxes", get(sandboxes::browse_page))
        .route(sending::SEND_PATH, get(sending::send_page))
        .merge(playground_routes())
        .route("/setup", get(setup::setup_page));
    for (path, handler) in form_routes() {
        router = router.route(path, handler);
    }
    for asset in PAGE_ASSETS {
        router = router.route(
            asset.path,
            get(move || std::future::ready(asset.response())),
        );
    }
    router
        .method_not_allowed_fallback(refused_method)
        .fallback(missing_page)
        .layer(middleware::from_fn_with_state(
            state.clone(),
            guard::check_request,
        ))
        .merge(open_page_routes(&state))
        .with_state(state)
}
