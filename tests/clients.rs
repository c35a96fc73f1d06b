//! Tests of the clients in other languages with the real services.

mod adapters;
mod first_file;
mod fixture;
mod go;
mod publishers;
mod python;
mod python_versions;
mod scopes;
mod typescript;

use crate::processes::machine;

#[tokio::test(flavor = "multi_thread")]
async fn publishers_of_both_clients_lose_nothing_and_get_nothing_twice_while_replicas_are_killed() {
    publishers::publish_under_kills(publishers::PublisherRun {
        services: &["file-resolver", "egress-fetcher"],
        kills: 4,
        calls: 10,
        seed: 20_261_127,
        expires_leases: true,
    })
    .await;
}
