//! An endpoint as the manifest describes it, checked once.

use dray_agent::manifest::tool::{
    Method, ParameterKind, ParameterLocation, RestEndpoint, RestParameter,
};
use dray_tool::ToolDeclaration;
use serde_json::{Map, Value, json};

use crate::place::{is_header_value, is_settable};

/// The location of an argument in the request, with its constant or default.
#[derive(Clone, Debug)]
pub(crate) struct ArgumentSlot {
    /// Name of the argument.
    pub(crate) argument: String,
    /// The part of the request.
    pub(crate) location: ParameterLocation,
    /// Name of the parameter, header or member there.
    pub(crate) key: String,
    /// A value that the model cannot change.
    pub(crate) constant: Option<Value>,
    /// The value if the model gives none.
    pub(crate) default: Option<Value>,
}

/// An endpoint whose entry in the manifest was checked.
#[derive(Clone, Debug)]
pub(crate) struct PreparedEndpoint {
    pub(crate) method: http::Method,
    /// Address with `{key}` in its path.
    pub(crate) url: String,
    pub(crate) slots: Vec<ArgumentSlot>,
    /// Value of `Accept`: the types of responses that the tool supports.
    pub(crate) accept: String,
}

impl PreparedEndpoint {
    /// Checks the endpoint of a manifest.
    ///
    /// # Errors
    ///
    /// The problem, for the builder; contains no value.
    pub(crate) fn new(endpoint: &RestEndpoint) -> Result<Self, String> {
        let method = &endpoint.rest_api_method_info;
        check_url(&method.method_url)?;
        let parameters = endpoint.open_ai_tool.function.parameters.as_ref();
        let slots: Vec<_> = parameters
            .map(|parameters| parameters.properties.iter().map(argument_slot).collect())
            .unwrap_or_default();
        for slot in &slots {
            check_slot(slot)?;
        }
        let rules = endpoint.common.attachment.clone().unwrap_or_default();
        let accept = format!("{}; charset=utf-8", rules.supported().join(", "));
        if !is_header_value(&accept) {
            return Err(
                "`attachment.supported_types` has a value that is not valid in a header."
                    .to_owned(),
            );
        }
        Ok(Self {
            method: match method.method_type {
                Method::Get => http::Method::GET,
                Method::Post => http::Method::POST,
                Method::Put => http::Method::PUT,
                Method::Delete => http::Method::DELETE,
            },
            url: method.method_url.clone(),
            slots,
            accept,
        })
    }
}

/// The declaration for the model, without constants and without keys that only manifests have.
pub(crate) fn endpoint_declaration(name: String, endpoint: &RestEndpoint) -> ToolDeclaration {
    let function = &endpoint.open_ai_tool.function;
    let mut parameters = Map::new();
    parameters.insert("type".to_owned(), json!("object"));
    let mut properties = Map::new();
    if let Some(arguments) = &function.parameters {
        let visible = arguments.properties.iter();
        for (name, parameter) in visible.filter(|(_, parameter)| parameter.constant.is_none()) {
            properties.insert(name.clone(), Value::Object(parameter_schema(parameter)));
        }
        for (key, value) in &arguments.rest {
            parameters.insert(key.clone(), value.clone());
        }
        let required: Vec<_> = arguments
            .required
            .iter()
            // Constants are not arguments of the model.
            .filter(|name| properties.contains_key(*name))
            .cloned()
            .collect();
        if !required.is_empty() {
            parameters.insert("required".to_owned(), json!(required));
        }
    }
    parameters.insert("properties".to_owned(), Value::Object(properties));
    ToolDeclaration {
        name,
        description: function.description.clone(),
        parameters: Value::Object(parameters),
    }
}

fn parameter_schema(parameter: &RestParameter) -> Map<String, Value> {
    let kind = parameter.kind.map(|kind| match kind {
        ParameterKind::String => "string",
        ParameterKind::Number => "number",
        ParameterKind::Integer => "integer",
        ParameterKind::Boolean => "boolean",
        ParameterKind::Array => "array",
        ParameterKind::Object => "object",
    });
    let mut schema = Map::new();
    schema.extend(kind.map(|kind| ("type".to_owned(), json!(kind))));
    schema.extend(parameter.schema.clone());
    schema
}

fn argument_slot((argument, parameter): &(String, RestParameter)) -> ArgumentSlot {
    ArgumentSlot {
        argument: argument.clone(),
        location: parameter.parameter_info.place,
        key: parameter.parameter_info.key.clone(),
        constant: parameter.constant.clone(),
        default: parameter.default.clone(),
    }
}

fn check_url(text: &str) -> Result<(), String> {
    let wrong = |reason: &str| Err(format!("`method_url` {reason}."));
    let Ok(url) = url::Url::parse(text) else {
        return wrong("is not an absolute URL");
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return wrong("is not an http or https URL");
    }
    // Parsers accept spaces, tabs, backslashes and another number of slashes before a host (WHATWG URL 4.4), so their
    // host may differ from the one in the text.
    let rest = text.trim().get(url.scheme().len()..).unwrap_or_default();
    let Some(rest) = rest.strip_prefix("://") else {
        return wrong("does not begin with `http://` or `https://`");
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end).unwrap_or_default();
    let is_refused = |letter: char| letter == '\\' || letter.is_whitespace() || letter.is_control();
    if authority.is_empty() || authority.contains(is_refused) {
        return wrong("has no plain host after `://`");
    }
    // The parsed address is checked too, in which braces may have been decoded.
    let has_braces =
        |text: &str| text.contains(['{', '}']) || text.to_ascii_lowercase().contains("%7b");
    if has_braces(authority) || has_braces(url.authority()) {
        return wrong("has a parameter in its host: the model does not choose hosts");
    }
    Ok(())
}

fn check_slot(slot: &ArgumentSlot) -> Result<(), String> {
    if slot.location != ParameterLocation::Header {
        return Ok(());
    }
    if !is_settable(&slot.key) {
        return Err(format!(
            "The header of the parameter `{}` cannot be set.",
            slot.argument
        ));
    }
    let texts = [&slot.constant, &slot.default];
    // The size is checked here and not in a call, so that the builder of the agent learns about the problem, and not a
    // user.
    let all_fit = texts
        .into_iter()
        .flatten()
        .all(|value| is_header_value(&crate::place::value_text(value)));
    if all_fit {
        Ok(())
    } else {
        Err(format!(
            "The value of the parameter `{}` is not a valid header value.",
            slot.argument
        ))
    }
}
