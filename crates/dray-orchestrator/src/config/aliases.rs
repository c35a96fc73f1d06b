//! The environment variables of the backend in whose place this service can run.

use dray_service::config::{AliasParser, AliasValue, VariableAlias, parse};
use serde_json::Value;

const fn variable_alias(
    variable: &'static str,
    field: &'static str,
    parse: AliasParser,
) -> VariableAlias {
    VariableAlias {
        variable,
        field,
        parse,
    }
}

/// Every variable that sets a field here, and those that are accepted but not read, with the reason.
pub(super) const VARIABLE_ALIASES: [VariableAlias; 29] = [
    variable_alias("DIAL_URL", "dial_url", parse::parse_text),
    variable_alias("DIAL_API_VERSION", "dial_api_version", parse::parse_text),
    variable_alias("APP_SCHEMA_ID", "app_schema_id", parse::parse_text),
    variable_alias(
        "PROXY_LANGUAGE_HEADER",
        "language_header",
        parse::parse_text,
    ),
    variable_alias("LOG_PAYLOADS", "log_payloads", parse_flag),
    variable_alias(
        "LOG_PAYLOADS_MAX_LENGTH",
        "log_payloads_max_length",
        parse::parse_integer,
    ),
    variable_alias(
        "DEFAULT_AGENT_MAX_ITERATIONS",
        "max_iterations",
        parse_iterations,
    ),
    variable_alias(
        "DEFAULT_ORCHESTRATOR_DEPLOYMENT_ID",
        "default_orchestrator_deployment",
        parse::parse_text,
    ),
    variable_alias(
        "ALLOW_OVERRIDE_SYSTEM_MESSAGE",
        "allow_override_system_message",
        parse_flag,
    ),
    variable_alias("SHOW_USAGE_STATISTICS", "show_usage_statistics", parse_flag),
    variable_alias(
        "SHOW_EXECUTION_TIME_STAGE",
        "show_execution_time_stage",
        parse_flag,
    ),
    variable_alias(
        "PY_INTERPRETER_LOCAL_RUN",
        "py_interpreter.url",
        no_local_run,
    ),
    variable_alias(
        "PY_INTERPRETER_URL",
        "py_interpreter.url",
        parse::parse_text,
    ),
    variable_alias(
        "PY_INTERPRETER_API_KEY",
        "py_interpreter.api_key",
        parse::parse_text,
    ),
    variable_alias(
        "PY_INTERPRETER_DEFAULT_SESSION_ID",
        "py_interpreter.default_session_id",
        parse::parse_text,
    ),
    variable_alias(
        "PY_INTERPRETER_CLIENT_MAX_RETRIES",
        "py_interpreter.url",
        no_retries,
    ),
    variable_alias(
        "PY_INTERPRETER_CLIENT_TIMEOUT",
        "tool_timeout",
        no_separate_timeout,
    ),
    variable_alias(
        "DEFAULT_TOOL_TIMEOUT_SECONDS",
        "tool_timeout",
        parse::parse_seconds,
    ),
    variable_alias(
        "DEFAULT_FILE_LOADING_SIZE_LIMIT",
        "files.size_limit",
        parse::parse_bytes,
    ),
    variable_alias(
        "DEFAULT_STAGE_DISPLAY_LEVEL",
        "stage_display_level",
        parse_level,
    ),
    variable_alias(
        "TOOL_CALL_RESULT_OFFLOAD__ENABLED_BY_DEFAULT",
        "files.offload",
        parse_flag,
    ),
    variable_alias(
        "TOOL_CALL_RESULT_OFFLOAD__SIZE_THRESHOLD",
        "files.offload_threshold",
        parse::parse_bytes,
    ),
    variable_alias(
        "TOOL_CALL_RESULT_OFFLOAD__EXCLUDED_TOOLS",
        "files.offload_excluded",
        parse::parse_list,
    ),
    variable_alias("ENABLE_PREVIEW_FEATURES", "preview", parse_flag),
    variable_alias("PREDEFINED_EXTRA_PATHS", "layers", parse_paths),
    variable_alias("PREDEFINED_BASE_PATH", "layers", no_base_path),
    variable_alias("CONFIG_PROMPT_MAPPING", "prompt_mapping", parse_mapping),
    variable_alias(
        "DIAL_INTERACTIVE_LOGIN_TIMEOUT_SECONDS",
        "interactive_login_timeout",
        parse::parse_seconds,
    ),
    variable_alias("USE_SYSTEM_CA_CERTS", "dial_ca_file", no_system_store),
];

/// A switch in the spellings that operators use.
fn parse_flag(text: &str) -> Result<AliasValue, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(AliasValue::Value(Value::Bool(true))),
        "false" | "0" | "no" | "off" => Ok(AliasValue::Value(Value::Bool(false))),
        "" => Ok(AliasValue::Unset("is blank and counts as unset")),
        _ => Err("must be `true` or `false`".to_owned()),
    }
}

fn parse_iterations(text: &str) -> Result<AliasValue, String> {
    match text.trim().parse::<i64>() {
        Ok(number @ 1..=1_000_000) => Ok(AliasValue::Value(number.into())),
        // The backend's documentation calls -1 infinite, although its check fails immediately (quickapps 7).
        Ok(-1) => {
            Err("must be 1 to 1000000: a turn always has a limit, and -1 is not valid".to_owned())
        }
        _ => Err("must be 1 to 1000000".to_owned()),
    }
}

fn parse_level(text: &str) -> Result<AliasValue, String> {
    let level = text.trim().to_ascii_lowercase();
    match level.as_str() {
        "none" | "error" | "info" | "debug" => Ok(AliasValue::Value(level.into())),
        "" => Ok(AliasValue::Unset("is blank and counts as unset")),
        _ => Err("must be none, error, info or debug".to_owned()),
    }
}

/// A JSON list of directories or, as in early releases, directories separated by colons.
fn parse_paths(text: &str) -> Result<AliasValue, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(AliasValue::Unset("is blank and counts as unset"));
    }
    // Releases of the backend before the JSON list took paths separated by colons (quickapps 7).
    if text.starts_with('[') {
        let paths: Vec<String> = serde_json::from_str(text).map_err(|_| {
            "must be a JSON list of directories, or directories separated by colons".to_owned()
        })?;
        return Ok(AliasValue::Value(paths.into()));
    }
    let paths: Vec<_> = text
        .split(':')
        .map(str::trim)
        .filter(|path| !path.is_empty())
        .collect();
    Ok(AliasValue::Value(paths.into()))
}

fn parse_mapping(text: &str) -> Result<AliasValue, String> {
    if text.trim().is_empty() {
        return Ok(AliasValue::Unset("is blank and counts as unset"));
    }
    let mapping: std::collections::BTreeMap<String, Vec<String>> = serde_json::from_str(text)
        .map_err(|_| "must be a JSON object of prompts, each with a list of models".to_owned())?;
    let members = mapping
        .into_iter()
        .map(|(prompt, models)| (prompt, Value::from(models)));
    Ok(AliasValue::Value(Value::Object(members.collect())))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all parsers")]
fn no_separate_timeout(_: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Unset(
        "is deprecated and not read: calls of the interpreter keep to DEFAULT_TOOL_TIMEOUT_SECONDS",
    ))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all parsers")]
fn no_local_run(_: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Unset(
        "is not read: name the interpreter in PY_INTERPRETER_URL",
    ))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all parsers")]
fn no_retries(_: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Unset(
        "is not read: code has effects, and is never run twice",
    ))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all parsers")]
fn no_base_path(_: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Unset(
        "is deprecated and not read: name directories in PREDEFINED_EXTRA_PATHS",
    ))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of all parsers")]
fn no_system_store(_: &str) -> Result<AliasValue, String> {
    Ok(AliasValue::Unset(
        "is not read: name a file of authorities in orchestrator.dial_ca_file",
    ))
}
