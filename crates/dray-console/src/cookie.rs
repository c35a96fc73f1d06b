//! The cookies of a console: their names, their attributes, and how a request is searched for them.

use std::time::Duration;

use http::{HeaderMap, header};

/// The requests of other sites with which a browser sends a cookie (RFC 6265bis section 4.1.2.7).
#[derive(Clone, Copy, Debug)]
enum SiteRule {
    /// The browser sends the cookie only with requests of the same site.
    Strict,
    /// The browser also sends the cookie with navigations from other sites, such as the redirect from an identity
    /// provider.
    Lax,
}

/// One cookie of this console. Scripts cannot read it.
#[derive(Clone, Debug)]
pub(crate) struct ConsoleCookie {
    name: String,
    is_secure: bool,
    site_rule: SiteRule,
}

impl ConsoleCookie {
    /// The cookie with the secret of a session.
    pub(crate) fn for_session(port: u16, is_secure: bool) -> Self {
        Self::named("dray-console", port, is_secure, SiteRule::Strict)
    }

    /// The cookie with a login attempt. With `Strict`, browsers would not send it when the provider
    /// redirects back.
    pub(crate) fn for_attempt(port: u16, is_secure: bool) -> Self {
        Self::named("dray-console-login", port, is_secure, SiteRule::Lax)
    }

    /// Browsers do not separate cookies by port (RFC 6265 section 8.5), so the name contains the port: two consoles of
    /// one machine do not log each other out.
    fn named(base: &str, port: u16, is_secure: bool, site_rule: SiteRule) -> Self {
        let name = if is_secure {
            // RFC 6265bis section 4.1.3.2: browsers take this prefix only with `Secure`, `Path=/` and without a domain.
            format!("__Host-{base}")
        } else {
            format!("{base}-{port}")
        };
        Self {
            name,
            is_secure,
            site_rule,
        }
    }

    /// The secret that a browser sent.
    pub(crate) fn read<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        headers
            .get_all(header::COOKIE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find(|(name, _)| *name == self.name)
            .map(|(_, secret)| secret)
    }

    /// `Set-Cookie` that lasts until the browser ends.
    pub(crate) fn set(&self, secret: &str) -> String {
        self.attributes(secret, "")
    }

    /// `Set-Cookie` that lasts this long.
    pub(crate) fn set_for(&self, secret: &str, lifetime: Duration) -> String {
        self.attributes(secret, &format!("; Max-Age={}", lifetime.as_secs()))
    }

    /// `Set-Cookie` that removes it.
    pub(crate) fn clear(&self) -> String {
        self.attributes("", "; Max-Age=0")
    }

    fn attributes(&self, secret: &str, age: &str) -> String {
        // Without TLS `Secure` is left out: Safari sends no such cookie to http://127.0.0.1.
        let secure = if self.is_secure { "; Secure" } else { "" };
        let (name, rule) = (&self.name, self.site_rule);
        format!("{name}={secret}; Path=/; HttpOnly; SameSite={rule:?}{secure}{age}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_closed_to_scripts_other_sites_and_other_consoles() {
        let cookie = ConsoleCookie::for_session(7300, false);
        let set = cookie.set("s");
        assert_eq!(
            set,
            "dray-console-7300=s; Path=/; HttpOnly; SameSite=Strict"
        );
        let mut headers = HeaderMap::new();
        let sent = "dray-console-7301=other; dray-console-7300=mine; x=y";
        headers.insert(header::COOKIE, sent.parse().unwrap());
        assert_eq!(cookie.read(&headers), Some("mine"));
        let secure = ConsoleCookie::for_session(443, true);
        assert!(secure.set("s").contains("__Host-dray-console=s; Path=/; "));
        assert!(secure.set("s").contains("; Secure"));
        assert!(secure.clear().ends_with("Max-Age=0"));
    }

    #[test]
    fn the_cookie_of_an_attempt_comes_back_from_the_provider_and_ends_soon() {
        let cookie = ConsoleCookie::for_attempt(443, true);
        assert_eq!(
            cookie.set_for("s", Duration::from_mins(10)),
            "__Host-dray-console-login=s; Path=/; HttpOnly; SameSite=Lax; Secure; Max-Age=600"
        );
    }
}
