//! The service: its calls and its work.

mod artifacts;
mod read;
mod work;

use std::error::Error as StdError;
use std::sync::Arc;

use opentelemetry::metrics::Meter;

use dray_bus::{Meta, Permissions};
use dray_dial::DialClient;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_proto::{MAX_INLINE_BYTES, MAX_MESSAGE_BYTES};
use dray_service::{
    ReplaceableValue, Request, Router, Service, ServiceContext, ServicePlan, StartError,
};
use dray_store::StoreAccess;
use dray_types::{ErrorChain, Fault, Secret};

use crate::config::Config;
use crate::dial::{CallerCredentials, dial_client};
use crate::downloads::{DownloadIndex, SharedDownloads};
use crate::error::ResolveError;
use crate::metrics::ResolverMetrics;
use crate::reading::ReadingContext;
use crate::reload::{SettingsReload, reload_metrics};
use crate::resolver::{ReplyLimits, ResolveJob, ResolveOutcome, ToolCallResolver};

/// Sizes that resolved arguments have to fit, in replies and in events: a message without the space for headers, names
/// and a link (messaging-reliability E-3).
const REPLY_LIMITS: ReplyLimits = ReplyLimits {
    inline: MAX_INLINE_BYTES,
    message: MAX_MESSAGE_BYTES - 32 * 1024,
};

/// The running service.
#[derive(Debug)]
pub struct FileResolver {
    /// A request takes them once, so a change of the configuration does not reach it.
    settings: ReplaceableValue<ResolverSettings>,
}

/// The settings in force, with what is made from them.
#[derive(Debug)]
pub(crate) struct ResolverSettings {
    resolver: ToolCallResolver,
    reading: ReadingContext,
    config: Config,
}

impl Service for FileResolver {
    const NAME: &'static str = "file-resolver";
    type Config = Config;

    fn plan() -> ServicePlan {
        // The call is written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        if config.dial_url.is_none() {
            tracing::warn!("dial_url is not set: references to DIAL files will be refused");
        }
        let dial = create_dial_client(&config)?;
        let reading = ReadingContext::start(&config.reading, cx, dial.clone())?;
        let resolver = ToolCallResolver {
            bus: cx.bus.clone(),
            store: cx.store.clone(),
            clock: cx.clock.clone(),
            dial,
            limits: config.limits(),
            downloads: DownloadIndex::shared_with(
                cx.clock.clone(),
                config.download_limits(),
                SharedDownloads::between_processes(&cx.bus, &cx.store),
            ),
            metrics: ResolverMetrics::new(&cx.meter),
        };
        let settings = ReplaceableValue::new(ResolverSettings {
            resolver,
            reading,
            config,
        });
        let reload = SettingsReload::follow(settings.clone(), cx);
        cx.tasks.spawn(reload.run(cx.stop.clone()));
        Ok(Self { settings })
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::resolve)
            .answer(Self::submit)
            .answer_for_tenants(Self::outcome)
            .answer(Self::read_attachment)
            .answer(Self::build_context)
            .answer(Self::read_files)
            .answer(Self::substitute_ids)
            .answer(Self::fetch_user_file)
            .answer(Self::open_artifact)
            .answer(Self::list_artifacts)
            .consume(Self::work)
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about(
                "Resolves references and reads documents. Tool calls that arrive over gRPC become work here\n\
                 (docs/decisions/deploy-nats-permissions.md).",
            )
            .calls::<v1::FetchRequest>()
            .calls::<v1::GetSandboxFileRequest>()
            .calls::<v1::PutSandboxFileRequest>()
            .calls::<v1::StatSandboxRequest>()
            .publishes_work::<v1::ToolCallRequested>()
            .publishes_event::<v1::ToolCallResolved>()
            .uses_keys(crate::reading::CONVERSION_BUCKET)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes()
    }

    fn instruments(meter: &Meter) {
        ResolverMetrics::new(meter);
        reload_metrics(meter);
    }
}

impl FileResolver {
    /// Resolves the arguments of one tool call for a caller that waits, with the credentials that the call brings.
    pub async fn resolve(
        self: Arc<Self>,
        request: Request<v1::ResolveRequest>,
    ) -> Result<v1::ResolveReply, Fault> {
        let work_until = request.work_until();
        let Request { meta, body } = request;
        let v1::ResolveRequest {
            arguments,
            options,
            credentials,
            tool,
            presign,
        } = body;
        let job = ResolveJob {
            meta: meta.clone(),
            // Calls have no lease; the store's staging keys have a random part.
            epoch: 0,
            work_until,
            tool,
            arguments,
            options: options.unwrap_or_default(),
            credentials: credentials.map(caller_credentials).unwrap_or_default(),
            reply_limits: REPLY_LIMITS,
        };
        let settings = self.settings.get();
        let outcome = match settings.resolver.resolve(job).await {
            Ok(ResolveOutcome::Resolved(resolved)) if presign => {
                let linked = settings.link(&meta, resolved).await;
                v1::resolve_reply::Outcome::Resolved(linked.map_err(report_error)?)
            }
            Ok(ResolveOutcome::Resolved(resolved)) => {
                v1::resolve_reply::Outcome::Resolved(resolved)
            }
            Ok(ResolveOutcome::Invalid(invalid)) => v1::resolve_reply::Outcome::Invalid(invalid),
            Err(error) => return Err(report_error(error)),
        };
        Ok(v1::ResolveReply {
            outcome: Some(outcome),
        })
    }

    /// Signs a URL for a stored file. The claim must be of the caller's own tenant, and it names the file by its
    /// digest.
    pub async fn open_artifact(
        self: Arc<Self>,
        request: Request<v1::OpenArtifactRequest>,
    ) -> Result<v1::PresignedUrl, Fault> {
        let Request { meta, body } = request;
        let Some(claim) = body.claim else {
            return Err(report_error(ResolveError::Request(
                InvalidMessage::Missing("claim"),
            )));
        };
        let settings = self.settings.get();
        settings.presign(&meta, claim).await.map_err(report_error)
    }

    /// Lists the finished content of the caller's tenant.
    pub async fn list_artifacts(
        self: Arc<Self>,
        request: Request<v1::ListArtifactsRequest>,
    ) -> Result<v1::ListArtifactsReply, Fault> {
        let Request { meta, body } = request;
        artifacts::list(&self.settings.get().resolver.store, &meta, &body).await
    }
}

impl ResolverSettings {
    /// The configuration with which these settings were made.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The same service with another configuration. What is kept for later calls stays, and so do connections to DIAL
    /// Core whose settings are equal.
    pub(crate) fn with_config(&self, config: Config) -> Result<Self, StartError> {
        let dial_settings = |config: &Config| {
            let timeouts = (config.dial_connect_timeout, config.dial_read_timeout);
            (config.dial_ca_file.clone(), timeouts)
        };
        let dial = if dial_settings(&self.config) == dial_settings(&config) {
            self.resolver.dial.clone()
        } else {
            create_dial_client(&config)?
        };
        Ok(Self {
            reading: self.reading.with_settings(&config.reading, dial.clone())?,
            resolver: ToolCallResolver {
                dial,
                limits: config.limits(),
                ..self.resolver.clone()
            },
            config,
        })
    }

    /// Adds a link to resolved arguments that are in the store.
    async fn link(
        &self,
        meta: &Meta,
        mut resolved: v1::ResolvedArguments,
    ) -> Result<v1::ResolvedArguments, ResolveError> {
        let claim = match resolved
            .arguments
            .as_ref()
            .and_then(|content| content.body.as_ref())
        {
            Some(v1::content::Body::Claim(claim)) => claim.clone(),
            Some(v1::content::Body::Inline(_)) | None => return Ok(resolved),
        };
        // The URL is minted last, so that its lifetime is not spent on loading (L-1).
        resolved.url = Some(self.presign(meta, claim).await?);
        Ok(resolved)
    }

    async fn presign(
        &self,
        meta: &Meta,
        claim: v1::Claim,
    ) -> Result<v1::PresignedUrl, ResolveError> {
        let claim = claim.try_into().map_err(ResolveError::Request)?;
        let lifetime = self.config.link_lifetime.as_duration();
        let link = self
            .resolver
            .store
            .presign_get(&meta.tenant, &claim, lifetime)
            .await;
        let link = link.map_err(ResolveError::Link)?;
        Ok(v1::PresignedUrl {
            url: link.url.expose().to_owned(),
            expires_at_ms: link.expires_at_ms,
        })
    }
}

/// The client of DIAL Core. None without an address.
fn create_dial_client(config: &Config) -> Result<Option<DialClient>, StartError> {
    let client = config.dial_url.as_ref();
    let client = client.map(|url| dial_client(url, config)).transpose();
    client.map_err(|error| StartError::with_source("could not create the DIAL client", error))
}

pub(crate) fn caller_credentials(credentials: v1::DialCredentials) -> CallerCredentials {
    let v1::DialCredentials {
        api_key,
        authorization,
    } = credentials;
    CallerCredentials {
        api_key: Secret::new(api_key),
        authorization: Secret::new(authorization),
    }
}

/// Logs the whole chain of causes for the operator, and returns the fault for the caller.
pub(crate) fn report_error(error: ResolveError) -> Fault {
    let causes = error.source().map(|cause| ErrorChain(cause).to_string());
    tracing::warn!(%error, causes, "tool call not resolved");
    error.into()
}
