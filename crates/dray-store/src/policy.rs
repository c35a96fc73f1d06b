//! The rights of one access key on the bucket, as a policy document that S3-compatible servers enforce.
//!
//! A service declares how it uses the store, and the actions and prefixes follow from how this crate stores objects.
//! `cas/` holds finished content, `cache/` content with a short lifetime, `stage/` uploads in progress, and `origin/`
//! the records of where content came from. The document grants nothing else, and no key may delete finished content or
//! its origin: the lifecycle rules of the bucket do that.

use serde_json::{Value, json};

/// How an identity uses the store. By default it only opens the store and checks that it is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent rights, each written as statements of its own"
)]
pub struct StoreAccess {
    reads: bool,
    writes: bool,
    caches: bool,
    evicts: bool,
    fetches: bool,
    reads_origins: bool,
}

impl StoreAccess {
    /// Opens the store and runs the self-test at start.
    pub const fn probe() -> Self {
        Self {
            reads: false,
            writes: false,
            caches: false,
            evicts: false,
            fetches: false,
            reads_origins: false,
        }
    }

    /// Reads finished and cached content, directly and by presigned URL.
    #[must_use]
    pub const fn reads(self) -> Self {
        Self {
            reads: true,
            ..self
        }
    }

    /// Stores finished content. Finishing an upload is a copy inside the store, so this also grants reading staged and
    /// finished content.
    #[must_use]
    pub const fn writes(self) -> Self {
        Self {
            writes: true,
            ..self
        }
    }

    /// Stores content in the cache for a while.
    #[must_use]
    pub const fn caches(self) -> Self {
        Self {
            caches: true,
            ..self
        }
    }

    /// Removes content from the cache.
    #[must_use]
    pub const fn evicts(self) -> Self {
        Self {
            evicts: true,
            ..self
        }
    }

    /// Stores what came from the web, and records where it came from.
    #[must_use]
    pub const fn fetches(self) -> Self {
        Self {
            writes: true,
            fetches: true,
            ..self
        }
    }

    /// Reads where content came from, and no content.
    #[must_use]
    pub const fn reads_origins(self) -> Self {
        Self {
            reads_origins: true,
            ..self
        }
    }

    /// The policy document for `bucket`.
    pub fn policy(self, bucket: &str) -> Value {
        // Without the right to list, a missing object looks like a forbidden one.
        let mut statements = vec![json!({
            "Sid": "TheBucket",
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [format!("arn:aws:s3:::{bucket}")],
        })];
        for (name, prefix, actions) in self.rights() {
            statements.push(json!({
                "Sid": name,
                "Effect": "Allow",
                "Action": actions,
                "Resource": [format!("arn:aws:s3:::{bucket}/{prefix}*")],
            }));
        }
        json!({ "Version": "2012-10-17", "Statement": statements })
    }

    /// The name, prefix and actions of each statement.
    fn rights(self) -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
        let stages = self.writes || self.caches;
        let staging = if stages {
            ("UploadsInProgress", "stage/")
        } else {
            // The self-test writes there even for an identity that only reads.
            ("TheCheckAtStart", "stage/probe/")
        };
        let mut stage = vec!["s3:GetObject", "s3:PutObject", "s3:DeleteObject"];
        if stages {
            stage.push("s3:AbortMultipartUpload");
        }
        let finished_content = granted_actions(&[
            (self.reads || self.writes, "s3:GetObject"),
            (self.writes, "s3:PutObject"),
            // A copy in parts that failed: it removes parts, and no object.
            (self.writes, "s3:AbortMultipartUpload"),
        ]);
        let cached = granted_actions(&[
            (self.reads || self.caches || self.evicts, "s3:GetObject"),
            (self.caches, "s3:PutObject"),
            (self.evicts, "s3:DeleteObject"),
        ]);
        // A service that only adds records reads none; overwriting a record needs no other right.
        let origins = granted_actions(&[
            (self.reads || self.reads_origins, "s3:GetObject"),
            (self.fetches, "s3:PutObject"),
        ]);
        [
            (staging.0, staging.1, stage),
            ("FinishedContent", "cas/", finished_content),
            ("TheCache", "cache/", cached),
            ("Origins", "origin/", origins),
        ]
        .into_iter()
        .filter(|(_, _, actions)| !actions.is_empty())
        .collect()
    }
}

fn granted_actions(rights: &[(bool, &'static str)]) -> Vec<&'static str> {
    rights
        .iter()
        .filter(|(granted, _)| *granted)
        .map(|(_, action)| *action)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(access: StoreAccess) -> Vec<(String, Vec<String>)> {
        let policy = access.policy("drayage");
        let statements = policy["Statement"].as_array().unwrap();
        statements
            .iter()
            .map(|statement| {
                let actions = statement["Action"].as_array().unwrap();
                let actions = actions.iter().map(|action| action.as_str().unwrap());
                (
                    statement["Resource"][0].as_str().unwrap().to_owned(),
                    actions.map(str::to_owned).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn no_identity_may_delete_finished_content() {
        let everything = StoreAccess::probe().reads().caches().evicts().fetches();
        for (resource, actions) in rights(everything) {
            let deletes = actions.contains(&"s3:DeleteObject".to_owned());
            assert_eq!(
                deletes,
                resource.contains("/stage/") || resource.contains("/cache/"),
                "{resource}"
            );
        }
    }

    #[test]
    fn an_identity_that_only_opens_the_store_touches_the_probe_alone() {
        let granted = rights(StoreAccess::default());
        let resources: Vec<_> = granted
            .iter()
            .map(|(resource, _)| resource.as_str())
            .collect();
        assert_eq!(
            resources,
            ["arn:aws:s3:::drayage", "arn:aws:s3:::drayage/stage/probe/*"]
        );
    }

    #[test]
    fn an_identity_may_read_where_content_came_from_without_reading_content() {
        let granted = rights(StoreAccess::probe().reads_origins());
        let origins = "arn:aws:s3:::drayage/origin/*";
        let may_read = |resource: &str| {
            let read = "s3:GetObject".to_owned();
            granted
                .iter()
                .any(|(granted, actions)| granted == resource && actions.contains(&read))
        };
        assert!(may_read(origins));
        for content in ["cas", "cache"] {
            assert!(!may_read(&format!("arn:aws:s3:::drayage/{content}/*")));
        }
    }

    #[test]
    fn only_a_service_that_fetches_records_origins() {
        let may_record = |access: StoreAccess| {
            rights(access).iter().any(|(resource, actions)| {
                resource.contains("/origin/") && actions.contains(&"s3:PutObject".to_owned())
            })
        };
        assert!(may_record(StoreAccess::probe().fetches()));
        // An identity that could replace the record of a fetch could make its file look like one of another host.
        assert!(!may_record(
            StoreAccess::probe().reads().writes().caches().evicts()
        ));
    }

    #[test]
    fn a_writer_without_the_right_to_read_does_not_read_the_cache() {
        let granted = rights(StoreAccess::probe().writes());
        assert!(
            !granted
                .iter()
                .any(|(resource, _)| resource.contains("cache")),
            "{granted:?}"
        );
    }
}
