//! What a turn does with files, over a bus inside the process, a real store, and scripted services.

mod dial_files;
mod keeping;
mod names;
mod offloading;
mod outgoing;
mod reading;
mod sandbox;
mod tickets;
mod world;
