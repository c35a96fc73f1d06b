//! The documents and blobs of an image, in one tar.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::super::archive::{self, GzipLevel};
use super::super::bill_of_materials::timestamp;
use super::super::digest;
use super::super::program::SourceCommit;
use super::ReleaseImage;
use super::tree::FileTree;

/// Name of the image without a registry.
const IMAGE_NAME: &str = "dray";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

/// A layer, compressed.
#[derive(Debug)]
pub(super) struct ImageLayer {
    /// Line of the image's history.
    comment: &'static str,
    /// SHA-256 of the uncompressed tar.
    uncompressed_sha256: String,
    compressed: Vec<u8>,
}

impl ImageLayer {
    pub(super) fn compress(
        comment: &'static str,
        tar: &[u8],
        level: GzipLevel,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            comment,
            uncompressed_sha256: digest::sha256(tar),
            compressed: archive::compress_gzip(tar.to_vec(), level)?,
        })
    }
}

/// The blobs of the layout, by their digests.
#[derive(Default)]
struct BlobTree(FileTree);

impl BlobTree {
    /// Adds a blob, and returns its descriptor.
    fn add_blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let sha256 = digest::sha256(&bytes);
        let size = bytes.len();
        self.0.add_file(&blob_path(&sha256), 0o644, bytes);
        json!({"mediaType": media_type, "digest": format!("sha256:{sha256}"), "size": size})
    }
}

fn blob_path(sha256: &str) -> String {
    format!("blobs/sha256/{sha256}")
}

/// The path of the blob of a descriptor.
fn path_of(descriptor: &Value) -> anyhow::Result<String> {
    let digest = descriptor.get("digest").and_then(Value::as_str);
    let sha256 = digest.and_then(|digest| digest.strip_prefix("sha256:"));
    Ok(blob_path(sha256.context("a descriptor without a digest")?))
}

/// The image of these layers, and the file that contains it.
pub(super) fn assemble_image(
    layers: &[ImageLayer],
    architecture: &str,
    commit: &SourceCommit,
) -> anyhow::Result<(ReleaseImage, Vec<u8>)> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("{IMAGE_NAME}:{version}");
    let mut blobs = BlobTree::default();
    let labels = image_labels(commit)?;
    let config = image_config(layers, architecture, &labels)?;
    let config = blobs.add_blob(CONFIG_TYPE, config.to_string().into_bytes());
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| blobs.add_blob(LAYER_TYPE, layer.compressed.clone()))
        .collect();
    // Docker before version 25 reads this document.
    let saved = json!([{
        "Config": path_of(&config)?,
        "RepoTags": [name],
        "Layers": layers.iter().map(path_of).collect::<anyhow::Result<Vec<_>>>()?,
    }]);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config,
        "layers": layers,
        "annotations": labels,
    });
    let mut manifest = blobs.add_blob(MANIFEST_TYPE, manifest.to_string().into_bytes());
    let sha256 = path_of(&manifest)?.replace("blobs/sha256/", "");
    if let Some(descriptor) = manifest.as_object_mut() {
        let platform = json!({"architecture": architecture, "os": "linux"});
        descriptor.insert("platform".to_owned(), platform);
        let names = json!({
            "org.opencontainers.image.ref.name": version,
            // containerd, and Docker with its store, name the image by this annotation.
            "io.containerd.image.name": format!("docker.io/library/{name}"),
        });
        descriptor.insert("annotations".to_owned(), names);
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [manifest]});
    let mut files = blobs.0;
    files.add_file("index.json", 0o644, index.to_string());
    files.add_file("manifest.json", 0o644, saved.to_string());
    let marker = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    files.add_file("oci-layout", 0o644, marker);
    let bytes = files.to_tar(u64::try_from(commit.seconds)?);
    Ok((ReleaseImage { name, sha256 }, bytes))
}

/// The labels of the image, which are also annotations of its manifest (image-spec, annotations).
fn image_labels(commit: &SourceCommit) -> anyhow::Result<Value> {
    Ok(json!({
        "org.opencontainers.image.title": "Drayage",
        "org.opencontainers.image.description": "Moves files between agents, sandboxes, stores and chats",
        "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
        "org.opencontainers.image.revision": commit.revision(),
        "org.opencontainers.image.created": timestamp(commit)?,
        "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
    }))
}

/// The configuration: the same settings as in `deploy/Dockerfile`, which a test compares.
fn image_config(
    layers: &[ImageLayer],
    architecture: &str,
    labels: &Value,
) -> anyhow::Result<Value> {
    let created = labels.get("org.opencontainers.image.created");
    let created = created.context("no time")?;
    let identifiers: Vec<String> = layers
        .iter()
        .map(|layer| format!("sha256:{}", layer.uncompressed_sha256))
        .collect();
    let history: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"created": created, "created_by": "cargo xtask dist", "comment": layer.comment}))
        .collect();
    let seconds = |count: u64| count * 1_000_000_000;
    Ok(json!({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "WorkingDir": "/var/lib/dray",
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "DRAY_HTTP__LISTEN=0.0.0.0:9464",
                "DRAY_STATE__DIRECTORY=/var/lib/dray",
            ],
            "ExposedPorts": {"9464/tcp": {}, "50051/tcp": {}},
            // Docker's addition to the specification; other engines ignore it.
            "Healthcheck": {
                "Test": ["CMD", "/usr/local/bin/dray", "healthcheck", "--http", "127.0.0.1:9464"],
                "Interval": seconds(10),
                "Timeout": seconds(3),
                "StartPeriod": seconds(30),
                "Retries": 3,
            },
            "StopSignal": "SIGTERM",
            "Entrypoint": ["/usr/local/bin/dray"],
            "Cmd": ["up"],
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": identifiers},
        "history": history,
    }))
}

#[cfg(test)]
mod tests;
