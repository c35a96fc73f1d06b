//! The service as a whole, with a platform and a sandbox that do what a test says.

pub(crate) mod fake;
pub(crate) mod world;

mod machine;
mod path;
mod routes;
