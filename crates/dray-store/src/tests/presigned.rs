//! Presigned URLs.
