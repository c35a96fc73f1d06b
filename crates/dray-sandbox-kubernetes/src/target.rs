//! Reads names of containers: `NAMESPACE/POD[/CONTAINER]`.

use dray_sandbox::{Address, Error, ErrorKind};

/// A container as a person writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    /// Name of the container; `None` for the only one of the pod, or for its default one.
    pub(crate) container: Option<String>,
}

impl Target {
    /// Parses the name of an address of this backend.
    pub(crate) fn parse(address: &Address) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::new(ErrorKind::InvalidName, reason);
        if address.backend != crate::backend::BACKEND_NAME {
            return Err(invalid("the address belongs to another backend"));
        }
        let parts: Vec<_> = address.name.split('/').collect();
        let (namespace, pod, container) = match parts.as_slice() {
            [namespace, pod] => (*namespace, *pod, None),
            [namespace, pod, container] => (*namespace, *pod, Some(*container)),
            _ => {
                let form = "a container is written kubernetes:NAMESPACE/POD[/CONTAINER]";
                return Err(invalid(form));
            }
        };
        // The name of a pod is a DNS subdomain (RFC 1123); those of namespaces and containers are labels.
        let pod_fits = pod.len() <= 253 && pod.split('.').all(is_part);
        if !is_label(namespace) || !pod_fits || !container.is_none_or(is_label) {
            return Err(invalid("a name in the address is not valid in Kubernetes"));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            container: container.map(str::to_owned),
        })
    }

    /// Path of the pod in the API. Its names hold no character that a URL would have to escape.
    pub(crate) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.pod)
    }
}

/// Whether the name is a label of RFC 1123, with at most 63 bytes.
pub(crate) fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_part(name)
}

fn is_part(name: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(inside) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Target, Error> {
        Target::parse(&Address {
            backend: "kubernetes".into(),
            name: name.into(),
        })
    }

    #[test]
    fn an_address_names_namespace_pod_and_container() {
        let target = parse("agents/box-7.a/shell").unwrap();
        assert_eq!(target.path(), "/api/v1/namespaces/agents/pods/box-7.a");
        assert_eq!(target.container.as_deref(), Some("shell"));
        assert_eq!(parse("agents/box").unwrap().container, None);
    }

    #[test]
    fn names_that_would_change_a_request_are_refused() {
        for name in [
            "box",
            "/box",
            "a/",
            "a/b/",
            "a/b/c/d",
            "a/..",
            "a/.",
            "a/b?x",
            "a/b%2f",
            "A/b",
            "a/b/c.d",
            "a/-b",
            "a/b-",
            "a b/c",
            "a/b\n",
            "a/b/\u{e4}",
        ] {
            assert_eq!(
                parse(name).unwrap_err().kind(),
                ErrorKind::InvalidName,
                "{name:?}"
            );
        }
        assert!(parse(&format!("{}/b", "a".repeat(64))).is_err());
        assert!(parse(&format!("a/{}", "b".repeat(254))).is_err());
    }

    #[test]
    fn an_address_of_another_backend_is_refused() {
        let address = Address {
            backend: "docker".into(),
            name: "a/b".into(),
        };
        assert_eq!(
            Target::parse(&address).unwrap_err().kind(),
            ErrorKind::InvalidName
        );
    }
}
