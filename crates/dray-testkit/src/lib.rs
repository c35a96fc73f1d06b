//! dray-testkit
