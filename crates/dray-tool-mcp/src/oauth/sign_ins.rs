//! Sign-ins that outlive a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dray_agent::manifest::toolset::OauthClient;
use dray_http::HttpClient;
use dray_types::Clock;
use tokio_util::task::TaskTracker;

use super::assertion::AssertionSigner;
use super::stored::CapturedStates;
use super::{OAuthBackend, OAuthOptions, RemoteSignIn, SignInOwner, WorkloadToken};

/// Most sign-ins in memory. At this limit, unused sign-ins are dropped; while all are in use, further ones are not
/// kept.
const MAX_SIGN_INS: usize = 1000;

/// A principal, the server, the client id, and the token of the workload: a manifest that may not present the token
/// must not get the sign-in of one that may.
type SignInKey = (String, String, Option<String>, Option<WorkloadToken>);

/// Sign-ins of users at servers, for the lifetime of the process; a [`super::SignInKeeper`] keeps them longer. Cheap to
/// clone; clones share the sign-ins.
#[derive(Clone, Debug, Default)]
pub struct SignIns(Arc<Mutex<HashMap<SignInKey, Arc<RemoteSignIn>>>>);

impl SignIns {
    /// The sign-in of a principal at a server. Without a principal, and while the map is full of sign-ins in use, the
    /// sign-in is for one request; a [`super::SignInKeeper`] keeps its tokens even then.
    pub(crate) fn get_or_begin(
        &self,
        principal: Option<&str>,
        server: &str,
        client: &OauthClient,
        http: &HttpClient,
        options: &OAuthOptions,
        clock: &Clock,
    ) -> Arc<RemoteSignIn> {
        let workload = WorkloadToken::of_client(client, server, options);
        let presented = workload.clone().ok().flatten();
        // A sign-in with a token of the workload is not kept: a kept one does not record which manifest may present the
        // token, and no user is needed to begin it again.
        let is_kept = presented.is_none();
        let begin = || {
            let named = &client.authorization_servers;
            let backend = OAuthBackend::new(
                http.clone(),
                server,
                named,
                options.issuer_trust,
                AssertionSigner::of_client(client, clock),
            );
            Arc::new(RemoteSignIn {
                server: server.to_owned(),
                client: client.clone(),
                client_metadata_url: options.client_metadata_url.clone(),
                backend: Arc::new(backend),
                workload: workload.clone(),
                store: options
                    .keeper
                    .clone()
                    .filter(|_| is_kept)
                    .zip(principal.map(|principal| SignInOwner {
                        principal: principal.to_owned(),
                        server: server.to_owned(),
                        client_id: client.client_id.clone(),
                    })),
                states: CapturedStates::default(),
                renewals: Arc::default(),
                manager: tokio::sync::Mutex::default(),
                exchanges: TaskTracker::new(),
            })
        };
        let Some(principal) = principal else {
            return begin();
        };
        let key = (
            principal.to_owned(),
            server.to_owned(),
            client.client_id.clone(),
            presented,
        );
        let mut sign_ins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sign_ins.len() >= MAX_SIGN_INS && !sign_ins.contains_key(&key) {
            sign_ins.retain(|_, sign_in| Arc::strong_count(sign_in) > 1);
            if sign_ins.len() >= MAX_SIGN_INS {
                return begin();
            }
        }
        let sign_in = sign_ins.entry(key).or_insert_with(begin);
        // After a change of the manifest, the trust and the scopes of the old one must not be used.
        if sign_in.client != *client {
            *sign_in = begin();
        }
        Arc::clone(sign_in)
    }
}

#[cfg(test)]
mod tests {
    use dray_http::HttpTimeouts;

    use super::*;

    #[test]
    fn a_map_full_of_sign_ins_in_use_does_not_grow() {
        let http = HttpClient::new(HttpTimeouts::default(), None).unwrap();
        let sign_ins = SignIns::default();
        let get = |number: usize| {
            sign_ins.get_or_begin(
                Some(&format!("user:{number}")),
                "https://mcp.example/",
                &OauthClient::default(),
                &http,
                &OAuthOptions::default(),
                &Clock::system(),
            )
        };
        let size = || sign_ins.0.lock().unwrap().len();
        let mut used: Vec<_> = (0..MAX_SIGN_INS).map(get).collect();
        let further = [get(MAX_SIGN_INS), get(MAX_SIGN_INS)];
        assert_eq!(size(), MAX_SIGN_INS);
        assert!(!Arc::ptr_eq(&further[0], &further[1]));
        // Sign-ins in use are still shared.
        assert!(Arc::ptr_eq(&used[0], &get(0)));
        // One that is no longer in use makes room.
        used.truncate(MAX_SIGN_INS - 1);
        assert!(Arc::ptr_eq(&get(MAX_SIGN_INS), &get(MAX_SIGN_INS)));
        assert_eq!(size(), MAX_SIGN_INS);
    }
}
