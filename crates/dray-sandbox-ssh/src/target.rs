//! The parts of an address: a host in the form that `ssh` takes, and the session directory.

use dray_sandbox::{Error, ErrorKind, SandboxPath};

/// A parsed `[user@]host[:port][/directory]`, where `host` may be an alias of the client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// User, when the address names one.
    pub(crate) user: Option<String>,
    /// Host name, alias or address without brackets.
    pub(crate) host: String,
    /// Port, when the address names one.
    pub(crate) port: Option<u16>,
    /// Session directory, when the address names one.
    pub(crate) directory: Option<SandboxPath>,
}

impl Target {
    /// Parses an address. Everything that `ssh` or a `ProxyCommand` could read as an option or as shell text is
    /// refused (CVE-2023-51385).
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::new(ErrorKind::InvalidName, reason);
        // The first slash, since neither users nor hosts contain one.
        let (authority, directory) = match name.find('/') {
            Some(slash) => {
                let (authority, directory) = name.split_at(slash);
                (authority, Some(SandboxPath::new(directory)?))
            }
            None => (name, None),
        };
        // The last `@`, as `ssh` does; a user with `@` in it is refused below.
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user.to_owned()), authority),
            None => (None, authority),
        };
        let (host, port) =
            split_port(authority).ok_or_else(|| invalid("no valid host and port"))?;
        if user.as_deref().is_some_and(|user| !is_word(user, "._-+")) {
            return Err(invalid("the user name is not valid"));
        }
        if !is_word(host, "._-:%") {
            return Err(invalid("the host name is not valid"));
        }
        Ok(Self {
            user,
            host: host.to_owned(),
            port,
            directory,
        })
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`; a bare IPv6 address has more than one colon and no port.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        return match after {
            "" => Some((host, None)),
            port => Some((host, Some(parse_port(port.strip_prefix(':')?)?))),
        };
    }
    match authority.split_once(':') {
        // This is a bare IPv6 address: it is unclear which of its colons would begin a port.
        Some((_, rest)) if rest.contains(':') => Some((authority, None)),
        Some((host, port)) => Some((host, Some(parse_port(port)?))),
        None => Some((authority, None)),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    // `parse` would take a leading `+`.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .filter(|port| *port > 0)
}

/// Letters, digits and `others`, beginning with none of `-%`.
fn is_word(text: &str, others: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['-', '%'])
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || others.contains(char))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str) -> (Option<String>, String, Option<u16>, Option<String>) {
        let target = Target::parse(name).unwrap();
        (
            target.user,
            target.host,
            target.port,
            target.directory.map(|path| path.to_string()),
        )
    }

    #[test]
    fn user_port_and_directory_are_optional() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(parts("box"), (None, "box".into(), None, None));
        assert_eq!(
            parts("me@box.example:2222/srv/a b"),
            (
                some("me"),
                "box.example".into(),
                Some(2222),
                some("/srv/a b")
            )
        );
        assert_eq!(parts("[::1]:22"), (None, "::1".into(), Some(22), None));
        assert_eq!(
            parts("fe80::1%eth0"),
            (None, "fe80::1%eth0".into(), None, None)
        );
        assert_eq!(parts("[::1]"), (None, "::1".into(), None, None));
    }

    #[test]
    fn r_16_an_address_that_a_shell_or_ssh_could_read_as_an_instruction_is_refused() {
        for name in [
            "",
            "@host",
            "user@",
            "-oProxyCommand=id",
            "-x@host",
            "a b",
            "host;id",
            "$(id)",
            "`id`@host",
            "host\n",
            "host:0",
            "host:65536",
            "host:+1",
            "host:",
            "[::1",
            "[::1]x",
            "%h",
            "host'",
        ] {
            let error = Target::parse(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{name:?}");
        }
    }
}
