//! Metadata of deployments, applications, toolsets, models and prompts in DIAL Core (quickapps 5.3).

use dray_agent::caller::Caller;
use serde_json::{Map, Value};

use crate::core::DialClient;
use crate::error::{Error, ErrorKind};
use crate::origin::canonical_path;

/// A model or an application that can be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployment {
    /// Display name; the id without one.
    pub display_name: String,
    /// Description for people and models.
    pub description: Option<String>,
    /// Accepted MIME types; empty means none.
    pub input_attachment_types: Vec<String>,
    /// Most files that it accepts; `None` if unknown.
    pub max_input_attachments: Option<u64>,
    /// Abilities of the deployment.
    pub features: DeploymentFeatures,
    /// Values of a request that it assumes, `tools` among them.
    pub defaults: Map<String, Value>,
    /// The complete response, for members without a type here.
    pub body: Value,
}

/// Abilities of a deployment. One that the metadata lack is `false`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeploymentFeatures {
    /// Whether the deployment fetches files by any URL.
    pub url_attachments: bool,
    /// Whether the deployment has an endpoint for MCP.
    pub mcp: bool,
    /// Whether the deployment has settings with a schema.
    pub configuration: bool,
}

/// An MCP server that is registered in DIAL.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Toolset {
    /// Display name; the id without one.
    pub display_name: String,
    /// Description for people and models.
    pub description: Option<String>,
    /// `HTTP` or `SSE`, as its owner set it.
    pub transport: Option<String>,
    /// Tools that may be used; empty: all.
    pub allowed_tools: Vec<String>,
    /// The complete response, for members without a type here.
    pub body: Value,
}

impl Toolset {
    /// Whether its transport is server-sent events with separate posts instead of one endpoint.
    pub fn is_sse(&self) -> bool {
        let transport = self.transport.as_deref();
        transport.is_some_and(|transport| transport.eq_ignore_ascii_case("sse"))
    }
}

/// A text that a user stored in DIAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Name, as its author chose it.
    pub name: String,
    /// Description for people and models.
    pub description: Option<String>,
    /// The text, with its front matter if it is a skill.
    pub content: String,
}

impl DialClient {
    /// An application as DIAL Core describes it; the manifest is its `application_properties`. Never cached.
    pub async fn application(&self, caller: &Caller, id: &str) -> Result<Value, Error> {
        self.get_json(caller, &api_path("openai/applications", id)?)
            .await
    }

    /// A deployment; on 404 the application of this id.
    pub async fn deployment(&self, caller: &Caller, id: &str) -> Result<Deployment, Error> {
        let path_of = api_path("openai/deployments", id)?;
        if let Some(body) = self.cache().get(caller, &path_of) {
            return Ok(parse_deployment(id, body));
        }
        let body = match self.get_json(caller, &path_of).await {
            Err(error) if error.status == Some(404) => self.application(caller, id).await?,
            other => other?,
        };
        // The key is the path of the deployment in both cases, so that the request with the 404 is not repeated.
        self.cache().put(caller, &path_of, &body);
        Ok(parse_deployment(id, body))
    }

    /// The toolset of this id, from the cache while that is fresh.
    pub async fn toolset(&self, caller: &Caller, id: &str) -> Result<Toolset, Error> {
        let body = self
            .cached(caller, &api_path("openai/toolsets", id)?)
            .await?;
        Ok(Toolset {
            display_name: localized_text(&body, "display_name").unwrap_or_else(|| id.to_owned()),
            description: localized_text(&body, "description"),
            transport: localized_text(&body, "transport"),
            allowed_tools: text_list(&body, "allowed_tools"),
            body,
        })
    }

    /// A model as DIAL Core describes it, including `pricing`.
    pub async fn model(&self, caller: &Caller, name: &str) -> Result<Value, Error> {
        self.cached(caller, &api_path("openai/models", name)?).await
    }

    /// The JSON schema of a deployment's configuration.
    pub async fn deployment_configuration(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Value, Error> {
        self.cached(
            caller,
            &format!("{}/configuration", api_path("v1/deployments", id)?),
        )
        .await
    }

    /// A prompt by its URL `prompts/{bucket}/{path}`.
    pub async fn prompt(&self, caller: &Caller, url: &str) -> Result<Prompt, Error> {
        let inside = url.trim_start_matches('/').strip_prefix("prompts/");
        let inside =
            inside.ok_or_else(|| Error::new(ErrorKind::Request, "not the URL of a prompt"))?;
        let body = self
            .get_json(caller, &api_path("v1/prompts", inside)?)
            .await?;
        let content = localized_text(&body, "content");
        Ok(Prompt {
            name: localized_text(&body, "name").unwrap_or_default(),
            description: localized_text(&body, "description"),
            content: content
                .ok_or_else(|| Error::new(ErrorKind::Malformed, "the prompt has no content"))?,
        })
    }

    /// Drops the cached data of a deployment or toolset, so that the next call requests it again (R14).
    pub fn forget(&self, caller: &Caller, id: &str) {
        for prefix in ["openai/deployments", "openai/toolsets", "openai/models"] {
            if let Ok(path) = api_path(prefix, id) {
                self.cache().forget(caller, &path);
            }
        }
        if let Ok(path) = api_path("v1/deployments", id) {
            self.cache()
                .forget(caller, &format!("{path}/configuration"));
        }
    }

    async fn cached(&self, caller: &Caller, path: &str) -> Result<Value, Error> {
        if let Some(body) = self.cache().get(caller, path) {
            return Ok(body);
        }
        let body = self.get_json(caller, path).await?;
        self.cache().put(caller, path, &body);
        Ok(body)
    }
}

fn parse_deployment(id: &str, body: Value) -> Deployment {
    let feature = |name| {
        let features = body.get("features");
        features
            .and_then(|all| all.get(name)?.as_bool())
            .unwrap_or(false)
    };
    Deployment {
        display_name: localized_text(&body, "display_name").unwrap_or_else(|| id.to_owned()),
        description: localized_text(&body, "description"),
        input_attachment_types: text_list(&body, "input_attachment_types"),
        max_input_attachments: body.get("max_input_attachments").and_then(Value::as_u64),
        features: DeploymentFeatures {
            url_attachments: feature("url_attachments"),
            mcp: feature("mcp"),
            configuration: feature("configuration"),
        },
        defaults: body
            .get("defaults")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
        body,
    }
}

fn api_path(prefix: &str, id: &str) -> Result<String, Error> {
    canonical_path(prefix, id).ok_or_else(|| Error::new(ErrorKind::Request, "the id is not plain"))
}

/// A text; of a text in several languages the English one, otherwise the first.
fn localized_text(body: &Value, name: &str) -> Option<String> {
    let text = match body.get(name)? {
        // DIAL allows a text for each language in the same member.
        Value::Object(languages) => languages.get("en").or_else(|| languages.values().next())?,
        other => other,
    };
    text.as_str()
        .filter(|text| !text.is_empty())
        .map(ToOwned::to_owned)
}

fn text_list(body: &Value, name: &str) -> Vec<String> {
    let items = body.get(name).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(ToOwned::to_owned)
        .collect()
}
