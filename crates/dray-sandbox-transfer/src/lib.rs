//! dray-sandbox-transfer.
