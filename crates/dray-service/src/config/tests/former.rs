//! Tests of the former names of fields.

use super::*;

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
