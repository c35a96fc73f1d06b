//! dray-sandbox-apptainer.
