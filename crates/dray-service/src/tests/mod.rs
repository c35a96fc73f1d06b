//! The skeleton as a caller and an operator meet it: whole hosts on the in-process bus.

mod calls;
mod grpc;
mod lifecycle;
mod service;
mod trace;
mod work;
