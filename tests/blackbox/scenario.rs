//! The scenarios, one module for each part of the envelope.

use dray_types::hex::hex_digits;

use crate::veth::PUBLIC_ADDRESS;

mod address;
mod body;
mod name;
mod notice;
mod opened;
mod policy;
mod proxy;
mod reach;
mod rebinding;
mod redirect;
mod reference;
mod request;
mod resolver;
mod spelling;
mod start;
mod tls;

/// Statuses that redirect (section 12).
const REDIRECT_STATUSES: [u16; 5] = [301, 302, 303, 307, 308];

/// A path whose response has this status and this `Location`.
fn to(status: u16, location: &str) -> String {
    format!("/to/{status}/{}", hex_digits(location.as_bytes()))
}

/// A path whose response is these bytes and the end of the connection.
fn raw(response: &str) -> String {
    format!("/raw/{}", hex_digits(response.as_bytes()))
}

/// A URL with this path on the public server.
fn public(path: &str) -> String {
    format!("http://{PUBLIC_ADDRESS}{path}")
}

/// The bytes that `/bytes/SIZE`, `/gzip/SIZE` and `/chunked/SIZE` send.
fn pattern(size: usize) -> Vec<u8> {
    (0..256_u32)
        .flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes())
        .cycle()
        .take(size)
        .collect()
}
