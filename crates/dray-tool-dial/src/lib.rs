//! Tools that DIAL runs: deployments (quickapps 24), applications (26), the Python interpreter (29).
//!
//! - [`build_deployments`]: the tools of a set of deployments.
//! - [`app_toolsets`]: applications, by chat completions or by MCP.
//! - [`new_interpreter`]: the Python interpreter of DIAL.
//! - [`deployment_template`]: the tool that a deployment's metadata describe, as a manifest would.
//!
//! What it does not do: it opens no connection and holds no key; that is the business of [`dray_dial::DialPort`].

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
