//! Metrics of the forward proxy. Tenants, sessions and hosts are never labels.

use std::time::Duration;

use dray_guard::Code;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

use crate::audit::ProxyProtocol;
use crate::limits::FetchAdmission;
use crate::proxy::meter::ByteCounts;
use crate::proxy::refusal::{ConnectionEnd, ProxyRefusal};

/// Label of clients that were refused before their protocol was known.
pub const UNKNOWN_PROTOCOL: &str = "unknown";

/// The instruments of the proxy.
#[derive(Clone, Debug)]
pub struct ProxyMetrics {
    connections: Counter<u64>,
    bytes: Counter<u64>,
    tunnels: UpDownCounter<i64>,
    open_seconds: Histogram<f64>,
    seconds: Histogram<f64>,
    tls_stale: Gauge<u64>,
    certificate_expiry: Gauge<u64>,
}

impl ProxyMetrics {
    /// Creates every instrument on `meter`, without any value.
    pub fn new(meter: &Meter) -> Self {
        let seconds = |name: &'static str, description: &'static str, bounds: &[f64]| {
            meter
                .f64_histogram(name)
                .with_description(description)
                .with_boundaries(bounds.to_vec())
                .build()
        };
        Self {
            connections: meter
                .u64_counter("dray_egress_proxy_connections_total")
                .with_description(
                    "Connections of the proxy that ended, by protocol (connect, http, socks5, unknown), verdict (allow, \
                     deny) and code (ok for an orderly end).",
                )
                .build(),
            bytes: meter
                .u64_counter("dray_egress_proxy_bytes_total")
                .with_description(
                    "Bytes between proxy and targets, by direction: up (to the target), down. Counted at the end of a \
                     connection.",
                )
                .build(),
            tunnels: meter
                .i64_up_down_counter("dray_egress_proxy_open_connections")
                .with_description("Connections of the proxy that are open to their target.")
                .build(),
            open_seconds: seconds(
                "dray_egress_proxy_open_seconds",
                "Seconds from the request to the open connection, by protocol.",
                &[0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0],
            ),
            seconds: seconds(
                "dray_egress_proxy_connection_seconds",
                "Seconds of a connection of the proxy from the request to its end.",
                &[0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 43200.0],
            ),
            tls_stale: meter
                .u64_gauge("dray_egress_proxy_tls_stale")
                .with_description(
                    "1 while the files for TLS with clients of the proxy cannot be used and the earlier ones stay in \
                     force, otherwise 0. Absent without TLS.",
                )
                .build(),
            certificate_expiry: meter
                .u64_gauge("dray_egress_proxy_certificate_expiry_timestamp_seconds")
                .with_description(
                    "Unix time at which a certificate of the proxy expires, by use: listener (TLS with clients), \
                     interception (the authority with its chain). Alert on it. Absent without certificates.",
                )
                .build(),
        }
    }

    /// Creates every counter with 0, so that the first event is an increase and not a new series.
    pub fn start_at_zero(&self) {
        for protocol in ProxyProtocol::ALL_PROTOCOLS {
            for end in ConnectionEnd::ALL_ENDS {
                self.count(protocol.as_str(), "allow", end.label(), 0);
            }
            for code in Code::ALL_REASONS {
                self.count(protocol.as_str(), "deny", code.as_str(), 0);
            }
        }
        for code in ProxyRefusal::OWN_CODES {
            self.count(UNKNOWN_PROTOCOL, "deny", code, 0);
        }
        for direction in ["up", "down"] {
            self.bytes.add(0, &[KeyValue::new("direction", direction)]);
        }
    }

    /// Shows how many connections wait whenever metrics are read.
    pub fn observe(meter: &Meter, admission: &FetchAdmission) {
        let admission = admission.clone();
        meter
            .u64_observable_gauge("dray_egress_proxy_queue_depth")
            .with_description("Connections of the proxy that wait for a slot.")
            .with_callback(move |observer| observer.observe(admission.waiting() as u64, &[]))
            .build();
    }

    /// Records whether the files for TLS with clients are wrong and earlier ones are in force.
    pub fn tls_stale(&self, is_stale: bool) {
        self.tls_stale.record(u64::from(is_stale), &[]);
    }

    /// Records when the certificate that clients of a listener with TLS see expires, in Unix seconds.
    pub fn listener_expires(&self, at_seconds: u64) {
        self.certificate_expires("listener", at_seconds);
    }

    /// Records when the authority for intercepted tunnels expires, in Unix seconds.
    pub fn authority_expires(&self, at_seconds: u64) {
        self.certificate_expires("interception", at_seconds);
    }

    fn certificate_expires(&self, usage: &'static str, at_seconds: u64) {
        self.certificate_expiry
            .record(at_seconds, &[KeyValue::new("use", usage)]);
    }

    /// Counts a connection to a target that has just been opened, after `time`.
    pub fn opened(&self, protocol: ProxyProtocol, time: Duration) {
        self.tunnels.add(1, &[]);
        let labels = [KeyValue::new("protocol", protocol.as_str())];
        self.open_seconds.record(time.as_secs_f64(), &labels);
    }

    /// Counts an open connection that ended.
    pub fn closed(
        &self,
        protocol: ProxyProtocol,
        code: &'static str,
        counts: &ByteCounts,
        time: Duration,
    ) {
        self.tunnels.add(-1, &[]);
        self.count(protocol.as_str(), "allow", code, 1);
        for (direction, count) in [("up", counts.up()), ("down", counts.down())] {
            self.bytes
                .add(count, &[KeyValue::new("direction", direction)]);
        }
        self.seconds.record(time.as_secs_f64(), &[]);
    }

    /// Counts a refused client; `protocol` may be [`UNKNOWN_PROTOCOL`].
    pub fn refused(&self, protocol: &'static str, code: &'static str) {
        self.count(protocol, "deny", code, 1);
    }

    fn count(&self, protocol: &'static str, verdict: &'static str, code: &'static str, by: u64) {
        self.connections.add(
            by,
            &[
                KeyValue::new("protocol", protocol),
                KeyValue::new("verdict", verdict),
                KeyValue::new("code", code),
            ],
        );
    }
}
