//! Single tools of a tool set (quickapps 6.4).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::call::{AttachmentRules, Fallback, ParameterDisplay, ToolDisplay};
use super::default_true;
use super::orchestrator::Deployment;
use super::toolset::Predefined;

/// Settings that all kinds of tools have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Common {
    /// Files of results.
    pub attachment: Option<AttachmentRules>,
    /// The behaviour when a call fails.
    pub fallback_configuration: Option<Fallback>,
    /// Appearance of its stage.
    pub display: Option<ToolDisplay>,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Whether hooks alone may call it: it is hidden from models.
    #[serde(default)]
    pub hidden_from_model: bool,
    /// Longest duration of one call in seconds, before that of the tool set.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 3600))]
    pub timeout_seconds: Option<f64>,
}

/// A tool of HTTP endpoints.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum RestTool {
    /// A tool that the manifest describes, with its address and arguments.
    #[serde(rename = "restapi-tool")]
    Endpoint(Box<RestEndpoint>),
    /// A tool that the service knows by name.
    #[serde(rename = "predefined-tool")]
    Predefined(Predefined),
}

/// An HTTP endpoint.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct RestEndpoint {
    /// The declaration for the model.
    pub open_ai_tool: OpenAiTool<RestParameter>,
    /// Method and URL of the endpoint.
    pub rest_api_method_info: RestMethod,
    /// Settings that all kinds of tools have.
    #[serde(flatten)]
    pub common: Common,
    /// Which responses become files.
    pub response_as_attachment: Option<ResponseAsAttachment>,
}

/// Method and address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct RestMethod {
    /// The address.
    pub method_url: String,
    /// HTTP method of the request.
    pub method_type: Method,
}

/// Methods of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
}

/// Responses that become files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ResponseAsAttachment {
    /// Whether responses become files.
    #[serde(default)]
    pub enabled: bool,
    /// Media types of responses that become files; all if empty.
    #[serde(default)]
    pub content_types: Vec<String>,
    /// Whether the model sees the text as well.
    #[serde(default = "default_true")]
    pub include_body_as_content: bool,
}

/// A tool that calls a deployment of DIAL.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum DeploymentTool {
    /// A deployment that the manifest describes.
    DeploymentTool(Box<DescribedDeployment>),
    /// A deployment that is described by its own metadata.
    DialDeploymentSimple {
        /// Name of the deployment in DIAL.
        deployment_id: String,
        /// Whether it is used; a disabled entry counts as absent.
        #[serde(default = "default_true")]
        enabled: bool,
    },
    /// A tool that the service knows by name.
    PredefinedTool(Predefined),
}

/// A deployment with its description.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct DescribedDeployment {
    /// The declaration for the model.
    pub open_ai_tool: OpenAiTool<Parameter>,
    /// The deployment, and the parameters of its calls.
    pub deployment: Deployment,
    /// The deployment's instructions.
    pub system_prompt: Option<String>,
    /// Parts of the session that the deployment gets.
    #[serde(default)]
    pub content_propagation: ContentPropagation,
    /// Settings that all kinds of tools have.
    #[serde(flatten)]
    pub common: Common,
}

/// Parts of the session that a deployment gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ContentPropagation {
    /// Whether the earlier calls of the same tool are sent along.
    #[serde(default)]
    pub propagate_history: bool,
    /// The caller's headers that are passed on.
    pub propagate_headers: Option<Vec<String>>,
}

/// A tool of the service itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum InternalTool {
    /// Runs Python.
    PythonInterpreter(Common),
    /// A tool that the service knows by name.
    PredefinedTool(Predefined),
}

/// The declaration of a tool for the model.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(bound(deserialize = "P: serde::de::DeserializeOwned"))]
pub struct OpenAiTool<P> {
    /// Always `function`.
    #[serde(rename = "type", default)]
    pub kind: FunctionTag,
    /// The function that the model calls.
    pub function: Function<P>,
}

/// The one kind of tool that models know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FunctionTag {
    /// A function.
    #[default]
    Function,
}

/// A function as models know it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(bound(deserialize = "P: serde::de::DeserializeOwned"))]
pub struct Function<P> {
    /// The name by which the model calls it.
    pub name: String,
    /// The purpose of the function, for the model.
    pub description: Option<String>,
    /// The function's arguments.
    pub parameters: Option<Arguments<P>>,
    /// Other members, passed on unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The arguments of a function: a JSON schema of an object.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
// `in_order` reads members through `Value`, whose members cannot be borrowed, so `P` must own its data. The types
// that contain this one inherit the bound.
#[serde(bound(deserialize = "P: serde::de::DeserializeOwned"))]
pub struct Arguments<P> {
    /// Each argument, in the order of the manifest.
    #[serde(default, deserialize_with = "in_order")]
    #[schemars(with = "BTreeMap<String, P>")]
    pub properties: Vec<(String, P)>,
    /// Names of the required arguments.
    #[serde(default)]
    pub required: Vec<String>,
    /// Other members, passed on unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// An argument of a deployment: a JSON schema and how it is shown.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Parameter {
    /// Appearance of its value in the stage.
    pub display: Option<ParameterDisplay>,
    /// JSON Schema of the value.
    #[serde(flatten)]
    pub schema: Map<String, Value>,
}

/// An argument of an HTTP endpoint, or a constant that the model never sees.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(extend("x-rule" = "constant"))]
pub struct RestParameter {
    /// The parameter's type; absent or `null` for a constant.
    #[serde(rename = "type")]
    pub kind: Option<ParameterKind>,
    /// The parameter's location in the request.
    pub parameter_info: ParameterInfo,
    /// Appearance of its value in the stage.
    pub display: Option<ParameterDisplay>,
    /// The value of a constant.
    // With `deserialize_with` serde no longer reads an absent member as `None`; `default` restores that.
    #[serde(rename = "const", default, deserialize_with = "deserialize_present")]
    pub constant: Option<Value>,
    /// The value when the model gives none.
    #[serde(default, deserialize_with = "deserialize_present")]
    pub default: Option<Value>,
    /// All other members of its schema.
    #[serde(flatten)]
    pub schema: Map<String, Value>,
}

/// Types of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Text.
    String,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A list.
    Array,
    /// A JSON object.
    Object,
}

/// The location of an argument in a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ParameterInfo {
    /// The part of the request.
    #[serde(rename = "type")]
    pub place: ParameterLocation,
    /// The parameter's name there.
    pub key: String,
}

/// Parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterLocation {
    /// In the query of the URL.
    Query,
    /// In the path of the URL.
    Url,
    /// As a member of the JSON body.
    Body,
    /// As a header field.
    Header,
}

/// Members in the order of the document.
fn in_order<'de, D, P>(deserializer: D) -> Result<Vec<(String, P)>, D::Error>
where
    D: Deserializer<'de>,
    P: serde::de::DeserializeOwned,
{
    // This map keeps the order of the document, which stages and models show.
    Map::<String, Value>::deserialize(deserializer)?
        .into_iter()
        .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
        .collect::<Result<_, serde_json::Error>>()
        .map_err(serde::de::Error::custom)
}

/// A value that is present, including `null`, which serde would read as absent.
fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
