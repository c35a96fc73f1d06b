//! dray-platform-telegram.
