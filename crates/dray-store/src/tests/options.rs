//! Tests of valid and invalid settings.

use dray_types::{Period, Secret};

use crate::StoreOptions;

fn right() -> StoreOptions {
    StoreOptions {
        access_key: Secret::new("key"),
        secret_key: Secret::new("hunter2"),
        ..StoreOptions::default()
    }
}

/// The fields that the errors about the changed options name.
fn check(change: impl FnOnce(&mut StoreOptions), wrong: &[&str]) {
    let mut options = right();
    change(&mut options);
    let problems = options.problems();
    let fields: Vec<_> = problems.iter().map(|problem| problem.field).collect();
    assert_eq!(fields, wrong, "{problems:?}");
}

#[test]
fn invalid_options_are_refused_by_name() {
    check(|_| {}, &[]);
    check(|options| options.alias = "Main".to_owned(), &["alias"]);
    for bucket in ["", "ab", "UPPER", "under_score", &"x".repeat(64)] {
        check(|options| options.bucket = bucket.to_owned(), &["bucket"]);
    }
    for endpoint in [
        "minio:9000",
        "ftp://minio",
        "http://",
        "http://minio/path",
        "http://u:p@minio",
    ] {
        check(
            |options| options.endpoint = endpoint.to_owned(),
            &["endpoint"],
        );
        check(
            |options| options.public_endpoint = endpoint.to_owned(),
            &["public_endpoint"],
        );
    }
    for endpoint in [
        "http://minio:9000",
        "https://s3.example",
        "http://[::1]:9000",
        "https://s3.example/",
    ] {
        check(|options| options.endpoint = endpoint.to_owned(), &[]);
    }
    check(|options| options.region.clear(), &["region"]);
    check(
        |options| options.secret_key = Secret::default(),
        &["secret_key"],
    );
    let day = 24 * 60 * 60;
    check(
        |options| options.cas_lifetime = Period::secs(15 * day - 1),
        &["cas_lifetime"],
    );
    check(
        |options| options.stage_lifetime = Period::secs(day - 1),
        &["stage_lifetime"],
    );
    for wrong in [15 * 60 - 1, 15 * day + 1] {
        check(
            |options| options.cache_lifetime = Period::secs(wrong),
            &["cache_lifetime"],
        );
    }
    check(|options| options.concurrency = 0, &["concurrency"]);
    check(
        |options| {
            options.concurrency = 257;
            options.bucket.clear();
        },
        &["bucket", "concurrency"],
    );
}

#[test]
fn options_are_parsed_and_never_show_secrets() {
    let written =
        r#"{"endpoint": "http://minio:9000", "cas_lifetime": "30d", "secret_key": "hunter2"}"#;
    let options: StoreOptions = serde_json::from_str(written).unwrap();
    assert_eq!(options.cas_lifetime, Period::secs(30 * 24 * 60 * 60));
    assert_eq!(options.secret_key.expose(), "hunter2");
    assert_eq!(options.bucket, "drayage");
    let printed = format!("{options:?} {}", serde_json::to_string(&options).unwrap());
    assert!(!printed.contains("hunter2"), "{printed}");

    let error = serde_json::from_str::<StoreOptions>(r#"{"end_point": "x"}"#).unwrap_err();
    assert!(error.to_string().contains("end_point"));
}

#[tokio::test]
async fn a_file_of_authorities_is_checked_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for content in [None, Some(""), Some("no certificate"), Some(wrong)] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let options = StoreOptions {
            ca_file: Some(file.clone().into()),
            ..right()
        };
        let error = crate::Store::open(&options, dray_types::Clock::system())
            .await
            .unwrap_err();
        assert!(
            matches!(error, crate::OpenError::Authorities(_)),
            "{content:?} {error:?}"
        );
    }
}
