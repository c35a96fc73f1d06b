//! Files of the web, through the egress-fetcher: this service opens no connection to an address that an agent chose.

use std::time::Duration;

use dray_guard::Code;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_tool::ToolFailure;
use dray_types::{Claim, Fault, RedactedUrl, Sha256Digest, whole_millis};
use percent_encoding::percent_decode_str;

use super::ask::{CallFailure, PeerService};
use super::scope::TurnScope;

/// The fetched content.
#[derive(Clone, Debug)]
pub(super) struct FetchedFile {
    /// The stored content in the artifact store.
    pub(super) claim: Claim,
    /// Name of the file (quickapps 33.6).
    pub(super) name: String,
    /// The file's type from the server; detected from its bytes if the server gives none.
    pub(super) media_type: String,
    /// Type by its bytes; empty for an unknown kind.
    pub(super) sniffed: String,
    /// Scheme, host, port and path of the last hop.
    pub(super) from: String,
}

/// Fetches an address into the store. `parameter` names the argument in failures that the model can correct.
pub(super) async fn fetch(
    scope: &TurnScope,
    parameter: &str,
    url: &str,
    limit: u64,
    time: Duration,
) -> Result<FetchedFile, ToolFailure> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        app_policy: scope.policy(),
        size_limit_bytes: limit,
        tool_timeout_ms: whole_millis(time),
        sink: v1::Sink::ClaimOnly.into(),
        revalidate: false,
    };
    let meta = scope.meta(time);
    let services = &scope.services;
    match services.call_once(PeerService::Web, &meta, &request).await {
        Ok(reply) => check_reply(url, limit, reply)
            .ok_or_else(|| CallFailure::Malformed(PeerService::Web).into()),
        Err(CallFailure::Refused(fault)) => Err(fetch_failure(parameter, url, fault)),
        Err(error) => Err(error.into()),
    }
}

/// A failure about the URL goes to the model, which can choose another one. A failure of the fetcher itself does not.
fn fetch_failure(parameter: &str, url: &str, fault: Fault) -> ToolFailure {
    match Code::of_fault(&fault).filter(|code| code.is_about_url()) {
        Some(code) => {
            let shown = RedactedUrl::from_text(url);
            ToolFailure::parameter(parameter, code.model_message(&fault.message, &shown))
        }
        None => CallFailure::Refused(fault).into(),
    }
}

/// Checks that the response is consistent and matches the request.
fn check_reply(url: &str, limit: u64, reply: v1::FetchReply) -> Option<FetchedFile> {
    let Ok(ContentSource::Claim(claim)) = ContentSource::try_from(reply.content?) else {
        return None;
    };
    let digest = Sha256Digest::try_from(reply.sha256.as_slice()).ok()?;
    let artifact = &claim.artifact;
    // Both the claim and the reply contain digest and size; a difference means that one of them belongs to another
    // file.
    if artifact.sha256 != digest || artifact.size != reply.size || reply.size > limit {
        return None;
    }
    let essence = dray_media_type::essence(&reply.media_type);
    let media_type = if essence.is_empty() {
        reply.sniffed_media_type.clone()
    } else {
        essence
    };
    let bare = reply.final_url.split(['?', '#']).next().unwrap_or_default();
    let last = bare
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    let last = last
        .and_then(|(_, path)| path.rsplit('/').next())
        .unwrap_or_default();
    let name = [tidy_name(&reply.name), tidy_name(last)]
        .into_iter()
        .flatten()
        .next()
        .unwrap_or_else(|| generated_name(url, &media_type));
    Some(FetchedFile {
        claim,
        name,
        media_type,
        sniffed: reply.sniffed_media_type,
        from: reply.final_url,
    })
}

/// A file name (quickapps 33.6); `None` if no character remains.
fn tidy_name(raw: &str) -> Option<String> {
    // The name is decoded once (quickapps 33.6): twice would make a separator of `%252F`.
    let decoded = percent_decode_str(raw).decode_utf8_lossy();
    let last = decoded.rsplit(['/', '\\']).next().unwrap_or_default();
    let allowed: String = last
        .chars()
        .filter(|character| !character.is_control())
        .map(|character| match character {
            '\\' | '/' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            blank if blank.is_whitespace() => '-',
            other => other,
        })
        .collect();
    let allowed = allowed.trim_matches('-');
    (!allowed.chars().all(|character| character == '.')).then(|| allowed.to_owned())
}

/// A name for content without a name, derived from its URL so that it is always the same.
fn generated_name(url: &str, media_type: &str) -> String {
    let digest = Sha256Digest::of(url.as_bytes()).to_hex();
    let digits = digest.get(..16).unwrap_or_default();
    let extension = dray_media_type::usual_extension(media_type);
    let extension = extension.map(|extension| format!(".{extension}"));
    let extension = extension.unwrap_or_default();
    format!("external-{digits}{extension}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_server_then_from_the_last_address_then_from_the_first_one() {
        assert_eq!(tidy_name("a b.pdf").as_deref(), Some("a-b.pdf"));
        assert_eq!(tidy_name("x%2Fy%20z.pdf").as_deref(), Some("y-z.pdf"));
        assert_eq!(tidy_name("..\\..\\.env").as_deref(), Some(".env"));
        assert_eq!(tidy_name("..").as_deref(), None);
        assert_eq!(tidy_name(""), None);
        let name = generated_name("https://e.example/", "text/html");
        assert!(
            name.starts_with("external-")
                && name.split_once('.').is_some_and(|(_, end)| end == "html"),
            "{name}"
        );
        assert_eq!(name.len(), "external-".len() + 16 + ".html".len());
        assert_eq!(
            name,
            generated_name("https://e.example/", "text/html"),
            "R16"
        );
    }

    #[test]
    fn an_answer_that_contradicts_itself_is_not_used() {
        let claim = Claim {
            artifact: dray_types::Artifact {
                tenant: dray_types::TenantId::default(),
                sha256: Sha256Digest::of(b"abc"),
                size: 3,
                media_type: String::new(),
                name: String::new(),
            },
            store: "s".to_owned(),
            version_id: None,
            created_at_ms: 0,
            expires_at_ms: 0,
        };
        let reply = |size, digest: &[u8]| v1::FetchReply {
            content: Some(ContentSource::Claim(claim.clone()).into()),
            sha256: Sha256Digest::of(digest).as_bytes().to_vec(),
            size,
            final_url: "https://h.example/a/b%20c.txt".to_owned(),
            media_type: "Text/Plain; charset=utf-8".to_owned(),
            ..v1::FetchReply::default()
        };
        let good = check_reply("u", 3, reply(3, b"abc")).unwrap();
        assert_eq!(
            (good.name.as_str(), good.media_type.as_str()),
            ("b-c.txt", "text/plain")
        );
        assert!(
            check_reply("u", 3, reply(4, b"abc")).is_none(),
            "another size"
        );
        assert!(
            check_reply("u", 3, reply(3, b"abd")).is_none(),
            "another digest"
        );
        assert!(
            check_reply("u", 2, reply(3, b"abc")).is_none(),
            "over the limit"
        );
        assert!(check_reply("u", 3, v1::FetchReply::default()).is_none());
    }
}
