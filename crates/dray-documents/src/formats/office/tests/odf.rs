//! ODT and ODP, rule by rule (read-attachment 7.8, 7.10).
