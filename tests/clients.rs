//! The clients in other languages against the real services.

mod adapters;
mod fixture;
mod go;
mod python;
mod typescript;
