//! `dray artifact`: stored files by their digests.

use std::path::Path;
use std::time::Duration;

use dray_presentation::name;
use dray_store::{ArtifactLabel, ContentOrigins, WebOrigin};
use dray_types::{Artifact as Stored, Claim, Fault, FaultCode, Sha256Digest};
use serde_json::json;

use crate::cli::{ArtifactCommand, GlobalOptions};
use crate::commands::fetch::write_claim;
use crate::commands::output_sink::is_standard_output;
use crate::commands::{shown, upload};
use crate::context::SystemConnection;
use crate::outcome::{CommandFailure, print_line};
use crate::standard_input::read_standard_input;

/// Runs one of the commands. They need only the store.
pub(crate) async fn run(
    global: &GlobalOptions,
    artifact: &ArtifactCommand,
) -> Result<(), CommandFailure> {
    let system = SystemConnection::open_store(global).await?;
    let outcome = match artifact {
        ArtifactCommand::Put {
            file,
            name,
            media_type,
        } => {
            let given = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            // A stream on standard input has no name.
            let name = name.clone().or(given).unwrap_or_default();
            put_artifact(global, &system, file, ArtifactLabel::new(media_type, name)).await
        }
        ArtifactCommand::Get { sha256, output } => {
            get_artifact(global, &system, sha256, output).await
        }
        ArtifactCommand::Origin { sha256 } => print_origins(global, &system, sha256).await,
        ArtifactCommand::Url {
            sha256,
            expires,
            name,
            media_type,
        } => {
            let label = ArtifactLabel::new(media_type, name);
            print_url(
                global,
                &system,
                sha256,
                Duration::from_secs(*expires),
                label,
            )
            .await
        }
    };
    system.close().await;
    outcome
}

async fn put_artifact(
    global: &GlobalOptions,
    system: &SystemConnection,
    file: &Path,
    label: ArtifactLabel,
) -> Result<(), CommandFailure> {
    let claim = if file == Path::new("-") {
        upload::upload_stream(global, system, read_standard_input()?, None, label).await?
    } else {
        let (input, size) = upload::open_regular_file(file).await?;
        upload::upload_stream(global, system, input, Some(size), label).await?
    };
    let Stored {
        sha256,
        size,
        media_type,
        name,
        ..
    } = claim.artifact;
    if global.json {
        let line = json!({ "sha256": sha256.to_hex(), "size": size, "media_type": media_type, "name": name });
        print_line(&line.to_string());
    } else {
        let name = name::shown_text(&name, 200);
        print_line(&format!("{sha256}  {name} ({size} bytes)"));
    }
    Ok(())
}

/// The claim for a digest as the user typed it.
async fn claim_from_text(
    system: &SystemConnection,
    sha256: &str,
    label: ArtifactLabel,
) -> Result<Claim, CommandFailure> {
    stored_claim(system, parse_digest(sha256)?, label).await
}

fn parse_digest(sha256: &str) -> Result<Sha256Digest, CommandFailure> {
    sha256
        .parse()
        .map_err(|error| CommandFailure::Usage(format!("`{sha256}`: {error}")))
}

/// The claim for a digest. Fails with `claim_missing` when the tenant has not stored such content.
pub(crate) async fn stored_claim(
    system: &SystemConnection,
    sha256: Sha256Digest,
    label: ArtifactLabel,
) -> Result<Claim, CommandFailure> {
    let found = system
        .store()?
        .claim(system.tenant(), sha256, label)
        .await
        .map_err(Fault::from)?;
    found.ok_or_else(|| {
        Fault::new(
            FaultCode::NotFound,
            format!("Nothing is stored under {sha256}."),
        )
        .detail("claim_missing")
        .advice("Check the digest and the tenant; stored files are removed after their lifetime.")
        .into()
    })
}

async fn get_artifact(
    global: &GlobalOptions,
    system: &SystemConnection,
    sha256: &str,
    output: &Path,
) -> Result<(), CommandFailure> {
    let claim = claim_from_text(
        system,
        sha256,
        ArtifactLabel::new("application/octet-stream", ""),
    )
    .await?;
    write_claim(global, system, &claim, output).await?;
    // Content on standard output must not be followed by a line about it.
    if !is_standard_output(output) {
        let size = claim.artifact.size;
        if global.json {
            let line =
                json!({ "sha256": sha256, "size": size, "written_to": output.to_string_lossy() });
            print_line(&line.to_string());
        } else {
            print_line(&format!(
                "{sha256}  written to {} ({size} bytes)",
                shown::path_line(output)
            ));
        }
    }
    Ok(())
}

/// Prints one line for each chain of hosts. Content without a known fetch is not an error: most content has none.
async fn print_origins(
    global: &GlobalOptions,
    system: &SystemConnection,
    sha256: &str,
) -> Result<(), CommandFailure> {
    let digest = parse_digest(sha256)?;
    let store = system.store()?;
    let found = store.origins(system.tenant(), digest, None).await;
    let ContentOrigins { fetches, is_cut } = found.map_err(Fault::from)?;
    if global.json {
        let line = json!({ "sha256": digest.to_hex(), "fetches": fetches, "is_cut": is_cut });
        print_line(&line.to_string());
        return Ok(());
    }
    if fetches.is_empty() && !is_cut {
        print_line("No fetch of these bytes is known.");
    }
    for fetch in &fetches {
        let WebOrigin {
            hosts,
            fetched_at_ms,
            policy_digest,
            rules_digest,
            media_type,
        } = fetch;
        // A server chose the media type, so it is shown like any text from outside.
        let media_type = match name::shown_text(media_type, 80) {
            media_type if media_type.is_empty() => "no media type".to_owned(),
            media_type => media_type,
        };
        let rules = rules_digest.get(..12).unwrap_or("-");
        print_line(&format!(
            "{}  {}  {media_type}  policy {}  rules {rules}",
            shown::rfc3339_time(*fetched_at_ms),
            name::shown_text(hosts.join(" -> "), 400),
            policy_digest.get(..12).unwrap_or("-"),
        ));
    }
    if is_cut {
        crate::outcome::print_note("There are further records, which are not shown.");
    }
    Ok(())
}

async fn print_url(
    global: &GlobalOptions,
    system: &SystemConnection,
    sha256: &str,
    lifetime: Duration,
    label: ArtifactLabel,
) -> Result<(), CommandFailure> {
    let claim = claim_from_text(system, sha256, label).await?;
    let link = system
        .store()?
        .presign_judged(system.tenant(), &claim, lifetime)
        .await
        .map_err(Fault::from)?;
    if global.json {
        print_line(
            &json!({ "url": link.url.expose(), "expires_at_ms": link.expires_at_ms }).to_string(),
        );
    } else {
        print_line(link.url.expose());
    }
    // The embedded store runs only as long as the process that opened it.
    if global.s3.is_none() && !global.json {
        crate::outcome::print_note(
            "The embedded store serves this link while a `dray up` with the same --state runs.",
        );
    }
    Ok(())
}
