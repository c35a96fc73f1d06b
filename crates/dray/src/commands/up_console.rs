//! The console of `dray up`: bound before the services start, and serving for as long as the host runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dray_console::{
    AgentEndpoint, ConsoleError, ConsoleRole, ConsoleServer, ConsoleSettings, ConsoleSystem,
    LINK_KEY_PURPOSE,
};
use dray_orchestrator::Config as OrchestratorConfig;
use dray_service::RunningHost;
use dray_service::config::LoadedConfig;
use dray_service::host::ErrorChain;
use dray_types::{Clock, TenantId};

use crate::cli::{DEFAULT_CONSOLE, UpArgs};
use crate::commands::console;
use crate::commands::policy_bucket::PolicyBucketKeys;
use crate::outcome::{CommandFailure, print_note};

/// The entry of `orchestrator.clients` whose key the playground uses.
const CONSOLE_CLIENT: &str = "console";

/// A bound console that does not serve requests yet.
pub(crate) struct BoundConsole {
    server: ConsoleServer,
    tenant: TenantId,
}

impl BoundConsole {
    /// Binds the wanted address. Without one, the default address or a free port of loopback; `None` with
    /// `--no-console`, and for single services (`--only`).
    pub(crate) async fn bind(
        up: &UpArgs,
        tenant: TenantId,
        config: &LoadedConfig,
    ) -> Result<Option<Self>, CommandFailure> {
        let options = &up.console;
        let settings = ConsoleSettings {
            public_url: options.console_url.clone(),
            // The person who starts the system can do all of this with the other commands as well.
            highest_role: ConsoleRole::Act,
            oidc: console::oidc_settings(config)?,
            ..ConsoleSettings::default()
        };
        let server = match options.console {
            Some(address) => {
                console::bind_console(address, settings, Clock::system(), "--console").await?
            }
            None if options.no_console || !up.only.is_empty() => return Ok(None),
            None => match bind_default(settings).await {
                Ok(server) => server,
                // The start fails: without the provider people could not log in, and the operator would not notice.
                Err(error @ (ConsoleError::Oidc { .. } | ConsoleError::OidcClient(_))) => {
                    return Err(console::console_failure(&error, "--console"));
                }
                Err(error) => {
                    print_note(&format!("no console: {}", ErrorChain(&error)));
                    return Ok(None);
                }
            },
        };
        Ok(Some(Self { server, tenant }))
    }

    /// Begins to serve over this host, and returns the URL that logs in.
    pub(crate) fn start(self, running: &RunningHost) -> String {
        let context = running.context();
        let system = ConsoleSystem {
            bus: context.bus.clone(),
            store: Some(context.store.clone()),
            tenant: self.tenant,
            config: console::config_values(running.config()),
            agents: agent_endpoint(running),
            policy_bucket: Some(PolicyBucketKeys::reader(&context.bus)),
            link_keys: context.store.derive_keys(LINK_KEY_PURPOSE),
        };
        let url = self.server.login_url(&system);
        let listeners = &context.listeners;
        let serving = self.server.serve(system, listeners.stop.clone());
        listeners.spawn(serving);
        url
    }
}

/// The orchestrator of this process. If the orchestrator requires keys, the console uses the key of its client
/// `console`, so an operator decides what the playground may use. Without that key the orchestrator refuses, and the
/// page says so.
fn agent_endpoint(running: &RunningHost) -> Option<AgentEndpoint> {
    // This is the bound address: the configuration may say port 0.
    let address = running.context().listen_addresses.find("chat")?;
    let config = running
        .config()
        .section::<OrchestratorConfig>("orchestrator");
    let clients = config.ok()?.clients;
    // A listener of every address is reached over loopback, as its clients of this machine do.
    let host = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    Some(AgentEndpoint {
        url: format!("http://{}", SocketAddr::new(host, address.port())),
        key: clients.get(CONSOLE_CLIENT).cloned(),
    })
}

/// The default address. If it is in use, for example by another system on this machine, a free port. The URL is always
/// printed.
async fn bind_default(settings: ConsoleSettings) -> Result<ConsoleServer, ConsoleError> {
    let free = ([127, 0, 0, 1], 0).into();
    let Ok(address) = DEFAULT_CONSOLE.parse() else {
        return ConsoleServer::bind(free, settings, Clock::system()).await;
    };
    match ConsoleServer::bind(address, settings.clone(), Clock::system()).await {
        Err(ConsoleError::Bind { .. }) => {
            print_note(&format!(
                "{address} is taken, so the console listens on a free port"
            ));
            ConsoleServer::bind(free, settings, Clock::system()).await
        }
        other => other,
    }
}
