//! The identity that a connection shows to the server. It is read for each connection, so that a replaced one counts
//! from the next reconnect.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use async_nats::{Auth, AuthError};
use dray_types::Secret;
use nkeys::KeyPair;

use crate::options::NatsOptions;

/// The line above the JWT in a file of credentials, without its dashes.
const JWT_BORDER: &str = "BEGIN NATS USER JWT";
/// The line above the seed there.
const SEED_BORDER: &str = "BEGIN USER NKEY SEED";

/// The fields of [`NatsOptions`] that identify the connection. A file of credentials is read at each connection.
#[derive(Clone, Debug)]
pub struct NatsIdentity {
    user: String,
    password: Secret,
    nkey_seed: Secret,
    credentials_file: Option<PathBuf>,
}

impl From<&NatsOptions> for NatsIdentity {
    fn from(options: &NatsOptions) -> Self {
        Self {
            user: options.user.clone(),
            password: options.password.clone(),
            nkey_seed: options.nkey_seed.clone(),
            credentials_file: options.credentials_file.clone(),
        }
    }
}

/// The identity in force. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedIdentity(Arc<RwLock<NatsIdentity>>);

impl SharedIdentity {
    pub(crate) fn new(identity: NatsIdentity) -> Self {
        Self(Arc::new(RwLock::new(identity)))
    }

    pub(crate) fn replace(&self, identity: NatsIdentity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = identity;
    }

    fn get(&self) -> NatsIdentity {
        let identity = self.0.read().unwrap_or_else(PoisonError::into_inner);
        identity.clone()
    }

    /// The fields of `CONNECT` for a server that sent `nonce`.
    pub(super) async fn authenticate(&self, nonce: &[u8]) -> Result<Auth, UnusableIdentity> {
        let NatsIdentity {
            user,
            password,
            nkey_seed,
            credentials_file,
        } = self.get();
        let mut auth = Auth::new();
        if !user.is_empty() {
            auth.username = Some(user);
            auth.password = Some(password.expose().to_owned());
        }
        if !nkey_seed.is_empty() {
            let key = key_pair("nkey_seed", nkey_seed.expose())?;
            auth.nkey = Some(key.public_key());
            auth.signature = Some(sign("nkey_seed", &key, nonce)?);
        }
        if let Some(path) = credentials_file {
            let option = "credentials_file";
            let text = tokio::fs::read_to_string(&path).await;
            let text = text.map_err(|error| UnusableIdentity::new(option, &error))?;
            let missing = |what: &str| UnusableIdentity::new(option, &format!("has no {what}"));
            let jwt = decorated(&text, JWT_BORDER).ok_or_else(|| missing("JWT of a user"))?;
            let seed = decorated(&text, SEED_BORDER).ok_or_else(|| missing("seed of a user"))?;
            auth.jwt = Some(jwt.to_owned());
            auth.signature = Some(sign(option, &key_pair(option, seed)?, nonce)?);
        }
        Ok(auth)
    }
}

/// An identity that cannot be shown to a server.
#[derive(Debug, thiserror::Error)]
#[error("{option}: {reason}")]
pub(super) struct UnusableIdentity {
    pub(super) option: &'static str,
    pub(super) reason: String,
}

impl UnusableIdentity {
    fn new(option: &'static str, reason: &impl ToString) -> Self {
        let reason = reason.to_string();
        Self { option, reason }
    }
}

impl From<UnusableIdentity> for AuthError {
    fn from(error: UnusableIdentity) -> Self {
        Self::new(error)
    }
}

/// The line below the one with these words between dashes.
fn decorated<'a>(text: &'a str, border: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(border)?;
    let line = rest.lines().nth(1)?.trim();
    (!line.is_empty() && !line.starts_with("---")).then_some(line)
}

fn key_pair(option: &'static str, seed: &str) -> Result<KeyPair, UnusableIdentity> {
    KeyPair::from_seed(seed.trim()).map_err(|error| UnusableIdentity::new(option, &error))
}

fn sign(option: &'static str, key: &KeyPair, nonce: &[u8]) -> Result<Vec<u8>, UnusableIdentity> {
    key.sign(nonce)
        .map_err(|error| UnusableIdentity::new(option, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the client's documentation.
    const CREDENTIALS_FILE: &str = "-----BEGIN NATS USER JWT-----\n\
        eyJ0eXAiOiJqd3QiLCJhbGciOiJlZDI1NTE5In0.e30.c2ln\n\
        ------END NATS USER JWT------\n\n\
        ************************* IMPORTANT *************************\n\
        -----BEGIN USER NKEY SEED-----\n\
        SUAIO3FHUX5PNV2LQIIP7TZ3N4L7TX3W53MQGEIVYFIGA635OZCKEYHFLM\n\
        ------END USER NKEY SEED------\n";

    #[tokio::test]
    async fn a_file_of_credentials_is_read_for_each_connection() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let identity = SharedIdentity::new(NatsIdentity::from(&NatsOptions {
            credentials_file: Some(file.path().to_owned()),
            ..NatsOptions::default()
        }));
        let error = identity.authenticate(b"nonce").await.err().unwrap();
        assert_eq!(error.to_string(), "credentials_file: has no JWT of a user");
        for text in [
            CREDENTIALS_FILE.to_owned(),
            CREDENTIALS_FILE.replace('\n', "\r\n"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            let auth = identity.authenticate(b"nonce").await.unwrap();
            let signature = auth.signature.unwrap();
            let key = "SUAIO3FHUX5PNV2LQIIP7TZ3N4L7TX3W53MQGEIVYFIGA635OZCKEYHFLM";
            let key = KeyPair::from_seed(key).unwrap();
            key.verify(b"nonce", &signature).unwrap();
            let jwt = "eyJ0eXAiOiJqd3QiLCJhbGciOiJlZDI1NTE5In0.e30.c2ln";
            assert_eq!(auth.jwt.unwrap(), jwt);
        }
    }
}
