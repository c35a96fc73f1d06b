//! The first layer: the templates of every installation (quickapps 8.1). Manifests depend on their names.

use super::LayerSet;

/// Files of the layer and their contents.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../assets/", $path)))),+]
    };
}

const BUILT_IN_FILES: [(&str, &str); 12] = files![
    "prompt/anthropic_prompt.md",
    "prompt/gemini_prompt.md",
    "prompt/gpt_prompt.md",
    "skills/tool-call-file-parameter-formatting/SKILL.md",
    "tool/dial_rag.json",
    "tool/image_generation.json",
    "tool/py_interpreter.json",
    "tool/web_search.json",
    "toolset/chathub.json",
    "toolset/location.json",
    "toolset/py_interpreter.json",
    "toolset/weather.json",
];

/// The first layer; layers of operators override it.
pub fn built_in() -> LayerSet {
    let mut layers = LayerSet::default();
    for (path, content) in BUILT_IN_FILES {
        let added = layers.add(path, content);
        // The files are compiled into the program, and a test reads them all.
        debug_assert!(matches!(added, Ok(true)), "{path} is an entry");
    }
    layers
}

#[cfg(test)]
mod tests;
