//! dray-bus
