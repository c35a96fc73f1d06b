//! Tests of the clients in other languages with the real services.

mod adapters;
mod first_file;
mod fixture;
mod go;
mod python;
mod typescript;
