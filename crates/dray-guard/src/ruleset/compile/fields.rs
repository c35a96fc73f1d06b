//! Checks of single fields. Each records its problems and returns what can be read, so that all problems are found.

use std::collections::BTreeSet;

use toml::Spanned;

use super::super::path::{PathList, PathPattern};
use super::super::pattern::{HostList, MAX_PATTERN_BYTES, MediaPattern, NameList};
use super::super::source::{PolicyText, PortList, TextList};
use super::{Compiler, NamedPart};
use crate::pattern::PatternError;
use crate::robots::RobotsMode;

/// Longest name of a role or rule in bytes.
const MAX_NAME_BYTES: usize = 64;

impl Compiler {
    pub(super) fn positive_limit<T>(
        &mut self,
        file: &PolicyText<'_>,
        value: &Spanned<T>,
        read_count: impl Fn(&T) -> u64,
    ) -> u64 {
        let count = read_count(value.as_ref());
        if count == 0 {
            let remedy =
                "Leave it out for no limit; a rule with outcome = \"deny\" allows nothing.";
            self.problems
                .push(file.problem(value.span().start, "a limit of 0", remedy));
        }
        count
    }

    pub(super) fn robots(
        &mut self,
        file: &PolicyText<'_>,
        mode: &Spanned<String>,
    ) -> Option<RobotsMode> {
        let read = RobotsMode::from_name(mode.as_ref());
        if read.is_none() {
            let problem = format!("{:?} is not a mode of robots", mode.as_ref());
            let remedy = "Write \"ignore\", \"report\" or \"obey\".";
            self.problems
                .push(file.problem(mode.span().start, problem, remedy));
        }
        read
    }

    pub(super) fn names(
        &mut self,
        file: &PolicyText<'_>,
        list: Option<&TextList>,
    ) -> Option<NameList> {
        let mut names = NameList::default();
        for item in self.items(file, list?, "Leave the list out for everyone.") {
            names.insert(item.as_ref());
        }
        Some(names)
    }

    pub(super) fn hosts(&mut self, file: &PolicyText<'_>, list: &TextList) -> HostList {
        let mut hosts = HostList::default();
        for item in self.items(file, list, "Leave the list out for every host.") {
            if let Err(error) = hosts.insert(item.as_ref()) {
                let remedy = match error {
                    PatternError::Address(_) => {
                        "Block addresses with egress-fetcher.extra_blocked_cidrs."
                    }
                    _ => {
                        "Write a name such as files.example.org, *.example.org or api.*.example.org."
                    }
                };
                self.problems
                    .push(file.problem(item.span().start, error.to_string(), remedy));
            }
        }
        hosts
    }

    pub(super) fn ports(&mut self, file: &PolicyText<'_>, list: &PortList) -> BTreeSet<u16> {
        let mut ports = BTreeSet::new();
        if list.as_ref().is_empty() {
            let remedy = "Leave the list out for every port.";
            self.problems.push(file.problem(
                list.span().start,
                "an empty list matches nothing",
                remedy,
            ));
        }
        for item in list.as_ref() {
            match u16::try_from(*item.as_ref()) {
                Ok(port) if port > 0 => drop(ports.insert(port)),
                _ => self.problems.push(file.problem(
                    item.span().start,
                    format!("{} is not a port", item.as_ref()),
                    "Write numbers from 1 to 65535.",
                )),
            }
        }
        ports
    }

    pub(super) fn methods(&mut self, file: &PolicyText<'_>, list: &TextList) -> BTreeSet<String> {
        let mut methods = BTreeSet::new();
        for item in self.items(file, list, "Leave the list out for every method.") {
            let is_method = item.as_ref().bytes().all(|byte| byte.is_ascii_uppercase());
            if is_method && item.as_ref() != "CONNECT" {
                methods.insert(item.as_ref().clone());
                continue;
            }
            let problem = format!("{:?} is not a method of a request", item.as_ref());
            self.problems.push(file.problem(
                item.span().start,
                problem,
                "Write methods in capitals, such as GET.",
            ));
        }
        methods
    }

    pub(super) fn paths(&mut self, file: &PolicyText<'_>, list: &TextList) -> PathList {
        let items = self.items(file, list, "Leave the list out for every path.");
        let mut paths = Vec::with_capacity(items.len());
        for item in items {
            match PathPattern::parse(item.as_ref()) {
                Some(pattern) => paths.push(pattern),
                None => self.problems.push(file.problem(
                    item.span().start,
                    format!("{:?} is not a pattern of paths", item.as_ref()),
                    "Write /simple/** or /files/*.csv, without percent-encoding and query; ** is a whole segment.",
                )),
            }
        }
        paths.into_iter().collect()
    }

    pub(super) fn media_types(
        &mut self,
        file: &PolicyText<'_>,
        list: &TextList,
    ) -> Vec<MediaPattern> {
        let items = self.items(file, list, "Leave the list out for every type.");
        let mut types = Vec::with_capacity(items.len());
        for item in items {
            match MediaPattern::parse(item.as_ref()) {
                Some(pattern) => types.push(pattern),
                None => self.problems.push(file.problem(
                    item.span().start,
                    format!("{:?} is not a media type", item.as_ref()),
                    "Write text/csv or image/*.",
                )),
            }
        }
        types
    }

    /// The items that are neither empty nor too long. An empty list is a mistake: the rule would match nothing.
    pub(super) fn items<'a>(
        &mut self,
        file: &PolicyText<'_>,
        list: &'a TextList,
        remedy: &str,
    ) -> Vec<&'a Spanned<String>> {
        let mut items = Vec::with_capacity(list.as_ref().len());
        if list.as_ref().is_empty() {
            let problem = "an empty list matches nothing";
            self.problems
                .push(file.problem(list.span().start, problem, remedy));
        }
        for item in list.as_ref() {
            let problem = match item.as_ref() {
                text if text.trim() != text || text.is_empty() => "an item is empty or has blanks",
                text if text.len() > MAX_PATTERN_BYTES => "an item is longer than 512 bytes",
                _ => {
                    items.push(item);
                    continue;
                }
            };
            self.problems
                .push(file.problem(item.span().start, problem, remedy));
        }
        items
    }

    pub(super) fn check_name(&mut self, file: &PolicyText<'_>, name: &Spanned<String>) {
        let text = name.as_ref();
        let is_name = (1..=MAX_NAME_BYTES).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if !is_name {
            let problem = format!("{text:?} is not a name");
            let remedy = "Use 1 to 64 letters, digits and - _ . without blanks.";
            self.problems
                .push(file.problem(name.span().start, problem, remedy));
        }
    }

    pub(super) fn check_unique(
        &mut self,
        file: &PolicyText<'_>,
        name: &Spanned<String>,
        part: NamedPart,
    ) {
        let kind = part.as_str();
        let offset = name.span().start;
        let location = format!("{}:{}", file.name, file.line_at(offset));
        let key = (part, name.as_ref().clone());
        if let Some(first) = self.names.get(&key) {
            let problem = format!("{kind} {:?} exists at {first}", name.as_ref());
            let remedy = "Rename one of them, or put their rules together.";
            self.problems.push(file.problem(offset, problem, remedy));
        } else {
            self.names.insert(key, location);
        }
    }
}
