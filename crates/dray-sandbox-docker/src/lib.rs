//! dray-sandbox-docker.
