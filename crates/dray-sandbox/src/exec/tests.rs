//! Every operation with every shell and over every kind of channel.

mod conformance;
mod world;
