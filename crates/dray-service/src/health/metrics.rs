//! The metric of readiness.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::ProcessHealth;

/// Shows whether this process accepts work, for each of its services, whenever metrics are read.
pub(crate) fn observe_readiness(meter: &Meter, health: &ProcessHealth, services: &[&'static str]) {
    let health = health.clone();
    let labels: Vec<_> = services
        .iter()
        .map(|service| [KeyValue::new("service", *service)])
        .collect();
    meter
        .u64_observable_gauge("dray_ready")
        .with_description("1 while the process accepts work, otherwise 0, by service.")
        .with_callback(move |observer| {
            let ready = u64::from(health.is_ready());
            for label in &labels {
                observer.observe(ready, label);
            }
        })
        .build();
}
