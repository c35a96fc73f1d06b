//! The clients in other languages against the real services.

mod fixture;
mod go;
mod python;
mod typescript;
