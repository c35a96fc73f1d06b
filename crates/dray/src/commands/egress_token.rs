//! `dray egress token`: a token for the forward proxy, made with the key of the configuration. Needs no running system.

use dray_guard::HostPatterns;
use dray_guard::proxy_token::{MAX_SOCKS_TOKEN_BYTES, ProxyIdentity, TokenKeys};
use dray_types::{Clock, Period};
use serde_json::json;

use crate::cli::{EgressTokenArgs, GlobalOptions};
use crate::context;
use crate::outcome::{CommandFailure, print_line, print_note};

/// Longest lifetime of a token that is made here.
const MAX_TOKEN_TTL: Period = Period::secs(30 * 24 * 3600);

/// Prints a token for the identity that the options name.
pub(crate) fn print_token(
    global: &GlobalOptions,
    token: &EgressTokenArgs,
) -> Result<(), CommandFailure> {
    let loaded = context::load_config(&context::config_sources(global)?)?;
    let config: dray_egress_fetcher::Config = context::config_section(&loaded, "egress-fetcher")?;
    let Some(key) = &config.proxy.token_key else {
        return Err(CommandFailure::Configuration(
            "egress-fetcher.proxy.token_key is not set: it is the key of tokens, at least 32 bytes"
                .to_owned(),
        ));
    };
    let keys = TokenKeys::new(key, None).map_err(|error| {
        CommandFailure::Configuration(format!("egress-fetcher.proxy.token_key: {error}"))
    })?;
    let identity = identity_of(global, token)?;
    let text = keys
        .mint(&identity)
        .map_err(|error| CommandFailure::Usage(error.to_string()))?;
    if global.json {
        let line = json!({ "token": text, "expires_ms": identity.expires_s.saturating_mul(1000) });
        print_line(&line.to_string());
    } else {
        print_line(&text);
    }
    // The password field of SOCKS5 has one byte for its length (RFC 1929).
    if text.len() > MAX_SOCKS_TOKEN_BYTES {
        print_note("the token is too long for SOCKS5; use it over HTTP, or name fewer hosts");
    }
    Ok(())
}

fn identity_of(
    global: &GlobalOptions,
    token: &EgressTokenArgs,
) -> Result<ProxyIdentity, CommandFailure> {
    if token.ttl == Period::default() || token.ttl > MAX_TOKEN_TTL {
        return Err(CommandFailure::Usage(format!(
            "--ttl must be more than 0 and at most {MAX_TOKEN_TTL}"
        )));
    }
    // The hosts are checked here, so that the author of the token gets the error; otherwise the proxy would refuse
    // every host of the session.
    HostPatterns::parse(&token.allow)
        .map_err(|error| CommandFailure::Usage(format!("--allow: {error}")))?;
    let expires_ms = Clock::system()
        .now_ms()
        .saturating_add(token.ttl.as_millis());
    Ok(ProxyIdentity {
        tenant: context::tenant_of(global)?,
        session: token.session.clone(),
        app: token.app.clone(),
        // Claims have whole seconds; a token never ends before the time that was requested.
        expires_s: expires_ms.div_ceil(1000),
        allow: (!token.allow.is_empty()).then(|| token.allow.clone()),
        certificate: None,
    })
}
