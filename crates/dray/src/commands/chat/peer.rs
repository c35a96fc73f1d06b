//! The peer of a chat: an orchestrator, DIAL Core or a model elsewhere, or the services in this process.

use std::path::Path;
use std::time::Duration;

use dray_agent::caller::Caller;
use dray_agent::message::Message;
use dray_dial::chat::{ChatClient as Completions, ChatError, ChatStream};
use dray_dial::{DialClient, DialOptions, DialOrigin};
use dray_http::{HttpClient, HttpTimeouts, TrustedAuthorities};
use dray_service::config::Environment;
use dray_types::{FaultCode, RedactedUrl, Secret};
use serde_json::{Value, json};

use super::downloads::DownloadDirectory;
use super::embedded::EmbeddedServices;
use super::{answer_error, chat_failure};
use crate::cli::{ChatArgs, GlobalOptions};
use crate::context;
use crate::outcome::CommandFailure;

/// `api-version` of requests to DIAL Core.
const API_VERSION: &str = "2025-01-01-preview";
/// Longest list of models that is read, in bytes.
const MAX_MODEL_LIST_BYTES: usize = 4 << 20;
/// Most names of models that an error shows.
const MAX_SHOWN_MODELS: usize = 20;

/// The peer: a client with its key, and the origins from which files may be fetched.
#[derive(Debug)]
pub(super) struct ChatPeer {
    completions: Completions,
    caller: Caller,
    deployment: String,
    model: Option<String>,
    /// Client for files of DIAL, when the peer is DIAL Core.
    dial: Option<DialClient>,
    http: HttpClient,
    /// Origins that are trusted for files: the origin of the peer, and that of its store.
    origins: Vec<DialOrigin>,
    url: String,
    silence: Duration,
    embedded: Option<EmbeddedServices>,
}

/// Address and key of a peer that is not connected yet.
#[derive(Debug)]
struct PeerAddress<'a> {
    url: &'a str,
    origin: DialOrigin,
    key: Option<Secret>,
    limits: HttpTimeouts,
    ca_file: Option<&'a Path>,
}

impl ChatPeer {
    /// Connects to the peer that the command line names. Without an address, the services start in this process.
    pub(super) async fn open(
        global: &GlobalOptions,
        chat: &ChatArgs,
    ) -> Result<Self, CommandFailure> {
        if let Some(url) = &chat.url {
            let named = chat.manifest.as_ref().or(chat.model.as_ref());
            if chat.manifest.is_some() && chat.model.is_some() {
                return Err(CommandFailure::Usage(
                    "with --url, --manifest and --model set the same field of the request: name only one".to_owned(),
                ));
            }
            let key = api_key(chat, url)?;
            return Self::at(chat, url, key, named.map(String::as_str), None).await;
        }
        let embedded = EmbeddedServices::start(global, chat).await?;
        let (url, key) = (embedded.url.clone(), embedded.key.clone());
        let named = chat.manifest.clone().or_else(|| embedded.manifest.clone());
        Self::at(chat, &url, key, named.as_deref(), Some(embedded)).await
    }

    async fn at(
        chat: &ChatArgs,
        url: &str,
        key: Option<Secret>,
        named: Option<&str>,
        embedded: Option<EmbeddedServices>,
    ) -> Result<Self, CommandFailure> {
        let url = url.trim().trim_end_matches('/');
        let origin = DialOrigin::parse(url).map_err(|_| {
            CommandFailure::Usage(
                "--url is not an http or https URL without user, query and fragment".to_owned(),
            )
        })?;
        let silence = Duration::from_secs(chat.timeout);
        let limits = HttpTimeouts {
            idle: silence,
            response: silence,
            ..HttpTimeouts::default()
        };
        let address = PeerAddress {
            url,
            origin,
            key,
            limits,
            ca_file: chat.ca_file.as_deref(),
        };
        let opened = match &chat.deployment {
            Some(deployment) => address.deployment(deployment),
            None => address.plain(named).await,
        };
        // The services have started, so a failure must stop them first.
        match (opened, embedded) {
            (Ok(mut peer), embedded) => {
                let store = embedded
                    .as_ref()
                    .and_then(|embedded| embedded.store.clone());
                peer.origins.extend(store);
                peer.embedded = embedded;
                Ok(peer)
            }
            (Err(failure), embedded) => {
                if let Some(embedded) = embedded {
                    embedded.close().await;
                }
                Err(failure)
            }
        }
    }

    /// Sends a conversation, and returns the answer as a stream.
    pub(super) async fn ask(&self, messages: &[&Message]) -> Result<ChatStream, ChatError> {
        let mut body = json!({ "messages": messages, "stream": true });
        if let (Some(model), Some(body)) = (&self.model, body.as_object_mut()) {
            body.insert("model".to_owned(), Value::from(model.as_str()));
        }
        self.completions
            .stream(&self.caller, &self.deployment, body)
            .await
    }

    /// The failure for a failed answer.
    pub(super) fn failure(&self, error: &ChatError) -> CommandFailure {
        answer_error::answer_failure(error, &self.url, self.silence)
    }

    /// The directory for received files, with this peer's origins and key.
    pub(super) fn downloads(&self, directory: &Path) -> Result<DownloadDirectory, CommandFailure> {
        let dial = self.dial.clone().map(|core| (core, self.caller.clone()));
        DownloadDirectory::open(directory, self.http.clone(), self.origins.clone(), dial)
    }

    /// Stops the services that run here.
    pub(super) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
    }
}

impl PeerAddress<'_> {
    fn deployment(self, deployment: &str) -> Result<ChatPeer, CommandFailure> {
        let key = self.key.ok_or_else(|| {
            CommandFailure::Usage(
                "DIAL needs a key: name its file with --api-key-file, or set DIAL_URL and DIAL_API_KEY"
                    .to_owned(),
            )
        })?;
        let options = DialOptions {
            authorities: TrustedAuthorities::public_and(self.ca_file),
            chat: self.limits,
            ..DialOptions::new(self.url, API_VERSION)
        };
        let core = DialClient::new(options).map_err(|_| unusable_response_failure())?;
        Ok(ChatPeer {
            // The request is not repeated, because the work of an agent has effects.
            completions: core.chat().once(),
            caller: Caller {
                api_key: Some(key),
                ..Caller::default()
            },
            deployment: deployment.to_owned(),
            model: None,
            dial: Some(core),
            http: HttpClient::new(self.limits, self.ca_file)
                .map_err(|_| unusable_response_failure())?,
            origins: vec![self.origin],
            url: shown_url(self.url),
            silence: self.limits.idle,
            embedded: None,
        })
    }

    async fn plain(self, named: Option<&str>) -> Result<ChatPeer, CommandFailure> {
        let http =
            HttpClient::new(self.limits, self.ca_file).map_err(|_| unusable_response_failure())?;
        // People write both forms; orchestrators and models serve below `/v1`.
        let base = if self.url.ends_with("/v1") {
            self.url.to_owned()
        } else {
            format!("{}/v1", self.url)
        };
        let model = match named {
            Some(model) => model.to_owned(),
            None => self.only_model(&http, &base).await?,
        };
        let completions = Completions::open(
            &base,
            self.key,
            self.limits,
            self.ca_file,
            Duration::from_millis(500),
        )
        .map_err(|_| unusable_response_failure())?;
        Ok(ChatPeer {
            completions: completions.once(),
            caller: Caller::default(),
            deployment: String::new(),
            model: Some(model),
            dial: None,
            http,
            origins: vec![self.origin],
            url: shown_url(self.url),
            silence: self.limits.idle,
            embedded: None,
        })
    }

    /// The name of the only model. Fails when there is none, or more than one.
    async fn only_model(&self, http: &HttpClient, base: &str) -> Result<String, CommandFailure> {
        let mut request = http.get(&format!("{base}/models"));
        if let Some(key) = &self.key {
            // The key is a bearer token, as in OpenAI's API; DIAL's header is used only for deployments.
            request = request.authorization("Bearer", key);
        }
        let unreachable = |error: &dray_http::HttpError| CommandFailure::Unreachable {
            description: format!("{} does not respond: {error}", shown_url(self.url)),
            advice: "Start an orchestrator with `dray up`, or check --url.".to_owned(),
        };
        let answer = request.send(&|_| ()).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        match answer.status() {
            401 | 403 => return Err(answer_error::refused_key_failure(answer.status(), None)),
            200 => {}
            status => {
                return Err(chat_failure(
                    FaultCode::NotFound,
                    "no_models",
                    format!(
                        "{} does not list its models: status {status}.",
                        shown_url(self.url)
                    ),
                    "Check --url, or name the agent with --manifest or --model.",
                ));
            }
        }
        let body = answer.bytes(MAX_MODEL_LIST_BYTES).await;
        let body = body.map_err(|error| unreachable(&error))?;
        // A body of another shape is a list without models.
        let list: Value = serde_json::from_slice(&body).unwrap_or_default();
        let models = list.get("data").and_then(Value::as_array);
        let names = models.into_iter().flatten();
        let names: Vec<_> = names
            .filter_map(|model| model.get("id")?.as_str())
            .collect();
        only_model(&names, self.url)
    }
}

/// The only one of these names, or a failure with the list of names.
fn only_model(names: &[&str], url: &str) -> Result<String, CommandFailure> {
    match names {
        [only] => Ok((*only).to_owned()),
        [] => Err(chat_failure(
            FaultCode::NotFound,
            "no_models",
            format!("{} has no manifest.", shown_url(url)),
            "Put one into its directory of manifests, or name another --url.",
        )),
        names => {
            let shown_names = names.iter().take(MAX_SHOWN_MODELS);
            let shown_names: Vec<_> = shown_names
                // Names come from the server and are shown on a terminal.
                .map(|name| dray_presentation::name::shown_text(name, 100))
                .collect();
            let more = if names.len() > MAX_SHOWN_MODELS {
                ", …"
            } else {
                ""
            };
            Err(CommandFailure::Usage(format!(
                "there are several agents; name one with --manifest: {}{more}",
                shown_names.join(", ")
            )))
        }
    }
}

fn unusable_response_failure() -> CommandFailure {
    CommandFailure::Usage("--url or --ca-file cannot be used".to_owned())
}

fn shown_url(url: &str) -> String {
    RedactedUrl::from_text(url).as_str().to_owned()
}

/// The key for `url`: the given key, or the key of the environment if that belongs to the same origin.
fn api_key(chat: &ChatArgs, url: &str) -> Result<Option<Secret>, CommandFailure> {
    if let Some(key) = &chat.api_key {
        return Ok(Some(key.clone()));
    }
    if let Some(file) = &chat.api_key_file {
        return context::read_key_file(file).map(Some);
    }
    let environment = Environment::from_process();
    let dial = environment.get("DIAL_URL");
    let dial = dial.and_then(|text| DialOrigin::parse(text).ok());
    // A key from the environment must be sent only to its own server.
    let is_dial = dial.is_some_and(|dial| dial.owns(url));
    let key = environment.get("DIAL_API_KEY").filter(|_| is_dial);
    Ok(key.map(|key| Secret::new(key.trim())))
}
