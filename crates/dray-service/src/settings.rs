//! The sections that every process has, and the starting point of a host.

mod grpc;
mod sections;

use std::path::PathBuf;

use dray_bus::Bus;
use dray_store::Store;
use dray_types::Clock;

pub use grpc::GrpcSection;
pub use sections::{
    BusMode, BusSection, HttpSection, LimitsSection, LogFormat, ShutdownSection, StateSection,
    StoreMode, StoreSection, TelemetrySection,
};

use crate::config::ConfigSources;

/// The starting point of a [`Host`](crate::Host): the sources of its configuration, and replacements of a test or an
/// embedder for resources that the configuration would open.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Sources of the configuration, which stay unread until the host starts.
    pub sources: ConfigSources,
    /// The clock of everything that the host starts.
    pub clock: Clock,
    /// A bus to share instead of the configured one. Its owner provisions it and drains it.
    pub bus: Option<Bus>,
    /// A store to share instead of the configured one. Its owner closes it.
    pub store: Option<Store>,
}

impl Settings {
    /// Starts from these sources, with everything as configured.
    pub fn new(sources: ConfigSources) -> Self {
        Self {
            sources,
            ..Self::default()
        }
    }

    /// A system on one machine: in-process bus, embedded store in `directory`, listeners on free loopback ports. Tests
    /// and the demo start from it; further sources may be set on top.
    pub fn embedded(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self::new(
            ConfigSources::default()
                .set("state.directory", directory.to_string_lossy())
                .set("http.listen", "127.0.0.1:0")
                .set("grpc.listen", "127.0.0.1:0"),
        )
    }

    /// Sets one key above all other sources.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.sources = self.sources.set(key, value);
        self
    }

    /// Uses this clock instead of that of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Shares this bus with the host.
    #[must_use]
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = Some(bus);
        self
    }

    /// Shares this store with the host.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }
}
