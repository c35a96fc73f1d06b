//! The datasets in a reminder (agent-file-context 9). The caller provides their permissions and names.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::generation::ContractGeneration;

/// A dataset as it is described to a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dataset {
    /// Id under which it is stored.
    pub(crate) id: String,
    /// Name for models and people.
    pub(crate) name: String,
    /// Description of the content; may be empty.
    #[serde(default)]
    pub(crate) description: String,
}

/// A dataset as a node stores its choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatasetSelection {
    /// Id under which it is stored.
    pub dataset_id: String,
    /// The dataset's name at the time of the choice.
    #[serde(default)]
    pub name: Option<String>,
}

/// A dataset as it is stored now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDataset {
    /// Id under which it is stored.
    pub id: String,
    /// Name of the dataset now.
    #[serde(default)]
    pub name: String,
    /// Description of the content.
    #[serde(default)]
    pub intro: String,
}

/// Looks datasets up for the acting member.
pub(crate) trait DatasetLibrary {
    /// The ids among `ids` that the acting member may read.
    fn readable(&self, ids: &[String]) -> BTreeSet<String>;
    /// The datasets with these `ids`; deleted ones are absent.
    fn stored(&self, ids: &[String]) -> Vec<StoredDataset>;
}

/// A library with results of earlier lookups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DatasetCache {
    /// The choices of the node, in order.
    #[serde(default)]
    pub selected: Vec<DatasetSelection>,
    /// The node's switch "authorise by member". G1 and G2 always authorise.
    #[serde(default)]
    pub authorise_by_member: bool,
    /// Ids that the acting member may read. Empty means none.
    #[serde(default)]
    pub readable: BTreeSet<String>,
    /// Datasets that exist now.
    #[serde(default)]
    pub stored: Vec<StoredDataset>,
}

impl DatasetLibrary for DatasetCache {
    fn readable(&self, ids: &[String]) -> BTreeSet<String> {
        let readable = ids.iter().filter(|id| self.readable.contains(*id));
        readable.cloned().collect()
    }

    fn stored(&self, ids: &[String]) -> Vec<StoredDataset> {
        let found = self.stored.iter().filter(|row| ids.contains(&row.id));
        found.cloned().collect()
    }
}

impl DatasetCache {
    /// The datasets to name, in the order of the selection.
    pub(crate) fn resolve(&self, generation: ContractGeneration) -> Vec<Dataset> {
        resolve_datasets(&self.selected, generation, self.authorise_by_member, self)
    }
}

/// The datasets to list, in the order of the selection. On request, only authorised ones. Each appears once, with the
/// stored name, otherwise the name in the selection, otherwise the id. An empty selection causes no lookup.
pub(crate) fn resolve_datasets(
    selected: &[DatasetSelection],
    generation: ContractGeneration,
    authorise_by_member: bool,
    library: &impl DatasetLibrary,
) -> Vec<Dataset> {
    let mut seen = BTreeSet::new();
    let mut chosen: Vec<_> = selected
        .iter()
        .filter(|selection| !selection.dataset_id.is_empty() && seen.insert(&selection.dataset_id))
        .collect();
    let ids = |chosen: &[&DatasetSelection]| -> Vec<String> {
        chosen
            .iter()
            .map(|selection| selection.dataset_id.clone())
            .collect()
    };
    if chosen.is_empty() {
        return Vec::new();
    }
    // The older generations always check; from G3 on, a switch decides (section 9, step 2).
    let is_always_checked = matches!(
        generation,
        ContractGeneration::G0 | ContractGeneration::G1 | ContractGeneration::G2
    );
    if is_always_checked || authorise_by_member {
        let readable = library.readable(&ids(&chosen));
        chosen.retain(|selection| readable.contains(&selection.dataset_id));
    }
    if chosen.is_empty() {
        return Vec::new();
    }
    // This follows the check of permissions, so that datasets without permission are not looked up (section 9, step 4).
    let stored = library.stored(&ids(&chosen));
    let to_dataset = |selection: &DatasetSelection| {
        let row = stored.iter().find(|row| row.id == selection.dataset_id);
        let names = [row.map(|row| row.name.clone()), selection.name.clone()];
        let name = names.into_iter().flatten().find(|name| !name.is_empty());
        Dataset {
            id: selection.dataset_id.clone(),
            name: name.unwrap_or_else(|| selection.dataset_id.clone()),
            // A text in the selection is never used (section 9, step 6).
            description: row.map(|row| row.intro.clone()).unwrap_or_default(),
        }
    };
    chosen.into_iter().map(to_dataset).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct LookupRecorder(RefCell<Vec<String>>);

    impl DatasetLibrary for LookupRecorder {
        fn readable(&self, ids: &[String]) -> BTreeSet<String> {
            self.0.borrow_mut().push(format!("readable {ids:?}"));
            ids.iter().filter(|id| *id != "secret").cloned().collect()
        }

        fn stored(&self, ids: &[String]) -> Vec<StoredDataset> {
            self.0.borrow_mut().push(format!("stored {ids:?}"));
            let row = |id: &str, name: &str, intro: &str| StoredDataset {
                id: id.into(),
                name: name.into(),
                intro: intro.into(),
            };
            // The rows are in another order than requested.
            vec![row("b", "", "about b"), row("a", "Alpha", "")]
        }
    }

    fn select(ids: &[&str]) -> Vec<DatasetSelection> {
        let to_selection = |id: &&str| DatasetSelection {
            dataset_id: (*id).to_owned(),
            name: Some(format!("chosen {id}")),
        };
        ids.iter().map(to_selection).collect()
    }

    fn check(
        ids: &[&str],
        generation: ContractGeneration,
        switch: bool,
        names: &[&str],
        expected_lookups: &[&str],
    ) {
        let recorder = LookupRecorder(RefCell::new(Vec::new()));
        let found = resolve_datasets(&select(ids), generation, switch, &recorder);
        let found: Vec<_> = found.iter().map(|dataset| dataset.name.as_str()).collect();
        assert_eq!(found, names);
        assert_eq!(*recorder.0.borrow(), expected_lookups);
    }

    #[test]
    fn an_empty_selection_causes_no_lookup() {
        check(&[], ContractGeneration::G1, true, &[], &[]);
    }

    #[test]
    fn datasets_keep_the_order_of_the_selection_and_unauthorised_ones_are_absent() {
        check(
            &["b", "secret", "a", "b"],
            ContractGeneration::G1,
            false,
            &["chosen b", "Alpha"],
            &[r#"readable ["b", "secret", "a"]"#, r#"stored ["b", "a"]"#],
        );
        check(
            &["secret"],
            ContractGeneration::G2,
            false,
            &[],
            &[r#"readable ["secret"]"#],
        );
    }

    #[test]
    fn newer_generations_authorise_only_with_the_switch() {
        check(
            &["secret"],
            ContractGeneration::Stable,
            false,
            &["chosen secret"],
            &[r#"stored ["secret"]"#],
        );
        check(
            &["secret"],
            ContractGeneration::G3,
            true,
            &[],
            &[r#"readable ["secret"]"#],
        );
    }

    #[test]
    fn a_deleted_dataset_has_a_name_but_no_description() {
        let datasets = DatasetCache {
            selected: vec![DatasetSelection {
                dataset_id: "gone".into(),
                name: None,
            }],
            ..DatasetCache::default()
        };
        let found = datasets.resolve(ContractGeneration::Stable);
        assert_eq!(
            (found[0].name.as_str(), found[0].description.as_str()),
            ("gone", "")
        );
        let closed = DatasetCache {
            authorise_by_member: true,
            ..datasets
        };
        assert!(closed.resolve(ContractGeneration::Stable).is_empty());
    }
}
