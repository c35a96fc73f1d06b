//! Layers of templates as directories (quickapps 8.1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dray_agent::layer::{LayerFileError, LayerSet};
use thiserror::Error;

use super::read_text;

/// Most bytes of one entry.
const MAX_ENTRY_BYTES: u64 = 4 << 20;

/// The subdirectories of a layer that are read.
const LAYER_DIRECTORIES: [&str; 4] = ["prompt", "tool", "toolset", "skills"];

/// A layer that cannot be used; it stops the start of the service.
#[derive(Debug, Error)]
pub enum LayerError {
    /// A directory or file does not exist or may not be read.
    #[error("the layer {path} cannot be read")]
    Io {
        /// The directory or file that cannot be read.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// An entry cannot be parsed.
    #[error("the layer {path} cannot be used")]
    Entry {
        /// The directory of the layer, as configured.
        path: PathBuf,
        /// The entry, and the reason.
        #[source]
        source: LayerFileError,
    },
}

/// Puts layers on top of `layers`, in order. Each is logged.
///
/// # Errors
///
/// [`LayerError`] for a directory that does not exist and for an entry that cannot be read.
pub fn read_layers(mut layers: LayerSet, directories: &[PathBuf]) -> Result<LayerSet, LayerError> {
    for directory in directories {
        // A layer may be empty, but its directory must exist.
        child_names(directory)?;
        let mut entries = 0_u32;
        for kind in LAYER_DIRECTORIES {
            let kind_directory = directory.join(kind);
            if kind_directory.is_dir() {
                entries += read_kind(&mut layers, directory, kind, &kind_directory)?;
            }
        }
        tracing::info!(layer = %directory.display(), entries, "a layer of templates is read");
    }
    Ok(layers)
}

fn read_kind(
    layers: &mut LayerSet,
    layer: &Path,
    kind: &str,
    kind_directory: &Path,
) -> Result<u32, LayerError> {
    let mut entries = 0;
    for name in child_names(kind_directory)? {
        let path = kind_directory.join(&name);
        let (file, inner) = if path.is_dir() {
            // Skills are the only entries that are directories (quickapps 8.1).
            (path.join("SKILL.md"), format!("{kind}/{name}/SKILL.md"))
        } else {
            (path, format!("{kind}/{name}"))
        };
        let is_entry = Path::new(&inner)
            .extension()
            .is_some_and(|ending| ending == "md" || ending == "json");
        if !is_entry || !file.is_file() {
            continue;
        }
        let text = read_text(&file, MAX_ENTRY_BYTES).map_err(|source| LayerError::Io {
            path: file.clone(),
            source,
        })?;
        let added = layers
            .add(&inner, &text)
            .map_err(|source| LayerError::Entry {
                path: layer.to_owned(),
                source,
            })?;
        entries += u32::from(added);
    }
    Ok(entries)
}

/// Names in a directory, sorted: which of two entries wins must not depend on the file system.
fn child_names(directory: &Path) -> Result<Vec<String>, LayerError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort_unstable();
        Ok(names)
    };
    read().map_err(|source| LayerError::Io {
        path: directory.to_owned(),
        source,
    })
}
