//! dray-platform-slack.
