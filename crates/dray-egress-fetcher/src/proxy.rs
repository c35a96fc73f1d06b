//! The forward proxy: programs inside a sandbox reach the outside through the same guard as a fetch.
//!
//! A client shows a token or a certificate and names a target: with `CONNECT`, with a URL in absolute form, or over
//! SOCKS5. The proxy parses the target, applies the policy, resolves the name once, checks every address, connects to
//! one that it checked, and compares the peer. In the order in which a connection goes through:
//!
//! | module | what it does |
//! |---|---|
//! | [`listener`] | accepts clients, bounds those that are not identified, drains at the end |
//! | [`head`], [`socks`] | read what a client wants, strictly; pure |
//! | `client_tls`, [`certificate`] | TLS with the client, and the name of its certificate |
//! | `identify`, [`dray_guard::proxy_token`] | say who the client is |
//! | [`http2`] | clients of HTTP/2: each stream as a connection of HTTP/1.1 |
//! | [`serve`] | one client from its first byte to its end |
//! | `open` | judges the request for a connection, and opens it |
//! | [`hello`] | reads the server name of the TLS handshake in a tunnel; pure |
//! | `tunnel`, [`relay`] | a tunnel: bytes in both directions |
//! | `intercept` | a tunnel into which the proxy looks: judged requests, with TLS on both sides |
//! | [`persistent`] | requests one after the other in such a tunnel |
//! | [`authority`] | makes the certificates for that |
//! | `expect` | waits with a body until its target agrees |
//! | `form` | finds the methods that a body names |
//! | `forward` | sends a request and returns the response, one for each judged target |
//! | `target_path` | the target that the server gets |
//! | [`meter`] | counts and limits the bytes |
//! | `body` | limits the content of a response |
//! | [`refusal`] | what the client and the audit get when it is refused |
//!
//! Authority: everything before the token may come from anyone who reaches the listener, so it can only cost a bounded
//! head and a bounded time. A token lets its session connect within the operator's policy, which the token can only
//! narrow. For a client without a token, no name is resolved, no address dialled and no event published.
//!
//! The proxy looks into TLS only where the policy files say so. It speaks HTTP/2 only with clients, and follows no
//! redirect.

mod body;
#[cfg(feature = "service")]
pub mod certificate;
pub mod client;
pub mod head;
pub mod hello;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
pub mod http2;
// The fuzz targets use a part of it.
pub mod meter;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
pub mod persistent;
pub mod refusal;
#[cfg_attr(not(feature = "service"), allow(dead_code))]
mod response;
pub mod socks;

#[cfg(feature = "service")]
pub mod authority;
#[cfg(feature = "service")]
pub mod client_tls;
#[cfg(feature = "service")]
mod expect;
#[cfg(feature = "service")]
mod form;
#[cfg(feature = "service")]
mod forward;
#[cfg(feature = "service")]
mod identify;
#[cfg(feature = "service")]
mod intercept;
#[cfg(feature = "service")]
pub mod listener;
#[cfg(feature = "service")]
mod open;
#[cfg(feature = "service")]
pub mod relay;
#[cfg(feature = "service")]
pub mod serve;
#[cfg(feature = "service")]
mod target_path;
#[cfg(feature = "service")]
mod tunnel;
#[cfg(feature = "service")]
mod websocket;

#[cfg(feature = "service")]
pub use listener::RunningProxy;
#[cfg(feature = "service")]
pub use serve::ForwardProxy;

#[cfg(test)]
#[cfg(feature = "service")]
mod tests;
