//! Conversions between wire types and `dray-types`. Structures are destructured field by field, so that a new field
//! cannot be forgotten.

use std::time::Duration;

use dray_types::{
    Artifact, Claim, Fault, FaultCode, RetryAdvice, Sha256Digest, TenantId, whole_millis,
};

use crate::v1;

/// A wire message that breaks its contract. As a [`Fault`] it is the sender's mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// A field that the contract requires is absent.
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    /// A field has a value that the contract does not allow.
    #[error("field `{field}` is not valid: {reason}")]
    Field {
        /// Path of the field in the message, such as `artifact.sha256`.
        field: &'static str,
        /// The reason why the value is not allowed; the sender reads it.
        reason: String,
    },
}

impl InvalidMessage {
    /// Reports an invalid field with the reason of a failed conversion.
    pub fn field(field: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Field {
            field,
            reason: reason.to_string(),
        }
    }
}

impl From<InvalidMessage> for Fault {
    fn from(invalid: InvalidMessage) -> Self {
        Self::new(
            FaultCode::InvalidArgument,
            format!("The request is not valid: {invalid}."),
        )
        .advice("Correct the field and send the request again.")
    }
}

impl From<FaultCode> for v1::FaultCode {
    fn from(code: FaultCode) -> Self {
        match code {
            FaultCode::InvalidArgument => Self::InvalidArgument,
            FaultCode::NotFound => Self::NotFound,
            FaultCode::Denied => Self::Denied,
            FaultCode::TooLarge => Self::TooLarge,
            FaultCode::Unsupported => Self::Unsupported,
            FaultCode::RateLimited => Self::RateLimited,
            FaultCode::Timeout => Self::Timeout,
            FaultCode::Unavailable => Self::Unavailable,
            FaultCode::Internal => Self::Internal,
        }
    }
}

impl From<v1::FaultCode> for FaultCode {
    fn from(code: v1::FaultCode) -> Self {
        match code {
            v1::FaultCode::InvalidArgument => Self::InvalidArgument,
            v1::FaultCode::NotFound => Self::NotFound,
            v1::FaultCode::Denied => Self::Denied,
            v1::FaultCode::TooLarge => Self::TooLarge,
            v1::FaultCode::Unsupported => Self::Unsupported,
            v1::FaultCode::RateLimited => Self::RateLimited,
            v1::FaultCode::Timeout => Self::Timeout,
            v1::FaultCode::Unavailable => Self::Unavailable,
            // This includes codes of a peer of a later revision: unknown numbers are read as `Unspecified`.
            v1::FaultCode::Internal | v1::FaultCode::Unspecified => Self::Internal,
        }
    }
}

impl From<Fault> for v1::Fault {
    fn from(fault: Fault) -> Self {
        let Fault {
            code,
            detail,
            message,
            advice,
            retry,
            trace_id,
        } = fault;
        let (retryable, retry_after_ms) = match retry {
            RetryAdvice::Never => (false, 0),
            RetryAdvice::After(delay) => {
                // Fractions of a millisecond are dropped, so the delay is at most 1 ms too short.
                (true, whole_millis(delay))
            }
        };
        Self {
            code: v1::FaultCode::from(code).into(),
            detail,
            message,
            advice,
            retryable,
            retry_after_ms,
            trace_id,
        }
    }
}

impl From<v1::Fault> for Fault {
    fn from(fault: v1::Fault) -> Self {
        // The code is read before the fields are destructured: the getter handles unknown numbers, while the field is a
        // plain integer.
        let code = fault.code().into();
        let v1::Fault {
            code: _,
            detail,
            message,
            advice,
            retryable,
            retry_after_ms,
            trace_id,
        } = fault;
        let retry = if retryable {
            RetryAdvice::After(Duration::from_millis(retry_after_ms))
        } else {
            RetryAdvice::Never
        };
        Self {
            code,
            detail,
            message,
            advice,
            retry,
            trace_id,
        }
    }
}

impl From<Artifact> for v1::Artifact {
    fn from(artifact: Artifact) -> Self {
        let Artifact {
            tenant,
            sha256,
            size,
            media_type,
            name,
        } = artifact;
        Self {
            tenant: tenant.to_string(),
            sha256: sha256.as_bytes().to_vec(),
            size,
            media_type,
            name,
        }
    }
}

impl TryFrom<v1::Artifact> for Artifact {
    type Error = InvalidMessage;

    fn try_from(artifact: v1::Artifact) -> Result<Self, InvalidMessage> {
        let v1::Artifact {
            tenant,
            sha256,
            size,
            media_type,
            name,
        } = artifact;
        Ok(Self {
            // Received messages are checked like input from outside (messaging-reliability 18).
            tenant: TenantId::new(tenant)
                .map_err(|error| InvalidMessage::field("artifact.tenant", error))?,
            sha256: Sha256Digest::try_from(sha256.as_slice())
                .map_err(|error| InvalidMessage::field("artifact.sha256", error))?,
            size,
            media_type,
            name,
        })
    }
}

impl From<Claim> for v1::Claim {
    fn from(claim: Claim) -> Self {
        let Claim {
            artifact,
            store,
            version_id,
            created_at_ms,
            expires_at_ms,
        } = claim;
        Self {
            artifact: Some(artifact.into()),
            store,
            version_id,
            created_at_ms,
            expires_at_ms,
        }
    }
}

impl TryFrom<v1::Claim> for Claim {
    type Error = InvalidMessage;

    fn try_from(claim: v1::Claim) -> Result<Self, InvalidMessage> {
        let v1::Claim {
            artifact,
            store,
            version_id,
            created_at_ms,
            expires_at_ms,
        } = claim;
        Ok(Self {
            // The field is required, but optional in the generated type, because protobuf 3 has no required messages.
            artifact: artifact
                .ok_or(InvalidMessage::Missing("claim.artifact"))?
                .try_into()?,
            store,
            version_id,
            created_at_ms,
            expires_at_ms,
        })
    }
}

/// Bytes, or the claim for stored bytes. Bytes above [`MAX_INLINE_BYTES`](crate::MAX_INLINE_BYTES) are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentSource {
    /// The bytes, which travel in the message.
    Inline(bytes::Bytes),
    /// A reference to the stored bytes, with the data to verify them.
    Claim(Claim),
}

impl From<ContentSource> for v1::Content {
    fn from(content: ContentSource) -> Self {
        let body = match content {
            ContentSource::Inline(bytes) => v1::content::Body::Inline(bytes),
            ContentSource::Claim(claim) => v1::content::Body::Claim(claim.into()),
        };
        Self { body: Some(body) }
    }
}

impl TryFrom<v1::Content> for ContentSource {
    type Error = InvalidMessage;

    fn try_from(content: v1::Content) -> Result<Self, InvalidMessage> {
        match content
            // `None` also when the sender uses a choice of a later revision.
            .body
            .ok_or(InvalidMessage::Missing("content.body"))?
        {
            v1::content::Body::Inline(bytes) => Ok(Self::Inline(bytes)),
            v1::content::Body::Claim(claim) => Ok(Self::Claim(claim.try_into()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_cross_the_wire_unchanged() {
        for code in FaultCode::ALL_CODES {
            let fault = Fault::new(code, "m")
                .detail("d")
                .advice("a")
                .retry_after(Duration::from_millis(7))
                .trace_id("t");
            assert_eq!(Fault::from(v1::Fault::from(fault.clone())), fault);
        }
    }

    #[test]
    fn the_contract_has_each_code_with_its_meaning() {
        let pool = prost_reflect::DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        let codes = pool.get_enum_by_name("dray.v1.FaultCode").unwrap();
        let (file, path) = (codes.parent_file(), codes.path());
        let info = file.file_descriptor_proto().source_code_info.as_ref();
        let locations = &info.unwrap().location;
        let comments: Vec<&str> = locations
            .iter()
            // The path of a value is that of its enumeration with two more numbers.
            .filter(|location| {
                location.path.starts_with(path) && location.path.len() == path.len() + 2
            })
            .map(|location| location.leading_comments().trim())
            .filter(|comment| !comment.is_empty())
            .collect();
        let meanings = FaultCode::ALL_CODES.map(FaultCode::meaning);
        // The first value is the unspecified one.
        assert_eq!(comments[1..], meanings);
    }

    #[test]
    fn a_claim_without_its_artifact_is_invalid() {
        assert_eq!(
            Claim::try_from(v1::Claim::default()),
            Err(InvalidMessage::Missing("claim.artifact"))
        );
    }
}
