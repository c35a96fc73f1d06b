//! dray-sandbox-ssh.
