//! MEDIA tags.
