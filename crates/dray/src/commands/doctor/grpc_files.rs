//! Checks the files of the gRPC endpoint: certificate, key, authorities and identities. Without them no service starts.

use dray_service::check_grpc_files;
use dray_service::settings::GrpcSection;
use dray_types::Clock;

use super::finding::Finding;

const GRPC_SUBJECT: &str = "gRPC files";
const SECONDS_PER_DAY: u64 = 86_400;
/// Days before the end of a certificate from which it is a warning, as in the alert.
const WARNING_DAYS: u64 = 14;

/// Checks that the files can be used, and that the certificate is valid for some time. `None` if no file is configured.
pub(super) async fn check_files(section: &GrpcSection, clock: &Clock) -> Option<Finding> {
    let files = [
        &section.certificate,
        &section.private_key,
        &section.client_authorities,
        &section.identities,
    ];
    if files.iter().all(|file| file.is_none()) {
        return None;
    }
    Some(match check_grpc_files(section).await {
        Err(error) => Finding::problem(
            GRPC_SUBJECT,
            error.to_string(),
            "Correct the file that is named; docs/grpc.md says what each needs.",
        ),
        Ok(None) => Finding::good(GRPC_SUBJECT, "they can be used"),
        Ok(Some(expiry_seconds)) => judge_certificate(expiry_seconds, clock.now_ms() / 1000),
    })
}

fn judge_certificate(expiry_seconds: u64, now_seconds: u64) -> Finding {
    let advice =
        "Put a new certificate in the place of `grpc.certificate`; it is used without a restart.";
    let Some(left) = expiry_seconds.checked_sub(now_seconds) else {
        let text = "the certificate has expired, so clients refuse it";
        return Finding::problem(GRPC_SUBJECT, text, advice);
    };
    let days = left / SECONDS_PER_DAY;
    let text = format!("they can be used; the certificate is valid for {days} days");
    if days < WARNING_DAYS {
        Finding::warning(GRPC_SUBJECT, text, advice)
    } else {
        Finding::good(GRPC_SUBJECT, text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingLevel;
    use super::*;

    #[tokio::test]
    async fn files_that_stop_the_start_are_a_problem() {
        let mut section = GrpcSection::default();
        assert_eq!(check_files(&section, &Clock::system()).await, None);
        section.identities = Some("/nonexistent/identities.toml".into());
        let finding = check_files(&section, &Clock::system()).await.unwrap();
        assert_eq!(finding.level, FindingLevel::Problem, "{finding:?}");
        assert!(finding.text.contains("grpc.identities"), "{finding:?}");
    }

    #[test]
    fn a_certificate_that_ends_soon_is_a_warning() {
        let now = 1_700_000_000;
        for (expiry_seconds, level) in [
            (now - 1, FindingLevel::Problem),
            (now + 13 * SECONDS_PER_DAY, FindingLevel::Warning),
            (now + 14 * SECONDS_PER_DAY, FindingLevel::Good),
        ] {
            let finding = judge_certificate(expiry_seconds, now);
            assert_eq!(finding.level, level, "{finding:?}");
        }
    }
}
