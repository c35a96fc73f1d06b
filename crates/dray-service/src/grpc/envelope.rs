//! Reads the envelope of a message from gRPC metadata.

use std::str::FromStr;
use std::time::Duration;

use dray_bus::Meta;
use dray_types::{
    AppId, Deadline, Fault, FaultCode, OperationId, Period, SessionId, TenantId, TraceContext,
};
use tonic::metadata::MetadataMap;

/// Reads caller, deadline and trace. Without `grpc-timeout` the deadline is `default_timeout` from now. The tenant is
/// the tenant of the identity if the endpoint has identities; otherwise the tenant in the metadata.
pub(super) fn read_meta(
    metadata: &MetadataMap,
    now_ms: u64,
    default_timeout: Period,
    known_tenant: Option<TenantId>,
) -> Result<Meta, Fault> {
    let tenant = match known_tenant {
        Some(tenant) => tenant,
        None => parse_metadata(metadata, "dray-tenant")?
            .ok_or_else(|| invalid_argument("The metadata lacks `dray-tenant`."))?,
    };
    let timeout = match metadata_text(metadata, "grpc-timeout")? {
        Some(written) => parse_timeout(written)
            .ok_or_else(|| invalid_argument("`grpc-timeout` is not valid."))?,
        None => default_timeout.as_duration(),
    };
    let mut meta = Meta::new(tenant, Deadline::after(now_ms, timeout));
    if let Some(operation) = parse_metadata::<OperationId>(metadata, "dray-operation")? {
        meta = meta.with_operation(operation);
    }
    if let Some(session) = parse_metadata::<SessionId>(metadata, "dray-session")? {
        meta = meta.with_session(session);
    }
    if let Some(app) = parse_metadata::<AppId>(metadata, "dray-app")? {
        meta = meta.with_app(app);
    }
    // A malformed trace starts a new one, so it is never refused.
    let header = |name| {
        metadata
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    Ok(meta.with_trace(TraceContext::new(
        header("traceparent"),
        header("tracestate"),
    )))
}

fn metadata_text<'a>(
    metadata: &'a MetadataMap,
    name: &'static str,
) -> Result<Option<&'a str>, Fault> {
    metadata
        .get(name)
        .map(|value| value.to_str())
        .transpose()
        .map_err(|_| not_valid(name))
}

fn parse_metadata<T: FromStr>(
    metadata: &MetadataMap,
    name: &'static str,
) -> Result<Option<T>, Fault> {
    metadata_text(metadata, name)?
        .map(str::parse)
        .transpose()
        .map_err(|_| not_valid(name))
}

fn not_valid(name: &str) -> Fault {
    invalid_argument(format!("`{name}` in the metadata is not valid."))
}

fn invalid_argument(message: impl Into<String>) -> Fault {
    Fault::new(FaultCode::InvalidArgument, message)
        .detail("invalid_envelope")
        .advice("Correct the metadata and send the request again.")
}

/// Parses at most eight digits and a unit (gRPC over HTTP/2, "Timeout").
fn parse_timeout(written: &str) -> Option<Duration> {
    let (digits, unit) = written.split_at_checked(written.len().checked_sub(1)?)?;
    // Eight digits, so no product below overflows.
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(entries: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (name, value) in entries {
            metadata.insert(*name, value.parse().unwrap());
        }
        metadata
    }

    fn check(entries: &[(&'static str, &str)]) -> Result<Meta, Fault> {
        read_meta(&metadata(entries), 1_000, Period::secs(60), None)
    }

    #[test]
    fn timeouts_have_units() {
        for (written, expected) in [
            ("1H", Some(Duration::from_hours(1))),
            ("2M", Some(Duration::from_mins(2))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("99999999H", Some(Duration::from_hours(99_999_999))),
            ("123456789S", None),
            ("S", None),
            ("", None),
            ("1", None),
            ("-1S", None),
            ("1s", None),
        ] {
            assert_eq!(parse_timeout(written), expected, "{written}");
        }
    }

    #[test]
    fn everything_of_the_envelope_is_read() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let meta = check(&[
            ("dray-tenant", "acme"),
            ("dray-operation", "o-1"),
            ("dray-session", "s"),
            ("dray-app", "a"),
            ("grpc-timeout", "5S"),
            ("traceparent", trace),
        ])
        .unwrap();
        assert_eq!(meta.tenant.as_str(), "acme");
        assert_eq!(meta.operation.as_str(), "o-1");
        assert_eq!(meta.session.unwrap().as_str(), "s");
        assert_eq!(meta.app.unwrap().as_str(), "a");
        assert_eq!(meta.deadline.unix_ms(), 6_000);
        assert_eq!(meta.trace.traceparent, trace);
    }

    #[test]
    fn the_tenant_of_a_known_caller_does_not_come_from_the_metadata() {
        let known = Some(TenantId::new("acme").unwrap());
        let named = metadata(&[("dray-tenant", "other")]);
        let meta = read_meta(&named, 1_000, Period::secs(60), known).unwrap();
        assert_eq!(meta.tenant.as_str(), "acme");
    }

    #[test]
    fn missing_fields_are_minted_defaulted_or_refused() {
        let meta = check(&[("dray-tenant", "acme")]).unwrap();
        assert!(!meta.operation.as_str().is_empty());
        assert_eq!(meta.deadline.unix_ms(), 61_000);
        assert_eq!(check(&[]).unwrap_err().code, FaultCode::InvalidArgument);
        for (name, wrong) in [
            ("dray-tenant", "a b"),
            ("dray-operation", ""),
            ("grpc-timeout", "soon"),
        ] {
            let fault = check(&[("dray-tenant", "acme"), (name, wrong)]).unwrap_err();
            assert!(fault.message.contains(name), "{}", fault.message);
        }
        let odd = check(&[("dray-tenant", "acme"), ("traceparent", "nonsense")]).unwrap();
        assert!(odd.trace.is_empty());
    }
}
