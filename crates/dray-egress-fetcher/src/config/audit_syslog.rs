//! The syslog server of audit events in the configuration.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AuditFormat;
use super::compile::ProblemCollector;

/// The facility of the default: log audit (RFC 5424, section 6.2.1).
const LOG_AUDIT_FACILITY: u8 = 13;
/// The highest facility of RFC 5424.
const MAX_FACILITY: u8 = 23;

/// Audit events as messages to a syslog server (RFC 5424), in addition to log and stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSyslogConfig {
    /// The server: `udp://HOST:PORT`, `tcp://HOST:PORT` (RFC 6587, with octet counts) or `unix:///dev/log` (datagrams).
    /// Unset: none. The connection is not encrypted.
    pub address: Option<String>,
    /// `json`: the event as in the log. `ocsf`: HTTP Activity, Network Activity and, for policies, Entity
    /// Management of OCSF 1.3.0.
    pub format: AuditFormat,
    /// Number of the facility, 0 to 23: 13 is `log audit`, 16 to 23 are `local0` to `local7`.
    pub facility: u8,
    /// Percentage of allowed operations whose events are sent: 0 to 100. Refusals and failures are always sent.
    pub sample_percent: u32,
}

/// The address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogAddress {
    /// Host and port for datagrams of UDP.
    Udp(String),
    /// Host and port for a connection of TCP.
    Tcp(String),
    /// Path of a socket for datagrams.
    Unix(PathBuf),
}

/// The checked settings of the server.
#[derive(Clone, Debug)]
pub struct AuditSyslogSettings {
    /// The server to which events are sent.
    pub address: SyslogAddress,
    /// Format of the events.
    pub format: AuditFormat,
    /// Number of the facility, at most 23.
    pub facility: u8,
    /// Percent of allowed requests that are sent.
    pub sample_percent: u32,
}

impl Default for AuditSyslogConfig {
    fn default() -> Self {
        Self {
            address: None,
            format: AuditFormat::Json,
            facility: LOG_AUDIT_FACILITY,
            sample_percent: 100,
        }
    }
}

impl AuditSyslogConfig {
    /// Checks the fields; `None` when there is to be no server.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> Option<AuditSyslogSettings> {
        if self.facility > MAX_FACILITY {
            checks.add("audit_syslog.facility", "must be 0 to 23");
        }
        if self.sample_percent > 100 {
            checks.add("audit_syslog.sample_percent", "must be 0 to 100");
        }
        let text = self.address.as_ref()?;
        let Some(address) = read_address(text) else {
            let problem = "must be udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH";
            checks.add("audit_syslog.address", problem);
            return None;
        };
        Some(AuditSyslogSettings {
            address,
            format: self.format,
            facility: self.facility,
            sample_percent: self.sample_percent,
        })
    }

    /// The host of a server in the network, from which no file is fetched.
    pub(super) fn host(&self) -> Option<String> {
        let (SyslogAddress::Udp(server) | SyslogAddress::Tcp(server)) =
            read_address(self.address.as_ref()?)?
        else {
            return None;
        };
        let (host, _) = server.rsplit_once(':')?;
        Some(host.trim_matches(['[', ']']).to_owned())
    }
}

fn read_address(text: &str) -> Option<SyslogAddress> {
    let (scheme, rest) = text.split_once("://")?;
    let parse_server = || {
        let (host, port) = rest.rsplit_once(':')?;
        let is_host = !host.is_empty()
            && !host.contains(['/', '@', '?', '#', ' '])
            && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
        (is_host && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| rest.to_owned())
    };
    match scheme {
        "udp" => parse_server().map(SyslogAddress::Udp),
        "tcp" => parse_server().map(SyslogAddress::Tcp),
        "unix" => rest
            .starts_with('/')
            .then(|| SyslogAddress::Unix(rest.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use dray_service::config::refused_fields;

    use super::*;
    use crate::Config;

    #[test]
    fn an_address_is_a_server_or_a_socket() {
        for (text, address, host) in [
            (
                "udp://syslog.example:514",
                Some(SyslogAddress::Udp("syslog.example:514".to_owned())),
                Some("syslog.example"),
            ),
            (
                "tcp://[2001:db8::1]:601",
                Some(SyslogAddress::Tcp("[2001:db8::1]:601".to_owned())),
                Some("2001:db8::1"),
            ),
            (
                "unix:///dev/log",
                Some(SyslogAddress::Unix("/dev/log".into())),
                None,
            ),
            ("udp://syslog.example", None, None),
            ("udp://:514", None, None),
            ("udp://::1:514", None, None),
            ("tcp://user@syslog.example:601", None, None),
            ("tcp://syslog.example:0", None, None),
            ("tls://syslog.example:6514", None, None),
            ("unix://dev/log", None, None),
            ("/dev/log", None, None),
        ] {
            assert_eq!(read_address(text), address, "{text}");
            let config = AuditSyslogConfig {
                address: Some(text.to_owned()),
                ..AuditSyslogConfig::default()
            };
            assert_eq!(config.host().as_deref(), host, "{text}");
            let fields = refused_fields(|section: &mut Config| section.audit_syslog = config);
            assert_eq!(fields.is_empty(), address.is_some(), "{text}");
        }
    }

    #[test]
    fn facility_and_sample_have_bounds() {
        let fields = refused_fields(|config: &mut Config| {
            config.audit_syslog.facility = 24;
            config.audit_syslog.sample_percent = 101;
        });
        assert_eq!(
            fields,
            ["audit_syslog.facility", "audit_syslog.sample_percent"]
        );
    }
}
