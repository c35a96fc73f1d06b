//! dray-store
