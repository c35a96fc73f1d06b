//! dray-sandbox-daytona.
