//! Captions.
