//! dray-file-resolver
