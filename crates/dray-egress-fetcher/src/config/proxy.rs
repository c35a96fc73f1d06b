//! The forward proxy in the configuration: fields, checks, and what they compile to.

use std::net::SocketAddr;
use std::time::Duration;

use dray_guard::proxy_token::TokenKeys;
use dray_guard::{AdminPolicy, AllowedPorts};
use dray_service::config::ConfigProblem;
use dray_types::{ByteSize, Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;
use super::{ClientTlsConfig, ClientTlsSettings, InterceptionConfig, InterceptionSettings};
use crate::limits::AdmissionLimits;
use crate::proxy::meter::ByteLimits;

/// Longest time that an operator may configure for anything before a tunnel is open.
const MAX_OPEN_TIMEOUT: Period = Period::secs(300);
/// Longest time of a connection that an operator may configure.
const MAX_TUNNEL_TIMEOUT: Period = Period::secs(7 * 24 * 3600);

/// The forward proxy for what runs inside sandboxes; off until `listen` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Address on which the proxy listens, such as `0.0.0.0:3128`. Unset: no proxy. Clients need a token or a
    /// certificate.
    pub listen: Option<SocketAddr>,
    /// Key of the tokens that identify clients, at least 32 bytes. Its holder can act as any tenant. May be unset if
    /// `tls.clients` identifies the clients.
    pub token_key: Option<Secret>,
    /// The previous key, whose tokens are still accepted while the key is being changed. Unset: none.
    pub previous_token_key: Option<Secret>,
    /// Ports for `CONNECT` and SOCKS5, written as in `allowed_ports`, which must allow them too.
    pub connect_ports: String,
    /// Ports for plain HTTP requests, written as in `allowed_ports`, which must allow them too.
    pub http_ports: String,
    /// Ports among `connect_ports` whose tunnels need not carry TLS: any bytes may pass there, even to another host
    /// behind the same address. Unset: none.
    pub plain_ports: Option<String>,
    /// Accepts TLS handshakes with an encrypted `ClientHello`, which can hide the name of another server. Chromium and
    /// Firefox need it, since they send a meaningless one to every server.
    pub allow_encrypted_hello: bool,
    /// Most concurrent connections. A tenant gets another one only while it holds fewer than are free, so at most half
    /// of all.
    pub max_tunnels: u32,
    /// Most concurrent connections of one tenant, and most concurrent HTTP/2 streams of one tenant. Unset: half of all,
    /// which no tenant can exceed in any case.
    pub max_per_tenant: Option<u32>,
    /// Most concurrent connections of one session.
    pub max_per_session: u32,
    /// Most concurrent connections to one host, and to one address. A tenant gets another one only while it holds fewer
    /// than are free there, so at most half of all.
    pub max_per_host: u32,
    /// Most connections that wait for a slot.
    pub max_queue: u32,
    /// Most concurrent clients that have not sent a token yet; at most a quarter of them from one address.
    pub max_unidentified: u32,
    /// Longest time for the head of a request or the messages of SOCKS5, token included; at most `5m`. The TLS
    /// handshake before it has the same limit.
    pub head_timeout: Period,
    /// Longest time from the head to the open connection, for waiting for a slot, DNS and connecting; at most `5m`.
    pub open_timeout: Period,
    /// Longest time from the open tunnel to the end of the client's TLS `ClientHello`; at most `5m`.
    pub hello_timeout: Period,
    /// Longest time without a byte in either direction; at most 7 days. It is at most a minute once one side has
    /// closed.
    pub idle_timeout: Period,
    /// Longest time of a connection, at most 7 days. A connection also ends when its token or certificate expires.
    pub tunnel_timeout: Period,
    /// How long open connections may continue when the process stops; at most `5m`.
    pub drain_timeout: Period,
    /// Most bytes that one connection sends to its target.
    pub max_up_bytes: ByteSize,
    /// Most bytes that one connection receives from its target.
    pub max_down_bytes: ByteSize,
    /// The certificate authority for tunnels into which the proxy looks.
    pub interception: InterceptionConfig,
    /// TLS between clients and the proxy, with or without certificates of clients.
    pub tls: ClientTlsConfig,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listen: None,
            token_key: None,
            previous_token_key: None,
            connect_ports: "443".to_owned(),
            http_ports: "80".to_owned(),
            plain_ports: None,
            allow_encrypted_hello: false,
            max_tunnels: 4096,
            max_per_tenant: None,
            max_per_session: 64,
            max_per_host: 1024,
            max_queue: 256,
            max_unidentified: 1024,
            head_timeout: Period::secs(10),
            open_timeout: Period::secs(30),
            hello_timeout: Period::secs(10),
            idle_timeout: Period::secs(300),
            tunnel_timeout: Period::secs(12 * 3600),
            drain_timeout: Period::secs(20),
            max_up_bytes: ByteSize::mib(4 * 1024),
            max_down_bytes: ByteSize::mib(16 * 1024),
            interception: InterceptionConfig::default(),
            tls: ClientTlsConfig::default(),
        }
    }
}

/// A checked configuration of the proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// Keys of tokens; `None` where certificates alone identify clients.
    pub keys: Option<TokenKeys>,
    /// Ports of tunnels.
    pub connect_ports: AllowedPorts,
    /// Ports of plain HTTP requests.
    pub http_ports: AllowedPorts,
    /// Ports of tunnels that need not carry TLS.
    pub plain_ports: Option<AllowedPorts>,
    /// Whether an encrypted `ClientHello` is accepted.
    pub allow_encrypted_hello: bool,
    /// How many connections are open or wait. The app of a slot is the session here.
    pub sizes: AdmissionLimits,
    /// Clients that are not identified yet.
    pub max_unidentified: usize,
    /// Time for the head.
    pub head_timeout: Duration,
    /// Time from the head to the connection.
    pub open_timeout: Duration,
    /// Time for the `ClientHello`.
    pub hello_timeout: Duration,
    /// Longest silence.
    pub idle_timeout: Duration,
    /// Longest time of a connection.
    pub tunnel_timeout: Duration,
    /// Time for the open connections when the process stops.
    pub drain_timeout: Duration,
    /// Most bytes in each direction.
    pub limits: ByteLimits,
    /// The authority for intercepted tunnels; `None` without one.
    pub interception: Option<InterceptionSettings>,
    /// TLS with clients; `None` for plain TCP.
    pub tls: Option<ClientTlsSettings>,
}

impl ProxySettings {
    /// Whether a tunnel to this port need not carry TLS.
    pub fn is_plain_port(&self, port: u16) -> bool {
        self.plain_ports
            .as_ref()
            .is_some_and(|ports| ports.allows(port))
    }
}

impl ProxyConfig {
    /// Checks the fields; `None` when there is to be no proxy. Everything is checked in both cases.
    pub(super) fn compile(
        &self,
        admin: &AdminPolicy,
        checks: &mut ProblemCollector,
    ) -> Option<ProxySettings> {
        let connect_ports = self.ports("connect_ports", &self.connect_ports, admin, checks);
        let http_ports = self.ports("http_ports", &self.http_ports, admin, checks);
        let plain_ports = self.plain_ports.as_ref().map(|text| {
            let ports = self.ports("plain_ports", text, admin, checks);
            if admin.https_only {
                checks.add("proxy.plain_ports", "must be absent with https_only");
            }
            ports
        });
        let limits = ByteLimits {
            up: self.bytes("max_up_bytes", self.max_up_bytes, checks),
            down: self.bytes("max_down_bytes", self.max_down_bytes, checks),
        };
        let max_per_host = checks.count("proxy.max_per_host", self.max_per_host);
        let sizes = AdmissionLimits {
            global: checks.count("proxy.max_tunnels", self.max_tunnels),
            per_tenant: self.max_per_tenant.map_or(usize::MAX, |count| {
                checks.count("proxy.max_per_tenant", count)
            }),
            per_host: max_per_host,
            per_address: max_per_host,
            shares_targets: true,
            per_app: checks.count("proxy.max_per_session", self.max_per_session),
            queue: checks.count("proxy.max_queue", self.max_queue),
        };
        let mut period =
            |field: &str, value, limit| checks.period(&format!("proxy.{field}"), value, limit);
        let head_timeout = period("head_timeout", self.head_timeout, MAX_OPEN_TIMEOUT);
        let open_timeout = period("open_timeout", self.open_timeout, MAX_OPEN_TIMEOUT);
        let hello_timeout = period("hello_timeout", self.hello_timeout, MAX_OPEN_TIMEOUT);
        let idle_timeout = period("idle_timeout", self.idle_timeout, MAX_TUNNEL_TIMEOUT);
        let tunnel_timeout = period("tunnel_timeout", self.tunnel_timeout, MAX_TUNNEL_TIMEOUT);
        let drain_timeout = period("drain_timeout", self.drain_timeout, MAX_OPEN_TIMEOUT);
        let max_unidentified = checks.count("proxy.max_unidentified", self.max_unidentified);
        let keys = self.keys(checks);
        let interception = self.interception.compile(checks);
        let tls = self.tls.compile(checks);
        Some(ProxySettings {
            listen: self.listen?,
            keys,
            connect_ports,
            http_ports,
            plain_ports,
            allow_encrypted_hello: self.allow_encrypted_hello,
            sizes,
            max_unidentified,
            head_timeout,
            open_timeout,
            hello_timeout,
            idle_timeout,
            tunnel_timeout,
            drain_timeout,
            limits,
            interception,
            tls,
        })
    }

    /// The keys of tokens.
    fn keys(&self, checks: &mut ProblemCollector) -> Option<TokenKeys> {
        let Some(current) = &self.token_key else {
            // Without a key no client could be identified, and an address does not identify a client.
            if self.listen.is_some() && self.tls.clients.is_empty() {
                checks.add(
                    "proxy.token_key",
                    "must be set, or no client can be identified",
                );
            }
            return None;
        };
        match TokenKeys::new(current, self.previous_token_key.as_ref()) {
            Ok(keys) => Some(keys),
            Err(error) => {
                checks.add("proxy.token_key", &error.to_string());
                None
            }
        }
    }

    /// Ports, which must be among those of the operator's policy: the cap holds for the proxy as well (I-5).
    fn ports(
        &self,
        field: &str,
        text: &str,
        admin: &AdminPolicy,
        checks: &mut ProblemCollector,
    ) -> AllowedPorts {
        let field = format!("proxy.{field}");
        let ports: AllowedPorts = checks.read(&field, text.parse());
        // Without a listener nothing uses the ports, and the search through all of them is a large part of a start.
        if self.listen.is_some()
            && let Some(port) =
                (1..=u16::MAX).find(|port| ports.allows(*port) && !admin.ports.allows(*port))
        {
            checks.add(
                &field,
                &format!("has port {port}, which allowed_ports does not allow"),
            );
        }
        ports
    }

    #[expect(clippy::unused_self, reason = "beside the other checks of the section")]
    fn bytes(&self, field: &str, size: ByteSize, checks: &mut ProblemCollector) -> u64 {
        if size.as_u64() == 0 {
            checks.add(&format!("proxy.{field}"), "must be at least 1 byte");
        }
        size.as_u64()
    }
}

impl ProblemCollector {
    pub(super) fn add(&mut self, field: &str, message: &str) {
        self.0.push(ConfigProblem::new(field, message));
    }
}

#[cfg(test)]
mod tests {
    use dray_service::config::refused_fields;
    use dray_types::FileSetting;

    use super::*;
    use crate::Config;

    fn problems_with(change: impl FnOnce(&mut ProxyConfig)) -> Vec<String> {
        refused_fields(|config: &mut Config| {
            config.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
            config.proxy.token_key = Some(Secret::new("k".repeat(32)));
            change(&mut config.proxy);
        })
    }

    #[test]
    fn the_proxy_is_off_by_default_and_needs_a_key() {
        assert!(Config::default().compile().unwrap().proxy.is_none());
        assert_eq!(problems_with(|_| {}), Vec::<String>::new());
        assert_eq!(
            problems_with(|proxy| proxy.token_key = None),
            ["proxy.token_key"]
        );
        let short = |proxy: &mut ProxyConfig| proxy.token_key = Some(Secret::new("short"));
        assert_eq!(problems_with(short), ["proxy.token_key"]);
        let short = |proxy: &mut ProxyConfig| proxy.previous_token_key = Some(Secret::new("x"));
        assert_eq!(problems_with(short), ["proxy.token_key"]);
    }

    #[test]
    fn i_5_ports_of_the_proxy_lie_within_those_of_the_policy() {
        for ports in ["22", "9999", "any", "443,9999", "", "x"] {
            let fields = problems_with(|proxy| ports.clone_into(&mut proxy.connect_ports));
            assert_eq!(fields, ["proxy.connect_ports"], "{ports}");
        }
        assert_eq!(
            problems_with(|proxy| proxy.plain_ports = Some("25".to_owned())),
            ["proxy.plain_ports"]
        );
        let fields = refused_fields(|config: &mut Config| {
            config.https_only = true;
            config.proxy.plain_ports = Some("80".to_owned());
        });
        assert_eq!(fields, ["proxy.plain_ports"]);
    }

    #[test]
    fn an_authority_for_interception_has_a_certificate_and_a_key_in_pem_form() {
        let key = Secret::new("-----BEGIN PRIVATE KEY-----\n…");
        let certificate = Some(FileSetting::from("/run/ca.pem"));
        for (certificate, key, field) in [
            (certificate.clone(), Some(key.clone()), None),
            (certificate.clone(), None, Some("proxy.interception.key")),
            (None, Some(key), Some("proxy.interception.certificate")),
            (
                certificate,
                Some(Secret::new("x")),
                Some("proxy.interception.key"),
            ),
        ] {
            let fields = problems_with(|proxy| {
                proxy.interception.certificate = certificate;
                proxy.interception.key = key;
            });
            assert_eq!(fields, field.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn times_sizes_and_counts_have_bounds() {
        for (field, change) in [
            (
                "head_timeout",
                (|proxy| proxy.head_timeout = Period::secs(0)) as fn(&mut ProxyConfig),
            ),
            ("open_timeout", |proxy| {
                proxy.open_timeout = Period::secs(301);
            }),
            ("hello_timeout", |proxy| {
                proxy.hello_timeout = Period::secs(0);
            }),
            ("idle_timeout", |proxy| proxy.idle_timeout = Period::secs(0)),
            ("tunnel_timeout", |proxy| {
                proxy.tunnel_timeout = Period::secs(8 * 24 * 3600);
            }),
            ("max_up_bytes", |proxy| {
                proxy.max_up_bytes = ByteSize::bytes(0);
            }),
            ("max_tunnels", |proxy| proxy.max_tunnels = 0),
            ("max_unidentified", |proxy| proxy.max_unidentified = 70_000),
            ("max_per_tenant", |proxy| proxy.max_per_tenant = Some(0)),
        ] {
            assert_eq!(problems_with(change), [format!("proxy.{field}")]);
        }
    }
}
