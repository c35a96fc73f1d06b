//! The ports that may be fetched from (U-9).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Ports that are refused regardless of configuration: the "bad ports" of the WHATWG Fetch standard, whose protocols
/// can be spoken to by accident or on purpose with an HTTP request.
#[rustfmt::skip]
pub const BAD_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
    532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
    5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// The set of ports that may be fetched from, without the bad ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPorts(PortRule);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PortRule {
    // Every port except the bad ones, which `allows` checks in both cases.
    Any,
    Listed(BTreeSet<u16>),
}

/// The reason why a list of ports is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortsError {
    /// An item is not a port.
    #[error("{0:?} is not a port; write numbers from 1 to 65535 with commas between them, or any")]
    NotAPort(String),
    /// A bad port, which no setting can allow.
    #[error(
        "port {0} is on the list of bad ports of the WHATWG Fetch standard and cannot be allowed"
    )]
    Bad(u16),
    /// No port is listed; every fetch would be refused.
    #[error("the list of ports is empty")]
    Empty,
}

impl AllowedPorts {
    /// Every port that is not bad.
    pub const fn any() -> Self {
        Self(PortRule::Any)
    }

    /// Only these ports, which must not be bad.
    ///
    /// # Errors
    ///
    /// [`PortsError::Bad`] for a port that no setting can allow (U-9), [`PortsError::Empty`] without a port.
    pub fn listed(ports: impl IntoIterator<Item = u16>) -> Result<Self, PortsError> {
        let ports: BTreeSet<u16> = ports.into_iter().collect();
        // An error at start, although `allows` would refuse the port anyway: the operator believes that it is open
        // (U-9).
        if let Some(bad) = ports.iter().find(|port| BAD_PORTS.contains(port)) {
            return Err(PortsError::Bad(*bad));
        }
        if ports.is_empty() {
            return Err(PortsError::Empty);
        }
        Ok(Self(PortRule::Listed(ports)))
    }

    /// Whether `port` may be fetched from.
    pub fn allows(&self, port: u16) -> bool {
        !BAD_PORTS.contains(&port)
            && match &self.0 {
                PortRule::Any => true,
                PortRule::Listed(ports) => ports.contains(&port),
            }
    }
}

/// 80, 443, 8000, 8080 and 8443 (U-9), the set that Advocate ships.
impl Default for AllowedPorts {
    fn default() -> Self {
        Self(PortRule::Listed(BTreeSet::from([
            80, 443, 8000, 8080, 8443,
        ])))
    }
}

/// `any`, or ports with commas between them.
impl FromStr for AllowedPorts {
    type Err = PortsError;

    fn from_str(text: &str) -> Result<Self, PortsError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(PortsError::Empty);
        }
        if text.eq_ignore_ascii_case("any") {
            return Ok(Self::any());
        }
        let ports: Vec<u16> = text
            .split(',')
            .map(|item| {
                let item = item.trim();
                crate::canon::parse_port(item).map_err(|_| PortsError::NotAPort(item.to_owned()))
            })
            .collect::<Result<_, _>>()?;
        Self::listed(ports)
    }
}

impl fmt::Display for AllowedPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PortRule::Any => f.write_str("any"),
            PortRule::Listed(ports) => {
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                f.write_str(&ports.join(","))
            }
        }
    }
}
