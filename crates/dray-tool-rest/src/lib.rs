//! HTTP endpoints as tools (quickapps 23).
