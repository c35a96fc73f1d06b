//! dray-sandbox-e2b.
