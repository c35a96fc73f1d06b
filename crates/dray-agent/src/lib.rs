//! The parts of an agent session, as pure values and rules: the manifest of the agent, its templates, and the messages
//! of a chat request. Also the state that carries tool rounds from one turn to the next, and the events of an answer
//! for the client.
//!
//! - [`manifest::Manifest`] describes an agent; [`manifest::ManifestReader`] reads it and reports every problem.
//! - [`layer::LayerSet`] has named templates, [`skill::Skill`] is a text that the model reads when it needs it.
//! - [`message::Message`] is one message; [`filter`], [`lift`], [`clock`] and [`lazy`] prepare copies for the model.
//! - [`state`] carries tool rounds through the client, [`pair::CallPair`] is a call that no model made.
//! - [`approval::ApprovalRule`] selects calls that a person must approve; [`approval::call_digest`] identifies one
//!   call.
//! - [`budget::BudgetLimits`] limits the use of a turn, a conversation or a client; [`budget::TokenPrice`] has the
//!   prices.
//! - [`citation::CitationIndex`] finds the pages and files of the tools of a turn that its answer names.
//! - [`compaction::CompactionPlan`] selects the old messages that are removed from a long prompt.
//! - [`handoff`] determines which agent of a conversation answers; [`choice`] checks `tool_choice`.
//! - [`failure`], [`issues`] and [`user_error`] are what a client reads about a request, a setup or a turn that failed.
//! - [`starters`] and [`support`] serve editors of manifests; [`notify`] describes files that the model always has.
//! - [`event::Event`] is one event for the client; [`wire::ChunkWriter`] turns events into chunks.
//!
//! This crate does no I/O. Wire names and sentences are part of the contract with existing clients (quickapps 45).
//!
//! ```
//! use dray_agent::event::{AnswerEnd, Event};
//! use dray_agent::wire::{ChunkWriter, MergedAnswer};
//!
//! let mut writer = ChunkWriter::new("f2b5", 1_700_000_000, None);
//! let mut whole = MergedAnswer::default();
//! whole.add(writer.start());
//! for chunk in writer.event(Event::Content("Hello".to_owned())) {
//!     whole.add(chunk);
//! }
//! whole.add(writer.end(&AnswerEnd::default()));
//! let answer = whole.into_answer();
//! assert_eq!(answer["choices"][0]["message"]["content"], "Hello");
//! ```

pub mod approval;
pub mod budget;
pub mod caller;
pub mod canonical_json;
pub mod choice;
pub mod citation;
pub mod clock;
pub mod compaction;
pub mod event;
pub mod failure;
pub mod filter;
pub mod handoff;
pub mod issues;
pub mod json_pointer;
pub mod layer;
pub mod lazy;
pub mod lift;
pub mod manifest;
pub mod message;
pub mod notify;
pub mod pair;
pub mod prompt;
pub mod skill;
pub mod starters;
pub mod state;
pub mod support;
mod text;
pub mod user_error;
pub mod wire;
