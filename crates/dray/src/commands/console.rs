//! `dray console`: the console over a running system, and links that log in to one.

use std::net::SocketAddr;

use dray_console::{
    AgentEndpoint, ConfigValue, ConsoleError, ConsoleServer, ConsoleSettings, ConsoleSystem,
    LINK_KEY_PURPOSE, LoginLink, OidcSettings,
};
use dray_dial::DialOrigin;
use dray_service::config::LoadedConfig;
use dray_service::host::ErrorChain;
use dray_types::Clock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli::{ConsoleArgs, ConsoleCommand, ConsoleLinkArgs, ConsoleLinkCommand, GlobalOptions};
use crate::commands::mcp::termination;
use crate::commands::policy_bucket::PolicyBucketKeys;
use crate::console_section::ConsoleSection;
use crate::context::{self, SystemConnection};
use crate::outcome::{CommandFailure, print_line, print_note};

/// Serves until a signal ends the command, or prints a link.
pub(crate) async fn run(
    global: &GlobalOptions,
    console: &ConsoleCommand,
) -> Result<(), CommandFailure> {
    match &console.link {
        Some(ConsoleLinkCommand::Link(link)) => print_link(global, link).await,
        None => serve(global, &console.serve).await,
    }
}

async fn serve(global: &GlobalOptions, console: &ConsoleArgs) -> Result<(), CommandFailure> {
    let sources = console.oidc.configure(context::config_sources(global)?);
    let config = context::load_config(&sources)?;
    let settings = ConsoleSettings {
        public_url: console.url.clone(),
        highest_role: console.role,
        oidc: oidc_settings(&config)?,
        ..ConsoleSettings::default()
    };
    let agents = agent_endpoint(console)?;
    let server = bind_console(console.listen, settings, Clock::system(), "--listen").await?;
    let connection = SystemConnection::open_running(global).await?;
    let store = connection.store()?.clone();
    let system = ConsoleSystem {
        bus: connection.bus.clone(),
        link_keys: store.derive_keys(LINK_KEY_PURPOSE),
        store: Some(store),
        tenant: connection.tenant().clone(),
        config: config_values(&config),
        agents,
        policy_bucket: Some(PolicyBucketKeys::reader(&connection.bus)),
    };
    let url = server.login_url(&system);
    let stop = CancellationToken::new();
    let serving = server.serve(system, stop.clone());
    print_note(&console_note(&url));
    tokio::pin!(serving);
    let ended = tokio::select! {
        () = &mut serving => Ok(()),
        signalled = termination() => {
            stop.cancel();
            serving.await;
            signalled
        }
    };
    connection.close().await;
    ended
}

/// The identity provider of the configuration.
pub(crate) fn oidc_settings(config: &LoadedConfig) -> Result<Option<OidcSettings>, CommandFailure> {
    let section: ConsoleSection = context::config_section(config, "console")?;
    Ok(section.oidc.settings())
}

/// The orchestrator that the command line names.
fn agent_endpoint(console: &ConsoleArgs) -> Result<Option<AgentEndpoint>, CommandFailure> {
    let Some(url) = &console.agents else {
        return Ok(None);
    };
    // The parser of origins refuses users and queries, which a page would show.
    DialOrigin::parse(url).map_err(|_| {
        CommandFailure::Usage(
            "--agents is not an http or https URL without user, query and fragment".to_owned(),
        )
    })?;
    let key = console.agents_key_file.as_deref();
    let key = key.map(context::read_key_file);
    Ok(Some(AgentEndpoint {
        url: url.clone(),
        key: key.transpose()?,
    }))
}

/// Prints a link of a console that shares this store.
async fn print_link(global: &GlobalOptions, link: &ConsoleLinkArgs) -> Result<(), CommandFailure> {
    // The parser of origins refuses users and queries; the link has a query of its own.
    DialOrigin::parse(&link.console).map_err(|_| {
        CommandFailure::Usage(
            "--console is not an http or https URL without user, query and fragment".to_owned(),
        )
    })?;
    let connection = SystemConnection::open_keys(global).await?;
    let keys = connection
        .store()
        .map(|store| store.derive_keys(LINK_KEY_PURPOSE));
    let tenant = connection.tenant().clone();
    connection.close().await;
    let made = LoginLink::new(&tenant, link.role, Clock::system().now_ms());
    let url = made.url(&link.console, keys?.current());
    if global.json {
        print_line(&json!({ "url": url, "role": link.role.as_str() }).to_string());
    } else {
        print_line(&url);
    }
    Ok(())
}

/// Binds the address of a console. `flag` names the option of the address, for failures.
pub(crate) async fn bind_console(
    address: SocketAddr,
    settings: ConsoleSettings,
    clock: Clock,
    flag: &str,
) -> Result<ConsoleServer, CommandFailure> {
    let bound = ConsoleServer::bind(address, settings, clock).await;
    bound.map_err(|error| console_failure(&error, flag))
}

/// Maps the error of a console that cannot start to a failure of the command. `flag` names its address.
pub(crate) fn console_failure(error: &ConsoleError, flag: &str) -> CommandFailure {
    match error {
        ConsoleError::PublicUrl(_)
        | ConsoleError::Exposed(_)
        | ConsoleError::Oidc { .. }
        | ConsoleError::OidcClient(_) => CommandFailure::Usage(ErrorChain(error).to_string()),
        ConsoleError::Bind { .. } => CommandFailure::Unreachable {
            description: ErrorChain(error).to_string(),
            advice: format!(
                "End the program that uses the address, or name another one: {flag} ADDRESS."
            ),
        },
    }
}

/// The line that names the console and how to get in.
pub(crate) fn console_note(login_url: &str) -> String {
    format!("console: {login_url} (works once, within 10 minutes; another: dray console link)")
}

/// Every value of a configuration with its source, without secrets.
pub(crate) fn config_values(config: &LoadedConfig) -> Vec<ConfigValue> {
    let entries = config.report().entries.into_iter();
    let values = entries.map(|entry| ConfigValue {
        key: entry.key,
        value: entry.value.to_string(),
        source: entry.source,
    });
    values.collect()
}
