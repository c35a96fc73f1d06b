//! One turn: from a chat request to its ending (quickapps 9).
//!
//! - `Engine`: what all turns share; answers for the HTTP surface.
//! - `open`: manifest, tools, messages: everything that can fail before anything is shown.
//! - `rounds`: the loop of model and tools; `relay` and `speech` pass the model's words on.
//! - `hooks`: calls of tools that no model asked for.
//! - `finish`: state, statistics, and how a failure is reported.

mod body;
mod finish;
mod hooks;
mod manifest;
mod open;
mod prepare;
mod relay;
mod rounds;
mod session;
mod setup;
mod skills;
mod speech;
mod tally;
mod trouble;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_agent::event::Ending;
use dray_agent::failure::Failure;
use dray_agent::layer::Layers;
use dray_agent::manifest::{Manifest, Reader};
use dray_agent::skill::Skill;
use dray_dial::Core;
use dray_dial::chat::Chat;
use dray_tool::Sink;
use dray_tool_dial::Dial;
use serde_json::Value;

use crate::config::Config;
use crate::files::Services;
use crate::http::{Agent, Asked, ManifestSource};
use crate::manifests::Manifests;
use crate::metrics::Metrics;
use crate::permissions::{Grants, Identity};

pub(crate) use setup::Kinds;

/// What all turns share.
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) reader: Arc<Reader>,
    pub(crate) layers: Arc<Layers>,
    pub(crate) manifests: Arc<Manifests>,
    /// Skills of the layers.
    pub(crate) skills: Vec<Skill>,
    pub(crate) core: Option<Core>,
    /// What manifests may name that did not come from the operator.
    pub(crate) grants: Grants,
    pub(crate) chat: Chat,
    pub(crate) kinds: Kinds,
    pub(crate) services: Services,
    pub(crate) metrics: Metrics,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").finish_non_exhaustive()
    }
}

/// The agent behind the HTTP surface. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) parts: Arc<Parts>,
}

#[async_trait]
impl Agent for Engine {
    async fn answer(&self, asked: Asked, sink: Sink) -> Result<Ending, Failure> {
        let begun = self.parts.metrics.begin();
        let answered = self.turn(asked, &sink).await;
        begun.end(answered.as_ref().err());
        answered
    }

    async fn verify(&self, caller: &Caller) -> Result<Identity, Failure> {
        let Some(core) = &self.parts.core else {
            return Err(Failure::unexpected());
        };
        let bucket = core.bucket(caller).await;
        let bucket = bucket.map_err(|error| trouble::unverified(&error))?;
        Ok(Identity::Dial(bucket.bucket))
    }

    async fn manifest(
        &self,
        caller: &Caller,
        identity: &Identity,
        source: &ManifestSource,
    ) -> Result<Arc<Manifest>, Failure> {
        let loaded = self.parts.manifest(caller, identity, source).await?;
        Ok(loaded.manifest)
    }

    async fn template(&self, caller: &Caller, deployment: &str) -> Result<Value, Failure> {
        let Some(dial) = &self.parts.kinds.dial else {
            return Err(Failure::new(
                404,
                "There is no DIAL, so there are no deployments.",
            ));
        };
        let dial: &Arc<dyn Dial> = dial;
        let made = dray_tool_dial::template(dial, caller, deployment).await;
        made.map_err(|refused| trouble::refused_template(deployment, &refused))
    }
}

impl Engine {
    async fn turn(&self, asked: Asked, sink: &Sink) -> Result<Ending, Failure> {
        if !asked.request.tools.is_empty() {
            tracing::warn!("tools of the client are not offered: only those of the manifest are");
        }
        let loaded = self
            .parts
            .manifest(&asked.caller, &asked.identity, &asked.manifest)
            .await?;
        let opened = Box::pin(open::open(&self.parts, asked, loaded)).await?;
        Box::pin(opened.run(sink)).await
    }
}
