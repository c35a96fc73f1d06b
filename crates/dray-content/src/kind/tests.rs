//! Kinds.
