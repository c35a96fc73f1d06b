//! PPTX, rule by rule (read-attachment 7.8).
