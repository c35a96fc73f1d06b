//! Files as people see them: what kind a file is, what it is called, how its size reads, the sentences that go with
//! it, and how an agent names files in its answers.
//!
//! Pure rules: every function takes values and returns values. Nothing here opens a file, asks a clock or waits. Who
//! needs to know whether a path exists hands in a function that says so.

pub mod caption;
mod chars;
pub mod kind;
pub mod line;
pub mod media;
pub mod name;
pub mod notice;
pub mod size;
