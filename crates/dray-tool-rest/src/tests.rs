//! Endpoints over a real connection to a double, through the pipeline of calls.

mod answers;
mod requests;
mod shipped;
mod tokens;
mod world;
