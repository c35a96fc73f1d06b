//! The clients in other languages against the real services.

mod python;
