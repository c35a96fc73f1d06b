//! `dray artifact`: stored files by digest.

use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use dray_store::Label;
use dray_types::{Artifact as Stored, Claim, Fault, FaultCode, OperationId, Sha256Digest};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::cli::{Artifact, Global};
use crate::commands::fetch::write_claim;
use crate::outcome::{Failure, print_line};
use crate::progress;
use crate::world::World;

/// Puts, gets or links.
pub(crate) async fn run(global: &Global, artifact: &Artifact) -> Result<(), Failure> {
    let world = World::open_store(global).await?;
    let outcome = match artifact {
        Artifact::Put {
            file,
            name,
            media_type,
        } => {
            let given = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let name = name.clone().or(given).unwrap_or_default();
            put(global, &world, file, Label::new(media_type, name)).await
        }
        Artifact::Get { sha256, output } => get(global, &world, sha256, output).await,
        Artifact::Url {
            sha256,
            expires,
            name,
            media_type,
        } => {
            let label = Label::new(media_type, name);
            url(global, &world, sha256, Duration::from_secs(*expires), label).await
        }
    };
    world.close().await;
    outcome
}

/// Bytes per read.
const CHUNK: usize = 256 * 1024;

async fn put(global: &Global, world: &World, file: &Path, label: Label) -> Result<(), Failure> {
    let unreadable = || format!("cannot read {}", file.display());
    let (mut input, total): (Box<dyn AsyncRead + Send + Unpin>, _) = if file == Path::new("-") {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let file = tokio::fs::File::open(file)
            .await
            .map_err(Failure::local(unreadable()))?;
        let metadata = file
            .metadata()
            .await
            .map_err(Failure::local(unreadable()))?;
        if metadata.is_dir() {
            return Err(Failure::Usage(format!(
                "{}: is a folder; name a file",
                unreadable()
            )));
        }
        (Box::new(file), Some(metadata.len()))
    };
    let bar = progress::bytes(total, global.json);
    let mut writer = world
        .store()?
        .writer(world.tenant(), &OperationId::mint(), 1);
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        let count = input
            .read_buf(&mut buffer)
            .await
            .map_err(Failure::local(unreadable()))?;
        if count == 0 {
            break;
        }
        bar.inc(count as u64);
        writer
            .write(buffer.split().freeze())
            .await
            .map_err(Fault::from)?;
    }
    let claim = writer.finish(label).await.map_err(Fault::from)?;
    bar.finish_and_clear();
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
        print_line(&format!("{sha256}  {name} ({size} bytes)"));
    }
    Ok(())
}

/// The claim for a digest, when the tenant has stored such content.
async fn claim(world: &World, sha256: &str, label: Label) -> Result<Claim, Failure> {
    let sha256: Sha256Digest = sha256
        .parse()
        .map_err(|error| Failure::Usage(format!("`{sha256}`: {error}")))?;
    let found = world
        .store()?
        .claim(world.tenant(), sha256, label)
        .await
        .map_err(Fault::from)?;
    found.ok_or_else(|| {
        Fault::new(
            FaultCode::NotFound,
            format!("Nothing is stored under {sha256}."),
        )
        .detail("claim_missing")
        .advice("Check the digest and the tenant; stored files end after their lifetime.")
        .into()
    })
}

async fn get(global: &Global, world: &World, sha256: &str, output: &Path) -> Result<(), Failure> {
    let claim = claim(world, sha256, Label::new("application/octet-stream", "")).await?;
    write_claim(global, world, &claim, output).await?;
    if output != Path::new("-") {
        let size = claim.artifact.size;
        if global.json {
            let line =
                json!({ "sha256": sha256, "size": size, "written_to": output.to_string_lossy() });
            print_line(&line.to_string());
        } else {
            print_line(&format!(
                "{sha256}  written to {} ({size} bytes)",
                output.display()
            ));
        }
    }
    Ok(())
}

async fn url(
    global: &Global,
    world: &World,
    sha256: &str,
    lifetime: Duration,
    label: Label,
) -> Result<(), Failure> {
    let claim = claim(world, sha256, label).await?;
    let link = world
        .store()?
        .presign_get(world.tenant(), &claim, lifetime)
        .await
        .map_err(Fault::from)?;
    if global.json {
        print_line(
            &json!({ "url": link.url.expose(), "expires_at_ms": link.expires_at_ms }).to_string(),
        );
    } else {
        print_line(link.url.expose());
    }
    if global.s3.is_none() && !global.json {
        crate::outcome::note(
            "The embedded store serves this link while a `dray up` with the same --state runs.",
        );
    }
    Ok(())
}
