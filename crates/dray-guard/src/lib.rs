//! dray-guard
