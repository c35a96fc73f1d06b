//! dray-platform-email.
