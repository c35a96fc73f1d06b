//! Whole agents: the orchestrator with every service that it asks, and a model that follows a script.

mod chat;
mod outside;
mod references;
mod seen;
mod shop;
mod story;
mod world;
