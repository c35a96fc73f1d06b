//! dray-platform-delivery.
