//! dray-egress-fetcher
