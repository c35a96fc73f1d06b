//! dray-service
