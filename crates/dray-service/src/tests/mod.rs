//! The skeleton as a caller and an operator meet it: whole hosts on the in-process bus.

mod calls;
mod edge;
mod grpc;
mod grpc_auth;
mod lifecycle;
mod nats;
mod pages;
mod service;
mod trace;
mod work;
