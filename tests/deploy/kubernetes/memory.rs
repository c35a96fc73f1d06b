//! The memory limits of pods, compared with what the default settings allow.

use super::object;

/// The memory limit of a service in bytes.
fn memory_limit(name: &str) -> u64 {
    let deployment = object("Deployment", name);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let limit = container["resources"]["limits"]["memory"].as_str();
    let gibibytes: u64 = limit.unwrap().strip_suffix("Gi").unwrap().parse().unwrap();
    gibibytes << 30
}

#[test]
fn limits_are_enough_for_requests_and_conversions() {
    let orchestrator = dray_orchestrator::Config::default();
    // Requests take about three times their bytes, and 1 GiB is for stored conversations.
    let requests = 3 * orchestrator.max_body_total.as_u64();
    assert!(requests + (1 << 30) <= memory_limit("orchestrator"));
    let resolver = dray_file_resolver::Config::default();
    // 1 GiB is for the service itself. With less than four conversions, readers of large nodes would wait for long.
    let conversions = 4 * resolver.reading.max_memory.as_u64();
    assert!(conversions + (1 << 30) <= memory_limit("file-resolver"));
}
