//! A client of DIAL Core (quickapps 5), and of any model that speaks chat completions (quickapps 17).
//!
//! Keys go to the exact origin that configuration names. Nothing is followed, nothing is cached beyond what says so.
