//! The HTTP surface: chat completions of DIAL and of plain `OpenAI` clients, starters, and help for editors of
//! manifests (quickapps 2, 3, 4, 37, 38).
//!
//! It reads and checks requests and writes answers. An [`Agent`] does the work between: it gets a
//! [`CheckedChatRequest`] and sends events, which this module converts to chunks. It stores no conversation and knows
//! nothing about models and tools.

mod body;
mod client_state;
mod contract;
mod credentials;
mod current;
mod files;
mod models;
mod page;
mod parts;
mod permit;
mod plain_request;
mod reply;
mod request;
mod response_headers;
mod responses;
mod routes;
mod run;
mod serve;
mod sign_in;
mod support;
#[cfg(test)]
mod tests;
mod trace;
mod upload_places;
mod uploads;

pub use client_state::{BackgroundTasks, ClientState};
pub(crate) use contract::{APPROVAL_TOOL, INPUT_TOOL};
pub use contract::{Agent, ApprovalForm, ChatRequest, CheckedChatRequest, ManifestSource};
pub use current::CurrentSurface;
pub(crate) use parts::{DETAIL_FIELD, FILE_ID_FIELD, PART_FIELD, RESULT_FIELD};
pub(crate) use plain_request::{MAX_TOOLS, unsupported_failure};
pub(crate) use responses::sweep_runs;
pub use routes::{HttpSurface, SurfaceOptions, SurfaceParts};
pub use serve::serve_until;
