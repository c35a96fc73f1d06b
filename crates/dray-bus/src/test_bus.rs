//! Buses for the tests of other crates (feature `test-bus`): without metrics, and with the standard streams and buckets
//! where a test needs them.
//!
//! Product code names its meter and its options, and only an operator provisions a server. A bus that cannot be opened
//! makes the test fail.

#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be created makes the test fail"
)]

use dray_types::Clock;
use opentelemetry::metrics::noop::NoopMeterProvider;
use opentelemetry::metrics::{Meter, MeterProvider as _};

use crate::{Bus, NatsOptions, Topology};

/// Storage of the streams of [`connect_provisioned`], small enough for the test servers of several tests together.
const TEST_STORE_BYTES: u64 = 256 << 20;

/// A meter that records nothing.
pub fn noop_meter() -> Meter {
    NoopMeterProvider::new().meter("test")
}

/// A bus in this process, with calls only: work, events and key-value fail, as on a server without provisioning.
pub fn without_streams(clock: &Clock) -> Bus {
    Bus::in_process(clock.clone(), &noop_meter())
}

/// A bus in this process with the standard streams and buckets, as `dray up` opens it.
pub async fn in_process(clock: &Clock) -> Bus {
    let bus = without_streams(clock);
    provision(&bus, &Topology::default()).await;
    bus
}

/// A client of a server, with the system's clock. Creates no stream.
pub async fn connect(options: &NatsOptions) -> Bus {
    let connected = Bus::connect(options, Clock::system(), &noop_meter()).await;
    connected.unwrap()
}

/// Like [`connect`], on a new server without logins, whose standard streams and buckets it creates.
pub async fn connect_provisioned(url: &str) -> Bus {
    let bus = connect(&NatsOptions::at(url)).await;
    provision(&bus, &Topology::new(1, TEST_STORE_BYTES)).await;
    bus
}

/// Creates streams, consumers and buckets. Fails if the server has others under these names.
pub async fn provision(bus: &Bus, topology: &Topology) {
    assert_eq!(bus.apply_topology(topology).await.unwrap(), []);
}
