//! The environment as a value. [`Environment::from_process`] is the only reader in the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;

/// Variables of a process, or those that a test sets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Names of the variables that are not Unicode, with `U+FFFD` for what is not. They have no value here.
    undecodable: BTreeSet<String>,
}

impl Environment {
    /// Reads the variables of this process.
    pub fn from_process() -> Self {
        Self::from_os(std::env::vars_os())
    }

    /// Decodes variables as the operating system has them.
    pub(super) fn from_os(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => {
                    environment.variables.insert(name, value);
                }
                (Ok(name), Err(_)) => {
                    environment.undecodable.insert(name);
                }
                (Err(name), _) => {
                    let name = name.to_string_lossy().into_owned();
                    environment.undecodable.insert(name);
                }
            }
        }
        environment
    }

    /// Names of the variables that are not Unicode, sorted.
    pub(super) fn undecodable(&self) -> impl Iterator<Item = &str> {
        self.undecodable.iter().map(String::as_str)
    }

    /// Returns the value of one variable.
    pub fn get(&self, variable: &str) -> Option<&str> {
        self.variables.get(variable).map(String::as_str)
    }

    /// Every variable with its value, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            undecodable: BTreeSet::new(),
        }
    }
}

impl fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.keys().chain(&self.undecodable);
        f.debug_set().entries(names).finish()
    }
}
