//! Tools that DIAL runs: deployments (quickapps 24), applications (26), the Python interpreter (29).
//!
//! - [`build_deployments`]: the tools of a set of deployments.
//! - [`app_toolsets`]: applications, by chat completions or by MCP.
//! - [`new_interpreter`]: the Python interpreter of DIAL.
//! - [`deployment_template`]: the tool that a deployment's metadata describe, as a manifest would.
//!
//! What it does not do: it opens no connections and has no keys; [`dray_dial::DialPort`] has both.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dray_agent::caller::Caller;
//! use dray_dial::fake::FakeDial;
//! use dray_dial::DialPort;
//! use dray_dial::meta::Deployment;
//! use dray_types::Secret;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let weather = Deployment {
//!     display_name: "Weather".to_owned(),
//!     ..Deployment::default()
//! };
//! let dial: Arc<dyn DialPort> = Arc::new(FakeDial::default().with_deployment("key", "weather-1", weather, None));
//! let caller = Caller {
//!     api_key: Some(Secret::new("key")),
//!     ..Caller::default()
//! };
//! let tool = dray_tool_dial::deployment_template(&dial, &caller, "weather-1").await?;
//! assert_eq!(tool["display"]["stage"]["name"], "Call Weather: ");
//! # Ok::<(), dray_dial::Error>(())
//! # }).unwrap();
//! ```

mod app;
mod attachment;
mod build;
mod deployment;
mod failure;
mod generated;
mod history;
mod interpreter;
mod request;
mod response;
mod schema;
#[cfg(test)]
mod tests;

pub use app::app_toolsets;
pub use build::{build_deployments, deployment_template};
pub use generated::DeploymentFacts;
pub use interpreter::{InterpreterOptions, new_interpreter};
