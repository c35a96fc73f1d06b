//! Names of sandboxes: addresses that people write and handles that name one incarnation (sandbox-transfer R-1).

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// A sandbox as a person names it: `docker:web`, `ssh:user@host`, `local:/srv/box`. It may be a role that another
/// incarnation takes over; a [`Handle`] never is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name of the backend.
    pub backend: String,
    /// The provider's name for the sandbox, in a form that the backend defines; it may hold colons.
    pub name: String,
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Only the first colon counts: `ssh:user@host:22` has another one in its name.
        match text.split_once(':') {
            Some((backend, name))
                if !name.is_empty()
                    && !backend.is_empty()
                    && backend
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) =>
            {
                Ok(Self {
                    backend: backend.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(Error::new(
                ErrorKind::InvalidName,
                "a sandbox is written BACKEND:NAME, for instance docker:my-container",
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.name)
    }
}

/// One incarnation of one sandbox: container id, pod uid and container, sandbox id, host key and session directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The address under which this incarnation was found.
    pub address: Address,
    /// Identity of this incarnation; opaque outside the backend.
    pub incarnation: String,
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.address, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_backend() {
        let address: Address = "ssh:me@host:22".parse().unwrap();
        assert_eq!(
            (address.backend.as_str(), address.name.as_str()),
            ("ssh", "me@host:22")
        );
        for wrong in ["", "docker", ":x", "docker:", "Docker:x", "a b:x"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong:?}");
        }
    }
}
