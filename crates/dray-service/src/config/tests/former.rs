//! Tests of the former names of fields.

use super::*;

/// A section with tables whose fields were renamed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NestedSection {
    /// A table with fixed keys.
    limits: TestLimits,
    /// Tables by name.
    pools: BTreeMap<String, TestLimits>,
}

impl Section for NestedSection {
    fn former_names() -> &'static [FormerName] {
        const FORMER_NAMES: [FormerName; 2] = [
            FormerName::below("limits", "each_host", "per_host"),
            FormerName::below("pools.*", "each_host", "per_host"),
        ];
        &FORMER_NAMES
    }
}

#[test]
fn a_former_name_sets_its_field_in_every_source_with_a_warning() {
    let text = file("[egress-fetcher]\npatience = \"7s\"\n");
    let by_file = ConfigSources::default().file(text.path());
    let by_variable = with_variables(&[("DRAY_EGRESS_FETCHER__PATIENCE", "7s")]);
    let by_flag = ConfigSources::default().set("egress-fetcher.patience", "7s");
    for sources in [by_file, by_variable, by_flag] {
        let loaded = loader().load(&sources).unwrap();
        let section: TestSection = loaded.section("egress-fetcher").unwrap();
        assert_eq!(section.connect_timeout, Period::secs(7), "{sources:?}");
        let [warning] = loaded.warnings() else {
            panic!("{:?}", loaded.warnings());
        };
        assert!(
            warning.ends_with(
                ": egress-fetcher.patience is named egress-fetcher.connect_timeout now; rename it"
            ),
            "{warning}"
        );
    }
}

#[test]
fn a_value_under_both_names_is_refused_in_one_file_and_layered_across_sources() {
    let text = file("[egress-fetcher]\npatience = \"7s\"\nconnect_timeout = \"8s\"\n");
    let sources = ConfigSources::default().file(text.path());
    let error = loader().load(&sources).unwrap_err();
    let [finding] = error.findings.as_slice() else {
        panic!("{error}");
    };
    assert_eq!(
        (finding.key.as_str(), finding.message.as_str()),
        (
            "egress-fetcher.patience",
            "is the former name of egress-fetcher.connect_timeout, which is set as well; remove it"
        )
    );
    let text = file("[egress-fetcher]\npatience = \"7s\"\n");
    let sources = ConfigSources::default()
        .file(text.path())
        .set("egress-fetcher.connect_timeout", "9s");
    assert_eq!(load(&sources).unwrap().connect_timeout, Period::secs(9));
}

#[test]
fn a_former_name_works_in_inner_tables_and_in_all_values_of_a_map() {
    let text = "[nested.limits]\neach_host = 3\n[nested.pools.a]\neach_host = 4\n[nested.pools.b]\nper_host = 5\n";
    let text = file(text);
    let by_file = ConfigSources::default().file(text.path());
    let by_flag = ConfigSources::default()
        .set("nested.limits.each_host", "3")
        .set("nested.pools.a.each_host", "4")
        .set("nested.pools.b.per_host", "5");
    let by_variable = with_variables(&[
        ("DRAY_NESTED__LIMITS__EACH_HOST", "3"),
        ("DRAY_NESTED__POOLS__A__EACH_HOST", "4"),
        ("DRAY_NESTED__POOLS__B__PER_HOST", "5"),
    ]);
    for sources in [by_file, by_flag, by_variable] {
        let loaded = ConfigLoader::new()
            .section::<NestedSection>("nested")
            .load(&sources)
            .unwrap();
        let section: NestedSection = loaded.section("nested").unwrap();
        assert_eq!(section.limits.per_host, 3, "{sources:?}");
        let limits: Vec<_> = section.pools.values().map(|pool| pool.per_host).collect();
        assert_eq!(limits, [4, 5], "{sources:?}");
        let mut warnings = loaded.warnings().to_vec();
        warnings.sort();
        let ends = [
            ": nested.limits.each_host is named nested.limits.per_host now; rename it",
            ": nested.pools.a.each_host is named nested.pools.a.per_host now; rename it",
        ];
        assert_eq!(warnings.len(), ends.len(), "{warnings:?}");
        for end in ends {
            assert!(
                warnings.iter().any(|warning| warning.ends_with(end)),
                "{warnings:?}"
            );
        }
    }
}

#[test]
fn an_inner_field_under_both_names_is_refused_with_its_whole_key() {
    let text = file("[nested.pools.a]\neach_host = 4\nper_host = 5\n");
    let sources = ConfigSources::default().file(text.path());
    let loader = ConfigLoader::new().section::<NestedSection>("nested");
    let error = loader.load(&sources).unwrap_err();
    let [finding] = error.findings.as_slice() else {
        panic!("{error}");
    };
    assert_eq!(
        (finding.key.as_str(), finding.message.as_str()),
        (
            "nested.pools.a.each_host",
            "is the former name of nested.pools.a.per_host, which is set as well; remove it"
        )
    );
}
