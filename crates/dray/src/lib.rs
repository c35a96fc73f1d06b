//! dray
