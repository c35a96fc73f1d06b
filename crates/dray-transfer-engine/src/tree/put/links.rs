//! Finds links in a directory before a tar is unpacked there: programs that unpack follow them, and policy was checked
//! for the names in the tar alone.

use std::collections::HashMap;

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::SandboxPath;
use dray_sandbox_tree::{Kind, Members as _};

use super::{PutOperation, below};
use crate::schedule::TransferError;

/// What is at the path of a directory of the tar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParentState {
    Missing,
    Directory,
    /// A link, or another entry that is not a directory.
    Blocked,
}

impl PutOperation<'_> {
    /// Whether a directory of the tar is a link or a file in the sandbox. The tar is read once for this: after the
    /// sandbox has begun to unpack, some answer no other request.
    pub(super) async fn has_blocked_parent(
        &self,
        directory: &SandboxPath,
    ) -> Result<bool, TransferError> {
        let mut members = self.members(directory).await?;
        let mut known = HashMap::from([(directory.clone(), ParentState::Directory)]);
        while let Some(member) = members.next().await.map_err(TransferError::host)? {
            let mut parent = below(directory, &member.name)?;
            if member.kind == Kind::File {
                parent = parent.parent();
            }
            if self.parent_state(&parent, &mut known).await? == ParentState::Blocked {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The state of a path beneath the directory, which is known.
    async fn parent_state(
        &self,
        path: &SandboxPath,
        known: &mut HashMap<SandboxPath, ParentState>,
    ) -> Result<ParentState, Error> {
        let (mut unknown, mut part) = (Vec::new(), path.clone());
        let mut state = loop {
            match known.get(&part) {
                Some(state) => break *state,
                None if part == SandboxPath::root() => break ParentState::Blocked,
                None => {
                    let parent = part.parent();
                    unknown.push(part);
                    part = parent;
                }
            }
        };
        while let Some(next) = unknown.pop() {
            // Nothing is beneath a missing directory.
            if state == ParentState::Directory {
                let stat = self.engine.sandbox.stat(&next, Follow::No);
                state = match self.engine.with_response_timeout(stat).await {
                    Ok(found) if found.kind == FileKind::Directory => ParentState::Directory,
                    Ok(_) => ParentState::Blocked,
                    Err(error) if error.kind() == ErrorKind::NotFound => ParentState::Missing,
                    Err(error) => return Err(error),
                };
            }
            known.insert(next, state);
        }
        Ok(state)
    }
}
