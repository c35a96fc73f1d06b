//! Tests of files in a turn, with an in-process bus, a real store, and scripted services.

mod argument_links;
mod dial_files;
mod fixture;
mod keeping;
mod locating;
mod names;
mod offloading;
mod outgoing;
mod reading;
mod sandbox;
mod tickets;
