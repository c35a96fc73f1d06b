//! The service skeleton from the view of a caller and an operator: complete hosts on the in-process bus.

mod calls;
mod edge;
mod grpc;
mod grpc_age;
mod grpc_auth;
mod grpc_files;
mod grpc_resumption;
mod grpc_silent;
mod lifecycle;
mod linger;
mod nats;
mod pages;
mod service;
mod streams;
mod trace;
mod work;
