//! Values for single parts of the service that are derived from the settings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use dray_agent::manifest::{ManifestSettings, publish};
use dray_http::HttpTimeouts;
use dray_tool_mcp::{ProgramCommand, WorkloadToken};
use dray_types::TenantId;

use super::{Config, McpServer, McpWorkloadToken};
use crate::http::SurfaceOptions;

/// Time between two reads of the events of a response that another process makes, if the bus sends no notice.
const EVENT_POLL_INTERVAL: Duration = Duration::from_secs(2);

impl Config {
    /// The settings for reading manifests.
    pub fn manifest_settings(&self) -> ManifestSettings {
        ManifestSettings {
            preview: self.preview,
            default_deployment: self.default_orchestrator_deployment.clone(),
        }
    }

    /// The tenant of this service.
    pub(crate) fn tenant(&self) -> TenantId {
        // The configuration is validated, so every other name was refused before.
        TenantId::new(self.tenant.as_str()).unwrap_or_default()
    }

    /// Options of the HTTP surface.
    pub fn surface(&self) -> SurfaceOptions {
        SurfaceOptions {
            deployments: self.deployments.clone(),
            clients: self.clients.clone(),
            permissions: self.permissions.clone(),
            forward_headers: self.forward_headers.clone(),
            hosts: self.hosts.clone(),
            tenant: self.tenant(),
            loopback: self.listen.ip().is_loopback(),
            dial: self.dial_url.is_some(),
            // Names of headers have lower case in a `HeaderMap`.
            language_header: self.language_header.to_ascii_lowercase(),
            max_body: self.max_body,
            body_timeout: self.body_timeout.as_duration(),
            max_body_total: self.max_body_total,
            max_chats: self.max_chats,
            chat_wait: self.chat_wait.as_duration(),
            prompt_mapping: self.prompt_mapping.clone(),
            cors_origins: self.cors_origins.clone(),
            heartbeat: self.heartbeat_interval.as_duration(),
            poll_interval: EVENT_POLL_INTERVAL,
            max_upload: self.max_upload,
            drain: self.drain.as_duration(),
            schema: publish::editor_schema(&self.manifest_settings(), &self.app_schema_id),
            application_type: publish::application_type(
                &self.manifest_settings(),
                &self.app_schema_id,
            ),
        }
    }

    /// Most characters of a content in the log; `None` if contents are not logged.
    pub(crate) fn payload_length(&self) -> Option<usize> {
        self.log_payloads
            .then(|| usize::try_from(self.log_payloads_max_length).unwrap_or(usize::MAX))
    }

    /// The timeouts of calls to models.
    pub(crate) fn chat_limits(&self) -> HttpTimeouts {
        HttpTimeouts {
            connect: self.connect_timeout.as_duration(),
            idle: self.model_idle_timeout.as_duration(),
            response: self.model_timeout.as_duration(),
        }
    }

    /// URL at which browsers reach this service, which listens on `address`; `None` if it is unknown.
    pub(crate) fn browser_url(&self, address: SocketAddr) -> Option<String> {
        let own = || {
            address
                .ip()
                .is_loopback()
                .then(|| format!("http://{address}"))
        };
        self.public_url.clone().or_else(own)
    }

    /// The MCP servers that manifests may name.
    pub(crate) fn mcp_commands(&self) -> BTreeMap<String, ProgramCommand> {
        let servers = self.mcp_servers.iter();
        let command = |server: &McpServer| ProgramCommand {
            command: server.command.clone(),
            args: server.args.clone(),
            // The program gets these variables and `PATH` only.
            env: server.env.clone(),
            cwd: None,
        };
        servers
            .map(|(name, server)| (name.clone(), command(server)))
            .collect()
    }

    /// The tokens with which the service signs in to MCP servers.
    pub(crate) fn workload_tokens(&self) -> BTreeMap<String, WorkloadToken> {
        let token = |token: &McpWorkloadToken| WorkloadToken {
            file: token.file.clone(),
            servers: token.servers.clone(),
            token_endpoints: token.token_endpoints.clone(),
        };
        let tokens = self.mcp_workload_tokens.iter();
        tokens
            .map(|(name, configured)| (name.clone(), token(configured)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use dray_types::Secret;

    use super::*;

    #[test]
    fn the_surface_gets_the_operators_settings() {
        let mut config = Config {
            listen: "0.0.0.0:80".parse().unwrap_or(Config::default().listen),
            language_header: "X-Language".to_owned(),
            app_schema_id: "https://example.com/schema".to_owned(),
            ..Config::default()
        };
        config.clients.insert("a".to_owned(), Secret::new("k"));
        let options = config.surface();
        assert!(!options.loopback && !options.dial);
        assert_eq!(options.clients["a"], Secret::new("k"));
        assert_eq!(options.language_header, "x-language");
        assert_eq!(options.schema["$id"], "https://example.com/schema");
        let application_type = &options.application_type;
        assert_eq!(application_type["$id"], "https://example.com/schema");
        assert_eq!(
            application_type["dial:applicationTypeDisplayName"],
            "Quick App 2.0"
        );
        assert!(Config::default().surface().loopback);
    }
}
