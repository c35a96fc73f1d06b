//! Tests with the official Python package, and with a scripted server that misbehaves.

mod asking;
mod assertions;
mod credentials;
mod declarations;
mod faults;
mod floods;
mod hidden;
mod hostile;
mod login;
mod modern;
mod oauth;
mod pool;
mod program;
mod python;
mod results;
mod support;
mod workload;
