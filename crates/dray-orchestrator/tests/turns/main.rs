//! Tests whole turns over HTTP with a real listener, a model with scripted responses, a fake DIAL Core and tools. No
//! other service runs.

#![cfg(test)]

mod agents;
mod approvals;
mod authority;
mod bank;
mod budgets;
mod chat_interfaces;
mod citations;
mod client_tools;
mod context;
mod cut_off;
mod deletions;
mod deliveries;
mod dial;
mod duplicates;
mod fallbacks;
mod faults;
mod files;
mod fixture;
mod foreign_ids;
mod guardrail_handoffs;
mod guardrail_heartbeats;
mod guardrails;
mod handoffs;
mod hooks;
mod known_files;
mod open_responses;
mod openai;
mod packages;
mod plain;
mod provider_quirks;
mod questions;
mod responses;
mod retries;
mod sandboxes;
mod sign_in;
mod sign_in_users;
mod tool_access;
mod tools;
mod turn_calls;
mod turn_events;
