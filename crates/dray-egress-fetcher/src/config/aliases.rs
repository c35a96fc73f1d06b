//! The variables of egress-security 20, each with its own strict syntax.

use dray_guard::policy::parse_switch;
use dray_guard::{MaxRedirects, parse_admin_list};
use dray_service::config::parse::{
    parse_bytes, parse_integer, parse_list, parse_seconds, parse_text,
};
use dray_service::config::{AliasValue, VariableAlias};

const fn variable_alias(
    variable: &'static str,
    field: &'static str,
    parse: fn(&str) -> Result<AliasValue, String>,
) -> VariableAlias {
    VariableAlias {
        variable,
        field,
        parse,
    }
}

/// Every variable. `EXTERNAL_URL_FETCH_` is a strict prefix: a name that is not here is a start-up error.
pub(super) static VARIABLE_ALIASES: [VariableAlias; 24] = [
    variable_alias("EXTERNAL_URL_FETCH_ENABLED", "enabled", switch_value),
    variable_alias(
        "EXTERNAL_URL_FETCH_HOST_ALLOWLIST",
        "host_allowlist",
        parse_allowlist,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_REDIRECTS",
        "max_redirects",
        parse_redirect_limit,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_CONNECT_TIMEOUT_SECONDS",
        "connect_timeout",
        parse_seconds,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_TOTAL_TIMEOUT_SECONDS",
        "total_timeout",
        parse_seconds,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_BYTES_CEILING",
        "max_bytes_ceiling",
        parse_bytes,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_ALLOWED_PORTS",
        "allowed_ports",
        parse_text,
    ),
    variable_alias("EXTERNAL_URL_FETCH_HTTPS_ONLY", "https_only", switch_value),
    variable_alias(
        "EXTERNAL_URL_FETCH_ALLOW_DOWNGRADE",
        "allow_downgrade",
        switch_value,
    ),
    variable_alias("EXTERNAL_URL_FETCH_IPV6", "ipv6", switch_value),
    variable_alias("EXTERNAL_URL_FETCH_DNS_SERVERS", "dns_servers", parse_list),
    variable_alias(
        "EXTERNAL_URL_FETCH_NAT64_PREFIXES",
        "nat64_prefixes",
        parse_list,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_EXTRA_BLOCKED_CIDRS",
        "extra_blocked_cidrs",
        parse_list,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_EXTRA_BLOCKED_HOSTS",
        "extra_blocked_hosts",
        parse_list,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_PRIVATE_CIDRS",
        "private_cidrs",
        parse_list,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_AUDIT_REQUIRED",
        "audit_required",
        switch_value,
    ),
    variable_alias("EXTERNAL_URL_FETCH_CA_BUNDLE", "ca_bundle", parse_text),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_CONCURRENCY",
        "max_concurrency",
        parse_integer,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_CONCURRENCY_PER_HOST",
        "max_per_host",
        parse_integer,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_PER_HOST",
        "max_per_host",
        parse_integer,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_CONCURRENCY_PER_APP",
        "max_per_app",
        parse_integer,
    ),
    variable_alias(
        "EXTERNAL_URL_FETCH_MAX_PER_APP",
        "max_per_app",
        parse_integer,
    ),
    variable_alias("EXTERNAL_URL_FETCH_USER_AGENT", "user_agent", parse_text),
    variable_alias("KUBERNETES_SERVICE_HOST", "kubernetes_api", parse_text),
];

/// 3.2: `true` or `false` in any case, and nothing else.
fn switch_value(text: &str) -> Result<AliasValue, String> {
    parse_switch(text)
        .map(|value| AliasValue::Value(value.into()))
        .map_err(|error| error.to_string())
}

/// P-4: blank means no list, which is worth a warning; anything else must yield patterns.
fn parse_allowlist(text: &str) -> Result<AliasValue, String> {
    match parse_admin_list(text) {
        Ok(None) => Ok(AliasValue::Unset(
            "is blank and counts as unset: every public host is allowed",
        )),
        Ok(Some(patterns)) => {
            let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
            Ok(AliasValue::Value(patterns.into()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// a plain number from 0 to 10.
fn parse_redirect_limit(text: &str) -> Result<AliasValue, String> {
    text.parse::<MaxRedirects>()
        .map(|limit| AliasValue::Value(limit.get().into()))
        .map_err(|error| error.to_string())
}
