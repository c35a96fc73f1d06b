//! Checks of the files that `egress-fetcher` reads at its start: policy files, its CA bundle, those for TLS with clients of
//! the proxy, and the certificate of its interception authority. Without them it does not start.

use std::path::Path;

use dray_egress_fetcher::policy_files::PolicyBytes;
use dray_egress_fetcher::proxy::authority::{AuthorityError, InterceptionAuthority};
use dray_egress_fetcher::proxy::client_tls::check_files;
use dray_egress_fetcher::tls::TlsClient;
use dray_types::{Clock, ErrorChain};

use super::finding::Finding;

/// Checks that each configured file can be used. The configuration itself was checked before.
pub(super) async fn check_egress_files(config: &dray_egress_fetcher::Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(config.policy_path.as_deref().map(check_policy));
    findings.extend(config.ca_bundle.as_deref().map(check_ca_bundle));
    let Some(proxy) = config.compile().ok().and_then(|compiled| compiled.proxy) else {
        return findings;
    };
    if let Some(tls) = &proxy.tls {
        let checked = check_files(tls).await;
        findings.push(match checked {
            Ok(()) => Finding::good("proxy TLS", "its files can be used"),
            Err(error) => Finding::problem(
                "proxy TLS",
                format!("`egress-fetcher.proxy.tls`: {}", ErrorChain(&error)),
                "Correct the file that is named; docs/egress-proxy.md says what each needs.",
            ),
        });
    }
    if let Some(interception) = &proxy.interception {
        let key = interception.key.expose();
        findings.push(check_authority(&interception.certificate, key));
    }
    findings
}

fn check_policy(path: &Path) -> Finding {
    let rules = PolicyBytes::read(path).and_then(|files| files.rules());
    match rules {
        Ok(rules) => {
            let count = rules.rule_count();
            Finding::good(
                "egress policy",
                format!("{} has {count} rules", path.display()),
            )
        }
        Err(error) => Finding::problem(
            "egress policy",
            format!("`egress-fetcher.policy_path`: {}", ErrorChain(&error)),
            "Correct what is named; `dray policy test` checks the files too.",
        ),
    }
}

fn check_ca_bundle(path: &Path) -> Finding {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            return Finding::problem(
                "CA bundle",
                format!(
                    "{} in `egress-fetcher.ca_bundle` cannot be read: {error}",
                    path.display()
                ),
                "Correct the path, or let this user read the file.",
            );
        }
    };
    match TlsClient::new(Some(&text)) {
        Ok(_) => Finding::good(
            "CA bundle",
            format!("the certificates in {} can be used", path.display()),
        ),
        Err(error) => Finding::problem(
            "CA bundle",
            format!("`egress-fetcher.ca_bundle`: {}", ErrorChain(&error)),
            "Name a file with certificates in PEM format.",
        ),
    }
}

fn check_authority(certificate: &Path, key: &str) -> Finding {
    let now_s = Clock::system().now_ms() / 1000;
    let authority = std::fs::read_to_string(certificate)
        .map_err(|error| AuthorityError::Certificate(Box::new(error)))
        .and_then(|text| InterceptionAuthority::new(&text, key, now_s));
    match authority {
        Ok(_) => Finding::good("proxy authority", "certificates can be made with it"),
        Err(error) => Finding::problem(
            "proxy authority",
            format!(
                "`egress-fetcher.proxy.interception`: {}",
                ErrorChain(&error)
            ),
            "Name the certificate of an authority and its key; docs/egress-proxy.md shows how to make them.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    /// Level, subject and text of each finding.
    async fn findings_of(
        change: impl FnOnce(&mut dray_egress_fetcher::Config),
    ) -> Vec<(FindingLevel, String, String)> {
        let mut config = dray_egress_fetcher::Config::default();
        change(&mut config);
        let findings = check_egress_files(&config).await.into_iter();
        findings
            .map(|finding| (finding.level, finding.subject.clone(), finding.to_text()))
            .collect()
    }

    #[tokio::test]
    async fn policy_files_that_stop_the_start_are_a_problem_with_line_and_remedy() {
        assert!(findings_of(|_| {}).await.is_empty());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        for (text, level, part) in [
            ("default = \"deny\"\n", FindingLevel::Good, "0 rules"),
            (
                "default = \"alow\"\n",
                FindingLevel::Problem,
                "policy.toml:1",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let path = Some(path.clone());
            let findings = findings_of(|config| config.policy_path = path).await;
            let [(found, subject, text)] = &findings[..] else {
                panic!("{findings:?}");
            };
            assert_eq!((*found, subject.as_str()), (level, "egress policy"));
            assert!(text.contains(part), "{text}");
        }
    }

    #[tokio::test]
    async fn a_ca_bundle_that_cannot_be_used_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let broken = directory.path().join("ca.pem");
        let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&broken, text).unwrap();
        for path in [directory.path().join("missing.pem"), broken] {
            let bundle = Some(dray_types::FileSetting::from(path));
            let findings = findings_of(|config| config.ca_bundle = bundle).await;
            let [(level, subject, text)] = &findings[..] else {
                panic!("{findings:?}");
            };
            assert_eq!(
                (*level, subject.as_str()),
                (FindingLevel::Problem, "CA bundle")
            );
            assert!(text.contains("egress-fetcher.ca_bundle"), "{text}");
        }
    }

    #[tokio::test]
    async fn files_of_the_proxy_that_do_not_exist_are_problems_with_their_fields() {
        let key = Some(dray_types::Secret::new("-----BEGIN PRIVATE KEY-----"));
        let findings = findings_of(|config| {
            config.proxy.listen = Some(([127, 0, 0, 1], 0).into());
            config.proxy.token_key = Some(dray_types::Secret::new("k".repeat(32)));
            config.proxy.tls.certificate = Some("/nonexistent/proxy.pem".into());
            config.proxy.tls.private_key = Some("/nonexistent/proxy.key".into());
            config.proxy.interception.certificate = Some("/nonexistent/ca.pem".into());
            config.proxy.interception.key = key;
        });
        let findings = findings.await;
        let subjects: Vec<_> = findings
            .iter()
            .map(|(_, subject, _)| subject.as_str())
            .collect();
        assert_eq!(subjects, ["proxy TLS", "proxy authority"]);
        for (level, _, text) in &findings {
            assert_eq!(*level, FindingLevel::Problem, "{text}");
            assert!(text.contains("certificate"), "{text}");
        }
    }
}
