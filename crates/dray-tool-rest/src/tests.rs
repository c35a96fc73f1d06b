//! Tests of endpoints over a real connection to a fake server, through the pipeline of calls.

mod answers;
mod fixture;
mod requests;
mod shipped;
mod tokens;
