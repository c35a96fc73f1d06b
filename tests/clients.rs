//! The clients in other languages against the real services.

mod fixture;
mod python;
mod typescript;
