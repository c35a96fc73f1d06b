//! The files of a layer: sorted, with the same time for each, so that equal trees result in equal bytes.

use std::collections::BTreeMap;

use dray_archive::tar::{BLOCK_BYTES, END_BLOCKS, NewEntry, Owner, encode};

/// Owner of everything that the service does not write.
pub(super) const ROOT_OWNER: Owner = Owner { uid: 0, gid: 0 };

/// Content of one entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeContent {
    Directory,
    File(Vec<u8>),
    /// Target of a symbolic link.
    Symlink(String),
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TreeNode {
    pub(super) content: NodeContent,
    /// The 12 low mode bits.
    pub(super) mode: u32,
    pub(super) owner: Owner,
}

/// Files by their names, without a slash at the beginning or the end.
#[derive(Debug, Default)]
pub(super) struct FileTree {
    pub(super) nodes: BTreeMap<String, TreeNode>,
}

impl FileTree {
    /// Adds an entry, and the missing directories above it with mode 0755.
    pub(super) fn add_node(&mut self, name: &str, mode: u32, owner: Owner, content: NodeContent) {
        for (position, _) in name.match_indices('/') {
            let parent = name.get(..position).unwrap_or_default().to_owned();
            self.nodes.entry(parent).or_insert(TreeNode {
                content: NodeContent::Directory,
                mode: 0o755,
                owner: ROOT_OWNER,
            });
        }
        let node = TreeNode {
            content,
            mode,
            owner,
        };
        self.nodes.insert(name.to_owned(), node);
    }

    /// Adds a file of the superuser.
    pub(super) fn add_file(&mut self, name: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.add_node(name, mode, ROOT_OWNER, NodeContent::File(content.into()));
    }

    /// The tree as a tar in the order of names, so that a directory comes before its content.
    pub(super) fn to_tar(&self, mtime: u64) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, node) in &self.nodes {
            let directory = format!("{name}/");
            let (name, flag, link, data): (&str, u8, &str, &[u8]) = match &node.content {
                NodeContent::Directory => (&directory, b'5', "", &[]),
                NodeContent::File(data) => (name, b'0', "", data),
                NodeContent::Symlink(link) => (name, b'2', link, &[]),
            };
            tar.extend_from_slice(&encode(&NewEntry {
                name: name.as_bytes(),
                flag,
                link: link.as_bytes(),
                size: data.len() as u64,
                mode: node.mode,
                owner: node.owner,
                mtime,
            }));
            tar.extend_from_slice(data);
            tar.resize(tar.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        tar.extend_from_slice(&END_BLOCKS);
        tar
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step;

    #[test]
    fn tar_lists_the_entries_in_order_with_their_owners_and_one_time() {
        let mut tree = FileTree::default();
        let state = Owner {
            uid: 65_532,
            gid: 65_532,
        };
        tree.add_node("var/lib/x", 0o750, state, NodeContent::Directory);
        tree.add_file("usr/bin/b", 0o755, "bb");
        let link = NodeContent::Symlink("b".to_owned());
        tree.add_node("usr/bin/a", 0o777, ROOT_OWNER, link);
        let list = step::program_step("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--utc"])
            .env("LC_ALL", "C")
            .output_for(tree.to_tar(86_400))
            .unwrap();
        let list = String::from_utf8(list).unwrap();
        let lines: Vec<String> = list
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 usr/",
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 usr/bin/",
                "lrwxrwxrwx 0/0 0 1970-01-02 00:00 usr/bin/a -> b",
                "-rwxr-xr-x 0/0 2 1970-01-02 00:00 usr/bin/b",
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 var/",
                "drwxr-xr-x 0/0 0 1970-01-02 00:00 var/lib/",
                "drwxr-x--- 65532/65532 0 1970-01-02 00:00 var/lib/x/",
            ]
        );
    }
}
