//! dray-content.
