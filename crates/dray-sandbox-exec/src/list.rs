//! Lists a directory with a script.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{Entry, Listing};
use dray_sandbox::path::SandboxPath;

use super::channel::Exec;
use super::files::ExecFiles;
use super::metadata::PathFacts;
use super::reply::one_line;

pub(super) const LIST_SCRIPT: &str = include_str!("script/list.sh");
/// Bytes of output that are reserved for one entry: a long path takes more, a usual one a fifth.
const ENTRY_BYTES: usize = 600;
/// Bytes of output for any listing, so that a long path fits even if few entries are requested.
const MIN_OUTPUT_BYTES: usize = 64 << 10;
/// Limit in bytes for a listing, which is kept in memory.
const MAX_OUTPUT_BYTES: usize = 6 << 20;
/// Largest depth that every `find` takes.
const MAX_DEPTH: u32 = 10_000;
/// The last path of a whole listing, which `script/list.sh` adds. No entry has such a path.
const LAST_PATH: &[u8] = b"/dev//null";

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::list`]. Entries are sorted here, since the order of `find` is not defined.
    pub async fn list(
        &self,
        path: &SandboxPath,
        depth: u32,
        limit: usize,
    ) -> Result<Listing, Error> {
        let usual_output = limit
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(MIN_OUTPUT_BYTES)
            .min(MAX_OUTPUT_BYTES);
        let listing = self.list_up_to(path, depth, limit, usual_output).await?;
        // The output of `find` has no order, so the first entries by path are known only after all of it was read. If
        // the output was cut, the command runs again with the largest limit, unless the channel carries no more bytes.
        let longest = self
            .exec
            .channel()
            .longest_output
            .unwrap_or(MAX_OUTPUT_BYTES);
        if listing.is_output_cut && usual_output < longest.min(MAX_OUTPUT_BYTES) {
            let listing = self
                .list_up_to(path, depth, limit, MAX_OUTPUT_BYTES)
                .await?;
            return Ok(listing.listing);
        }
        Ok(listing.listing)
    }

    /// Lists with at most this many bytes of output.
    async fn list_up_to(
        &self,
        path: &SandboxPath,
        depth: u32,
        limit: usize,
        max_output: usize,
    ) -> Result<BoundedListing, Error> {
        let channel = self.exec.channel();
        // If the channel limits output, the script must stop at the limit.
        let room = match channel.longest_output {
            Some(longest) => longest.saturating_sub(2048).clamp(256, max_output),
            None => 0,
        };
        let arguments: [&[u8]; 3] = [
            path.as_bytes(),
            &depth.clamp(1, MAX_DEPTH).to_string().into_bytes(),
            &room.to_string().into_bytes(),
        ];
        // The limit is doubled, because the channel may carry the output as hexadecimal digits.
        let reply = self
            .run_script_up_to(max_output * 2, LIST_SCRIPT, &arguments, None)
            .await?;
        // A cut removes the end, which has the status.
        let has_end = reply.get("status").is_some() || reply.get("refused").is_some();
        if has_end {
            reply.check("text")?;
            check_whole(reply.records())?;
        }
        // If the script cut the output, the last record may be incomplete.
        let records = match reply.records() {
            [whole @ .., _] if !has_end && !reply.cut => whole,
            records => records,
        };
        let mut entries = parse_entries(records)?;
        entries.retain(|entry| entry.path != *path);
        let mut truncated = !has_end;
        entries.sort_by(|left, right| left.path.cmp(&right.path));
        truncated |= entries.len() > limit;
        entries.truncate(limit);
        Ok(BoundedListing {
            listing: Listing { entries, truncated },
            is_output_cut: !has_end,
        })
    }
}

/// A listing from output that had a limit.
struct BoundedListing {
    listing: Listing,
    /// Whether the output ended at the limit, so that entries may be missing anywhere.
    is_output_cut: bool,
}

/// Fails when a part of the listing is missing because a process of it was killed, or could not be started.
fn check_whole(records: &[(String, Vec<u8>)]) -> Result<(), Error> {
    let count = |tag: &str| records.iter().filter(|(found, _)| found == tag).count();
    let last = records.iter().rev().find(|(tag, _)| tag == "d");
    let has_ended = last.is_some_and(|(_, path)| one_line(path) == LAST_PATH);
    if has_ended && count("b") == count("d") {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Truncated,
        "the listing has no end, or a part of it is missing",
    ))
}

/// The entries of the records that `script/list.sh` prints, with the directory itself.
fn parse_entries(records: &[(String, Vec<u8>)]) -> Result<Vec<Entry>, Error> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut facts: Option<PathFacts> = None;
    let mut link: Option<SandboxPath> = None;
    for (tag, value) in records {
        let value = one_line(value);
        match tag.as_str() {
            "e" => {
                // The fields before the path contain no slash.
                let slash = value.iter().position(|byte| *byte == b'/');
                let (fields, path) = value.split_at(slash.unwrap_or(value.len()));
                if path == LAST_PATH {
                    continue;
                }
                let fields = String::from_utf8_lossy(fields);
                let (Some(facts), Ok(path)) =
                    (PathFacts::of_entry(&fields), SandboxPath::new(path))
                else {
                    return Err(Error::new(ErrorKind::Protocol, "not an entry"));
                };
                entries.push(entry(path, &facts));
            }
            "f" => facts = PathFacts::of_ls(&String::from_utf8_lossy(value)),
            "p" if value == LAST_PATH => facts = None,
            "p" => {
                if let (Some(facts), Ok(path)) = (facts.take(), SandboxPath::new(value)) {
                    entries.push(entry(path, &facts));
                }
            }
            "l" => link = SandboxPath::new(value).ok(),
            "t" => {
                let link = link.take();
                // A batch names its links after all of its entries.
                let named = |entry: &&mut Entry| Some(&entry.path) == link.as_ref();
                if let Some(entry) = entries.iter_mut().rev().find(named) {
                    entry.link_target = Some(value.to_vec());
                }
            }
            _ => {}
        }
    }
    Ok(entries)
}

fn entry(path: SandboxPath, facts: &PathFacts) -> Entry {
    Entry {
        path,
        kind: facts.kind(),
        size: facts.size,
        mode: facts.mode(),
        mtime_ns: facts.mtime_ns,
        link_target: None,
    }
}
