//! Destinations of the client for manifests of callers: hosts that the operator allows at public addresses, and exact
//! origins that the operator named.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use dray_guard::{
    AdminPolicy, AllowedPorts, AppPolicy, CanonicalUrl, DnsAnswer, EffectivePolicy, HopContext,
    Host, HostPatterns, Judge, JudgeConfig, PinnedAddresses, RefusedHop,
};
use dray_http::{Cause, DestinationGuard, Url};

use crate::config::permissions::{ANY_NAME, ManifestPermissions};

/// The egress guard over the destinations of one set of permissions.
#[derive(Clone, Debug)]
pub struct DestinationPolicy {
    policy: Arc<EffectivePolicy>,
    /// Origins that the operator named: scheme, host and port.
    origins: Vec<(String, String, u16)>,
    judge: Judge,
}

impl DestinationPolicy {
    /// The destinations of these permissions.
    ///
    /// # Errors
    ///
    /// The fault of a pattern or an origin, for the operator.
    pub fn new(permissions: &ManifestPermissions) -> Result<Self, String> {
        let is_any = permissions.hosts.iter().any(|host| host == ANY_NAME);
        let hosts = HostPatterns::parse(&permissions.hosts);
        let host_allowlist = match hosts {
            // Where no list exists, every host at a public address is permitted.
            _ if is_any => None,
            Ok(patterns) => Some(patterns),
            Err(error) => return Err(error.to_string()),
        };
        let admin = AdminPolicy {
            enabled: true,
            host_allowlist,
            ports: AllowedPorts::any(),
            ..AdminPolicy::default()
        };
        let policy =
            EffectivePolicy::new(&admin, &AppPolicy::default()).map_err(|code| code.to_string())?;
        let origins = permissions.origins.iter().map(|text| parse_origin(text));
        Ok(Self {
            policy: Arc::new(policy),
            origins: origins.collect::<Result<_, _>>()?,
            judge: Judge::new(JudgeConfig::default()),
        })
    }

    /// Whether a manifest may name this address. Only its text is checked; names are not resolved here.
    ///
    /// # Errors
    ///
    /// The reason, for the author of the manifest. It never contains an address that a name resolves to.
    pub fn check(&self, address: &str) -> Result<(), String> {
        let url = Url::parse(address).map_err(|_| "is not a URL".to_owned())?;
        self.check_parsed(&url)
    }

    fn check_parsed(&self, url: &Url) -> Result<(), String> {
        let (scheme, host, port) = destination_parts(url).ok_or("is not an http or https URL")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has credentials in it".to_owned());
        }
        if self.is_named_origin(&scheme, &host, port) {
            return Ok(());
        }
        if self.is_named_host(&host) {
            // The addresses of this host are not checked, so only the named origin on it may be connected to.
            return Err("is not an origin that this caller may use".to_owned());
        }
        let canonical = CanonicalUrl::parse(&format!("{scheme}://{host}:{port}/"))
            .map_err(|code| code.to_string())?;
        self.policy
            .check(&canonical)
            .map_err(|_| "is not a destination that this caller may use".to_owned())?;
        // A literal address is never resolved, so `check_addresses` does not see it.
        if let Host::Ip(address) = canonical.host() {
            self.pin_literal(*address, port)
                .map_err(|_| "is not a public address".to_owned())?;
        }
        Ok(())
    }

    fn is_named_origin(&self, scheme: &str, host: &str, port: u16) -> bool {
        self.origins.iter().any(|(of_scheme, of_host, of_port)| {
            of_scheme == scheme && of_host == host && *of_port == port
        })
    }

    fn is_named_host(&self, host: &str) -> bool {
        self.origins.iter().any(|(_, named, _)| named == host)
    }

    fn pin_literal(&self, address: IpAddr, port: u16) -> Result<PinnedAddresses, RefusedHop> {
        let judge = self.judge_here(&[address]);
        judge.judge_literal(address, port, HopContext::default())
    }

    /// The judge that knows which of these addresses belong to this machine.
    fn judge_here(&self, addresses: &[IpAddr]) -> Judge {
        let own = addresses.iter().copied().filter(|address| is_own(*address));
        self.judge.with_own_addresses(own.collect())
    }
}

impl DestinationGuard for DestinationPolicy {
    fn check_url(&self, url: &Url) -> Result<(), Cause> {
        self.check_parsed(url).map_err(|reason| {
            tracing::warn!(
                host = url.host_str(),
                reason,
                "a caller's manifest leads to a refused address"
            );
            Cause::from(format!("the destination {reason}"))
        })
    }

    fn check_addresses(&self, host: &str, resolved: Vec<IpAddr>) -> Result<Vec<IpAddr>, Cause> {
        if self.is_named_host(host) {
            // The operator named an origin of this host, which may be at private and loopback addresses.
            return Ok(resolved);
        }
        // Only the host counts here; a scheme is needed to parse it.
        let url = CanonicalUrl::parse(&format!("http://{host}/"))
            .map_err(|code| Cause::from(code.to_string()))?;
        let Host::Name(name) = url.host() else {
            return Err("the name of the host is an IP address".into());
        };
        let judge = self.judge_here(&resolved);
        let answer = DnsAnswer {
            name: name.clone(),
            // The resolver of the client gives addresses only.
            cnames: Vec::new(),
            addresses: resolved,
            dnssec: dray_guard::DnssecStatus::NotKnown,
        };
        let pinned = judge
            .judge_answer(&answer, url.port(), HopContext::default())
            .inspect_err(|refusal| {
                tracing::warn!(host, code = %refusal.code, "a caller's manifest leads to a refused address");
            })?;
        let addresses = pinned.addresses().iter();
        Ok(addresses
            .map(|address| address.socket_addr().ip())
            .collect())
    }
}

/// Whether an address belongs to this machine: only such an address can be bound. Checked for each connection, because
/// addresses change.
fn is_own(address: IpAddr) -> bool {
    // The socket is UDP with port 0, so that no program listens, and no specific port has to be free.
    UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// Scheme, host as it is connected to, and port.
fn destination_parts(url: &Url) -> Option<(String, String, u16)> {
    let scheme = url.scheme();
    if !matches!(scheme, "http" | "https") {
        return None;
    }
    let host = url.host_str()?.to_owned();
    Some((scheme.to_owned(), host, url.port_or_known_default()?))
}

fn parse_origin(text: &str) -> Result<(String, String, u16), String> {
    let invalid_origin = || format!("`{text}` is not an origin such as https://tools.example.org");
    let url = Url::parse(text).map_err(|_| invalid_origin())?;
    let is_bare = url.path() == "/"
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    destination_parts(&url)
        .filter(|_| is_bare)
        .ok_or_else(invalid_origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(hosts: &[&str], origins: &[&str]) -> DestinationPolicy {
        let list = |all: &[&str]| all.iter().map(|pattern| (*pattern).to_owned()).collect();
        let permissions = ManifestPermissions {
            hosts: list(hosts),
            origins: list(origins),
            ..ManifestPermissions::default()
        };
        DestinationPolicy::new(&permissions).unwrap()
    }

    fn allowed_addresses(
        destinations: &DestinationPolicy,
        host: &str,
        addresses: &[&str],
    ) -> Option<Vec<IpAddr>> {
        let addresses = addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect();
        destinations.check_addresses(host, addresses).ok()
    }

    #[test]
    fn refuses_every_spelling_of_addresses_that_are_not_public() {
        let any = destinations(&["*"], &[]);
        for address in [
            "http://127.0.0.1:9090/metrics",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.7/",
            "http://localhost/",
            "http://metadata.google.internal/",
            "http://kubernetes.default.svc/",
            "http://user:word@files.example.org/",
            "file:///etc/passwd",
            "stdio:notes",
            "nonsense",
        ] {
            assert!(any.check(address).is_err(), "{address}");
        }
        for address in ["https://files.example.org/mcp", "http://8.8.8.8:8080/x"] {
            assert_eq!(any.check(address), Ok(()), "{address}");
        }
    }

    #[test]
    fn allows_no_host_unless_it_is_listed() {
        assert!(
            destinations(&[], &[])
                .check("https://files.example.org/")
                .is_err()
        );
        let listed = destinations(&["*.example.org"], &[]);
        assert_eq!(listed.check("https://files.example.org/"), Ok(()));
        assert!(listed.check("https://files.example.com/").is_err());
        assert!(listed.check("https://8.8.8.8/").is_err());
    }

    #[test]
    fn a_name_that_resolves_to_one_address_that_is_not_public_is_refused() {
        let any = destinations(&["*"], &[]);
        let public = "93.184.215.14";
        assert!(allowed_addresses(&any, "files.example.org", &[public]).is_some());
        for inner in ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fd00::1"] {
            assert_eq!(
                allowed_addresses(&any, "files.example.org", &[public, inner]),
                None,
                "{inner}"
            );
        }
    }

    #[test]
    fn an_origin_of_the_operator_is_reached_only_with_its_scheme_host_and_port() {
        let named = destinations(
            &["*"],
            &["http://tools.internal:8080", "http://127.0.0.1:81/"],
        );
        assert_eq!(named.check("http://tools.internal:8080/mcp"), Ok(()));
        assert_eq!(named.check("http://127.0.0.1:81/mcp"), Ok(()));
        for other in [
            "http://tools.internal/mcp",
            "https://tools.internal:8080/mcp",
            "http://127.0.0.1:82/",
            "http://127.0.0.2:81/",
        ] {
            assert!(named.check(other).is_err(), "{other}");
        }
        assert!(allowed_addresses(&named, "tools.internal", &["10.1.2.3"]).is_some());
        assert!(allowed_addresses(&named, "other.example.org", &["10.1.2.3"]).is_none());
    }

    #[test]
    fn addresses_of_this_machine_are_its_own() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn an_origin_has_no_path() {
        assert!(parse_origin("https://a.example/").is_ok());
        for invalid in [
            "https://a.example/x",
            "https://u@a.example",
            "a.example",
            "ftp://a.example",
        ] {
            assert!(parse_origin(invalid).is_err(), "{invalid}");
        }
    }
}
