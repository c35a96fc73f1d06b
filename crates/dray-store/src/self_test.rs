//! Verifies at start that the store has the properties on which this crate relies (messaging-reliability K-7).

use aws_sdk_s3::types::{BucketLocationConstraint, CreateBucketConfiguration};
use bytes::Bytes;
use dray_types::Sha256Digest;

use crate::checksum::{Crc64, ObjectChecksum};
use crate::error::OpenError;
use crate::object::{self, ObjectCopy};
use crate::request::RequestError;
use crate::store::StoreInner;

/// The fixed key that readiness checks request. It never has an object.
pub(crate) const PROBE_KEY: &str = "stage/probe/ready";

const PROBE_BODY: Bytes = Bytes::from_static(b"probe");

/// Abilities of a store beyond the minimum. The default is the careful assumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreCapabilities {
    /// `CopyObject` honours `If-None-Match: *`.
    pub(crate) conditional_copy: bool,
    /// Whether bytes that do not match `x-amz-checksum-sha256` are refused, so a checksum that the store reports was
    /// verified.
    pub(crate) verified_sha256: bool,
    /// Whether bytes that do not match `x-amz-checksum-crc64nvme` are refused, so parts need no second SHA-256.
    pub(crate) verified_crc64: bool,
}

/// Creates the bucket, unless it exists.
pub(crate) async fn create_bucket(inner: &StoreInner) -> Result<(), RequestError> {
    let head = inner
        .clients
        .inside
        .head_bucket()
        .bucket(&inner.options.bucket)
        .send();
    match inner.request(None, Box::pin(head)).await {
        Ok(_) => return Ok(()),
        Err(RequestError::Missing) => {}
        Err(error) => return Err(error),
    }
    let region = inner.options.region.as_str();
    // `us-east-1` must not be named: AWS refuses it as a constraint.
    let configuration = (region != "us-east-1").then(|| {
        CreateBucketConfiguration::builder()
            .location_constraint(BucketLocationConstraint::from(region))
            .build()
    });
    let create = inner
        .clients
        .inside
        .create_bucket()
        .bucket(&inner.options.bucket)
        .set_create_bucket_configuration(configuration)
        .send();
    match inner.request(None, Box::pin(create)).await {
        Ok(_) | Err(RequestError::Exists) => Ok(()),
        // Another replica was faster.
        Err(RequestError::Refused { code, .. }) if code.starts_with("BucketAlready") => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses a store that overwrites despite `If-None-Match: *`, and detects its other capabilities.
pub(crate) async fn run_self_test(inner: &StoreInner) -> Result<StoreCapabilities, OpenError> {
    // Replicas run the test concurrently; unique keys separate them.
    let unique = uuid::Uuid::new_v4();
    let keys = ["a", "b", "c"].map(|name| format!("stage/probe/{unique}-{name}"));
    // The probe objects are removed after a failure as well.
    let outcome = check_store(inner, &keys).await;
    for key in &keys {
        if let Err(error) = object::delete_object(inner, key, None).await {
            tracing::warn!(key, %error, "could not remove the probe object; the sweeper removes it");
        }
    }
    outcome
}

async fn check_store(
    inner: &StoreInner,
    [first, second, third]: &[String; 3],
) -> Result<StoreCapabilities, OpenError> {
    let body = || vec![PROBE_BODY];
    let sum = ObjectChecksum::Sha256(Sha256Digest::of(b"probe"));
    // The same conditional create runs twice; the store has to refuse the second one.
    object::put_object(inner, first, body(), sum, None).await?;
    match object::put_object(inner, first, body(), sum, None).await {
        Ok(_) => return Err(OpenError::Unconditional),
        Err(RequestError::Exists) => {}
        Err(error) => return Err(error.into()),
    }
    let capabilities = StoreCapabilities {
        conditional_copy: copies_conditionally(inner, first, second).await?,
        verified_sha256: !accepts_checksum(
            inner,
            third,
            ObjectChecksum::Sha256(Sha256Digest::of(b"other")),
        )
        .await?,
        verified_crc64: verifies_crc64(inner, third).await?,
    };
    if !capabilities.verified_sha256 {
        tracing::warn!("the object store does not verify SHA-256 checksums; uploads are read back");
    }
    Ok(capabilities)
}

/// Detects whether copies are conditional. A store that refuses the header does not support it; a store that copies
/// twice ignores it.
async fn copies_conditionally(inner: &StoreInner, from: &str, to: &str) -> Result<bool, OpenError> {
    for attempt in 0..2 {
        let copy = ObjectCopy {
            from,
            to,
            tag: None,
            create: true,
        };
        match object::copy_object(inner, copy, None).await {
            Ok(_) if attempt == 0 => {}
            Ok(_) => return Ok(false),
            // No object can exist at the first copy; only the second one proves the condition.
            Err(RequestError::Exists) => return Ok(attempt == 1),
            Err(
                RequestError::ServerError { status: 501, .. }
                | RequestError::Refused { status: 400, .. },
            ) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Detects whether wrong checksums are refused and correct ones accepted.
async fn verifies_crc64(inner: &StoreInner, key: &str) -> Result<bool, OpenError> {
    let correct = ObjectChecksum::Crc64(Crc64::of(&[PROBE_BODY]));
    let incorrect = ObjectChecksum::Crc64(Crc64::of(&[Bytes::from_static(b"other")]));
    // A store that ignored the SHA-256 above has an object here.
    object::delete_object(inner, key, None).await?;
    // Both are needed: a store without support for the header may refuse every value.
    Ok(!accepts_checksum(inner, key, incorrect).await?
        && accepts_checksum(inner, key, correct).await?)
}

/// Returns whether the store accepts the probe with this checksum.
async fn accepts_checksum(
    inner: &StoreInner,
    key: &str,
    sum: ObjectChecksum,
) -> Result<bool, OpenError> {
    match object::put_object(inner, key, vec![PROBE_BODY], sum, None).await {
        Ok(_) => Ok(true),
        Err(
            RequestError::Corrupted { .. }
            | RequestError::Refused { status: 400, .. }
            | RequestError::ServerError { status: 501, .. },
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
