//! `dray demo`: the whole system at work in one process, without a network and without keys.

mod agent;
mod container;
mod delivery;
mod files;
mod outside;
mod reading;
mod story;
mod system;

use std::path::Path;

use serde_json::Value;

use crate::cli::Global;
use crate::outcome::{Failure, print_line};

/// Starts everything, tells the story, stops everything.
pub(crate) async fn run(global: &Global) -> Result<(), Failure> {
    let folder =
        tempfile::tempdir().map_err(Failure::local("cannot make a folder for the demo"))?;
    let teller = Teller { json: global.json };
    let system = system::System::start(folder.path(), Path::new(container::SOCKET)).await?;
    let told = story::tell(&system, &teller).await;
    system.stop().await;
    told
}

/// Says what happens: sentences for people, one JSON document per step for scripts.
#[derive(Debug)]
struct Teller {
    json: bool,
}

impl Teller {
    /// Begins a chapter.
    fn chapter(&self, title: &str) {
        if !self.json {
            print_line("");
            print_line(title);
        }
    }

    /// One labelled line within a chapter.
    fn line(&self, label: &str, text: &str) {
        if !self.json {
            print_line(&format!("  {label:<9} {text}"));
        }
    }

    /// The same step for scripts.
    fn fact(&self, step: &str, fact: &Value) {
        if self.json {
            print_line(&serde_json::json!({ "step": step, "result": fact }).to_string());
        }
    }
}
