//! A directory of files that set fields, as Kubernetes and Docker mount secrets: the name of a file is that of a
//! variable, and its content the value. So credentials stay out of the environment, which child processes inherit and
//! which crash reports contain.

use std::path::Path;

use super::Environment;
use super::check::FindingCollector;
use super::layer::ConfigLayer;
use super::variable::named_layers;

/// The variable that names the directory.
pub(super) const SECRETS_DIR_VARIABLE: &str = "DRAY_SECRETS_DIR";

/// Longest file, in bytes.
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// Makes a layer of each file in the directory, if the environment names one. Names that begin with a dot are skipped:
/// Kubernetes keeps the versions of a mounted secret in such directories, and its files are links into them.
pub(super) fn secrets_layers(
    collector: &mut FindingCollector<'_>,
    environment: &Environment,
) -> Vec<ConfigLayer> {
    let Some(directory) = environment.get(SECRETS_DIR_VARIABLE).map(Path::new) else {
        return Vec::new();
    };
    let names = match file_names(directory) {
        Ok(names) => names,
        Err(error) => {
            let source = format!("variable {SECRETS_DIR_VARIABLE}");
            let message = format!("must name a readable directory: {error}");
            let path_text = directory.display().to_string();
            collector.add_finding(SECRETS_DIR_VARIABLE, &source, Some(&path_text), message);
            return Vec::new();
        }
    };
    let mut settings = Vec::new();
    for name in names {
        let path = directory.join(&name);
        let is_setting = name.starts_with("DRAY_") && name.contains("__")
            || collector.sections.iter().any(|section| {
                let mut aliases = section.aliases.iter();
                aliases.any(|alias| alias.variable == name)
            });
        let read = if is_setting {
            read_secret(&path)
        } else {
            let message = "is not a setting: files in this directory have names of variables, DRAY_<SECTION>__<FIELD>";
            Err(message.to_owned())
        };
        match read {
            Ok(text) => settings.push((name, text)),
            Err(message) => {
                collector.add_finding(&name, &source_of(directory, &name), None, message);
            }
        }
    }
    let settings = settings.into_iter().collect();
    let layers = named_layers(collector, &settings, |name| source_of(directory, name));
    // Two names for one field are a conflict in one source only; variables win over this directory.
    collector.contenders.clear();
    layers
}

fn source_of(directory: &Path, name: &str) -> String {
    format!("file {}", directory.join(name).display())
}

/// Names of the files, sorted, so that findings have the same order in every start.
fn file_names(directory: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The content of a file without its last line break. The message completes a sentence about the file.
fn read_secret(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("must be a readable text file: {error}");
    // Follows links. A pipe or a device would block the start.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err("must be a regular file".to_owned());
    }
    if metadata.len() > MAX_SECRET_BYTES {
        return Err(format!("must have at most {MAX_SECRET_BYTES} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    Ok(without_line_break(&text).to_owned())
}

/// A secret without one line break at its end: editors add one, and further ones may be part of the secret.
pub(super) fn without_line_break(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
