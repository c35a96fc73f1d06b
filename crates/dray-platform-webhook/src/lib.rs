//! dray-platform-webhook.
