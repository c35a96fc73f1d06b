//! dray-sandbox-kubernetes.
