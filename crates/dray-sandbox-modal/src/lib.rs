//! dray-sandbox-modal.
