//! Tests of the clients in other languages with the real services.

mod adapters;
mod fixture;
mod go;
mod python;
mod typescript;
