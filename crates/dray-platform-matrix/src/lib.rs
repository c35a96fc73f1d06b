//! dray-platform-matrix.
