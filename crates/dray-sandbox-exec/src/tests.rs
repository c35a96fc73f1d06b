//! Tests of every operation with every shell and over every kind of channel.

mod broken;
mod channels;
mod commands;
mod conformance;
mod fixture;
mod hostile;
mod input;
mod persistent_shell;
mod processes;
mod programs;
mod scripted;
mod tools;
mod trees;
