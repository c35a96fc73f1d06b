//! Skills: how they are read, listed and described to a model.

use proptest::prelude::*;

use super::*;
use crate::message::{Content, Role};

#[test]
fn the_list_is_escaped_indented_and_sorted() {
    let mut skill = Skill::new("a<b", "\"x\" & 'y'");
    skill.license = Some("MIT".to_owned());
    let pairs = [("z", "1"), ("a", "2")];
    skill.metadata = pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    assert_eq!(
        skills_listing(&[skill]).unwrap(),
        "<available_skills>\n  <skill>\n    <name>a&lt;b</name>\n    \
         <description>&quot;x&quot; &amp; &#x27;y&#x27;</description>\n    <license>MIT</license>\n    \
         <metadata>\n      <entry key=\"a\">2</entry>\n      <entry key=\"z\">1</entry>\n    </metadata>\n  \
         </skill>\n</available_skills>"
    );
    assert_eq!(skills_listing(&[]), None);
}

fn document(front: &str) -> String {
    format!("---\n{front}\n---\n# Text\n")
}

fn strict(front: &str) -> Result<Skill, String> {
    parse_strict("a-b", &document(front))
}

fn reason(front: &str) -> String {
    parse_lenient(&document(front)).unwrap_err()
}

fn warnings(front: &str) -> Vec<String> {
    parse_lenient(&document(front)).unwrap().warnings
}

fn fetched_skill(url: &str, name: &str) -> FetchedSkill {
    FetchedSkill {
        url: url.to_owned(),
        content: Ok(document(&format!("name: {name}\ndescription: of {url}"))),
    }
}

fn file_skill() -> Skill {
    Skill {
        markdown: document("name: tool-call-file-parameter-formatting\ndescription: d"),
        ..Skill::new(FILE_PARAMETERS, "d")
    }
}

#[test]
fn a_skill_of_a_layer_is_read_whole() {
    let front = "name: a-b\ndescription: \"d: e\"\nlicense: MIT\ncompatibility: x\nallowed-tools: t u\nmetadata:\n  version: 1\n  b: two";
    let skill = strict(front).unwrap();
    assert_eq!(
        (
            skill.name.as_str(),
            skill.description.as_str(),
            skill.license.as_deref()
        ),
        ("a-b", "d: e", Some("MIT"))
    );
    assert_eq!(skill.compatibility.as_deref(), Some("x"));
    assert_eq!(skill.allowed_tools.as_deref(), Some("t u"));
    let metadata: Vec<_> = skill
        .metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(metadata, [("b", "two"), ("version", "1")]);
    assert_eq!(skill.markdown, document(front));
}

#[test]
fn skills_of_layers_must_follow_the_rules() {
    assert_eq!(
        strict("name: other\ndescription: d").unwrap_err(),
        "its name 'other' is not 'a-b'"
    );
    assert!(
        strict("name: a-b\ndescription: x: y")
            .unwrap_err()
            .starts_with("Failed to parse YAML frontmatter: line 3, ")
    );
    let long = "x".repeat(1024);
    assert!(strict(&format!("name: a-b\ndescription: {long}")).is_ok());
    assert_eq!(
        strict(&format!("name: a-b\ndescription: {long}x")).unwrap_err(),
        "its description exceeds 1024 characters"
    );
    let issues = strict(&format!(
        "name: a-b\ndescription: d\ncompatibility: {}",
        "ä".repeat(501)
    ))
    .unwrap();
    assert_eq!(issues.compatibility, Some("ä".repeat(500)));
    for name in ["A", "a_b", "-a", "a-", "a--b", "ä"] {
        let read = parse_strict(
            name,
            &document(&format!("name: \"{name}\"\ndescription: d")),
        );
        assert!(
            read.unwrap_err().starts_with("its name is not of the form"),
            "{name}"
        );
    }
    let (fits, long) = ("a".repeat(64), "a".repeat(65));
    assert!(parse_strict(&fits, &document(&format!("name: {fits}\ndescription: d"))).is_ok());
    let read = parse_strict(&long, &document(&format!("name: {long}\ndescription: d")));
    assert_eq!(read.unwrap_err(), "its name exceeds 64 characters");
}

#[test]
fn an_unreadable_skill_is_refused_with_the_compatible_message() {
    for text in ["", "plain", "---\nname: a", "--- x\nname: a\n---\n"] {
        assert_eq!(
            parse_lenient(text).unwrap_err(),
            "No YAML frontmatter found",
            "{text}"
        );
    }
    for front in ["- a\n- b", "text", "", "5"] {
        assert_eq!(
            reason(front),
            "YAML frontmatter is not a dictionary",
            "{front}"
        );
    }
    for front in [
        "name: a",
        "description: d",
        "name: \"\"\ndescription: d",
        "name: a\ndescription:",
        "name: [a]\ndescription: d",
    ] {
        assert_eq!(
            reason(front),
            "Missing required fields (name/description)",
            "{front}"
        );
    }
    for tools in ["5", "{a: b}", "[a, 5]"] {
        let front = format!("name: a\ndescription: d\nallowed-tools: {tools}");
        assert_eq!(reason(&front), "Invalid allowed-tools format", "{tools}");
    }
    assert!(
        reason("name: a\ndescription: [").starts_with("Failed to parse YAML frontmatter: line ")
    );
}

#[test]
fn problems_to_repair_are_reported_in_fixed_words() {
    assert_eq!(
        warnings("name: a-b\ndescription: d\nallowed-tools: [x, y]"),
        Vec::<String>::new()
    );
    let long = "a".repeat(65);
    assert_eq!(
        warnings(&format!("name: {long}\ndescription: d")),
        [format!("Skill name exceeds 64 characters: {long}")]
    );
    assert_eq!(
        warnings("name: My Skill\ndescription: d"),
        [
            "Skill name does not match recommended format: My Skill (lowercase letters, digits and single hyphens, none at the ends)"
        ]
    );
    let (description, needs) = ("d".repeat(1025), "c".repeat(501));
    assert_eq!(
        warnings(&format!(
            "name: a\ndescription: {description}\ncompatibility: {needs}"
        )),
        [
            "Description exceeds 1024 characters",
            "Compatibility exceeds 500 characters"
        ]
    );
}

#[test]
fn colons_without_quotes_are_repaired_and_reported() {
    let parsed = parse_lenient(&document(
        "name: a\ndescription: Use: when \"x\" \\ fails:\nmetadata:\n  note: a: b\nlicense: |\n  one: two: three\n  four",
    ));
    let ParsedSkill { skill, warnings } = parsed.unwrap();
    assert_eq!(
        warnings,
        ["YAML repaired by quoting value(s) with unescaped colons"]
    );
    assert_eq!(skill.description, "Use: when \"x\" \\ fails:");
    assert_eq!(skill.metadata.get("note").map(String::as_str), Some("a: b"));
    assert_eq!(skill.license.as_deref(), Some("one: two: three\nfour"));
}

#[test]
fn line_ends_and_marks_of_other_systems_are_read() {
    let text = "\u{feff}\r\n---\r\nname: a\r\ndescription: d\r\n---\r\ntext";
    assert_eq!(parse_lenient(text).unwrap().skill.description, "d");
}

#[test]
fn documents_that_grow_when_read_are_refused() {
    let lines = (1..40).map(|at| format!("\na{at}: &a{at} [*a{0}, *a{0}]", at - 1));
    let front = format!("a0: &a0 [x, x]{}", lines.collect::<String>());
    assert!(reason(&front).starts_with("Failed to parse YAML frontmatter: "));
    let deep = format!("name: {}", "[".repeat(100_000));
    assert!(reason(&deep).starts_with("Failed to parse YAML frontmatter: "));
}

#[test]
fn skills_of_manifests_join_in_order_and_each_name_is_there_once() {
    let predefined = [Skill::new("own", "d")];
    let missing = FetchedSkill {
        url: "p/gone".to_owned(),
        content: Err("DIAL prompt has no content".to_owned()),
    };
    let fetched_skills = vec![
        fetched_skill("p/1", "one"),
        fetched_skill("p/2", "own"),
        fetched_skill("p/3", "one"),
        fetched_skill("p/1", "other"),
        missing,
        fetched_skill("p/4", "Two"),
    ];
    let learned = merge_skills(&predefined, fetched_skills);
    let names: Vec<_> = learned
        .skills
        .iter()
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(names, ["own", "one", "Two"]);
    assert_eq!(learned.skills[1].description, "of p/1");
    let messages = |issues: &[crate::issues::SkillIssue]| -> Vec<_> {
        issues
            .iter()
            .map(|issue| (issue.url.clone(), issue.reason.clone()))
            .collect()
    };
    let pair = |url: &str, reason: &str| (url.to_owned(), reason.to_owned());
    assert_eq!(
        messages(&learned.errors),
        [
            pair(
                "p/2",
                "Has the same name as a predefined skill; predefined takes precedence"
            ),
            pair(
                "p/3",
                "Duplicate skill name 'one'; keeping first occurrence"
            ),
            pair("p/gone", "DIAL prompt has no content"),
        ]
    );
    assert_eq!(learned.warnings.len(), 1);
    assert_eq!(learned.warnings[0].url, "p/4");
}

#[test]
fn skills_of_layers_come_sorted_and_bad_ones_are_named() {
    let mut layers = LayerSet::default();
    for (path, name) in [
        ("skills/b/SKILL.md", "b"),
        ("skills/a.md", "a"),
        ("skills/c/SKILL.md", "x"),
    ] {
        layers
            .add(path, &document(&format!("name: {name}\ndescription: d")))
            .unwrap();
    }
    let (skills, left_out) = of_layers(&layers);
    let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(left_out, ["skill 'c' is left out: its name 'x' is not 'c'"]);
}

#[test]
fn the_skills_that_ship_can_be_used() {
    let (skills, left_out) = of_layers(&crate::layer::built_in());
    assert_eq!(left_out, Vec::<String>::new());
    let mut messages = vec![Message::new(Role::User, "x")];
    inject_skill(&mut messages, &skills);
    assert_eq!(messages.len(), 3);
}

#[test]
fn r_15_and_r_16_the_skill_of_files_follows_the_first_user_message_once() {
    assert_eq!(FILE_PARAMETERS, "tool-call-file-parameter-formatting");
    let talk = || {
        [Role::System, Role::User, Role::Assistant, Role::User]
            .map(|role| Message::new(role, "x"))
            .to_vec()
    };
    let (mut one, mut other) = (talk(), talk());
    inject_skill(&mut one, &[file_skill()]);
    inject_skill(&mut other, &[Skill::new("first", "d"), file_skill()]);
    assert_eq!(one, other);
    let call = &one[2].calls()[0];
    assert_eq!(call.function.name, "internal_skills_read_skill");
    assert_eq!(
        call.function.arguments,
        r#"{"skill_name":"tool-call-file-parameter-formatting"}"#
    );
    assert!(pair::is_synthetic(&call.id, READ_SKILL_TOOL));
    assert_eq!(one[3].content, Some(Content::Text(file_skill().markdown)));
    assert_eq!(one[3].tool_call_id.as_ref(), Some(&call.id));
    inject_skill(
        &mut one,
        &[Skill {
            markdown: "newer".to_owned(),
            ..file_skill()
        }],
    );
    assert_eq!(one, other);
    let mut without = talk();
    inject_skill(&mut without, &[Skill::new("first", "d")]);
    assert_eq!(without, talk());
}

#[test]
fn a_conversation_that_already_read_the_skill_is_not_changed() {
    let former: Message = serde_json::from_value(json!({"role": "assistant", "tool_calls": [{
        "id": "call_synthetic_file_transfer_0001", "type": "function",
        "function": {"name": "read_skill", "arguments": "{\"skill_name\": \"tool-call-file-parameter-formatting\"}"},
    }]})).unwrap();
    let mut messages = vec![Message::new(Role::User, "x"), former];
    let before = messages.clone();
    inject_skill(&mut messages, &[file_skill()]);
    assert_eq!(messages, before);
}

#[test]
fn names_that_are_too_long_are_cut_in_messages() {
    let name = "ä".repeat(100_000);
    let messages = warnings(&format!("name: {name}\ndescription: d"));
    assert_eq!(
        messages[0],
        format!("Skill name exceeds 64 characters: {}…", "ä".repeat(200))
    );
    assert!(messages.iter().all(|line| line.chars().count() < 400));
}

proptest! {
    #[test]
    fn any_text_is_a_skill_or_refused(text in "(?s).{0,200}", front in "[-a-z:|>#&*!{}\\[\\]\"' \n\t]{0,120}") {
        let whole = document(&format!("name: a\ndescription: d\n{front}"));
        for text in [text, document(&front), whole] {
            if let Ok(ParsedSkill { skill, .. }) = parse_lenient(&text) {
                prop_assert_eq!(&skill.markdown, &text);
                prop_assert!(!skill.name.is_empty() && !skill.description.is_empty());
            }
            let strict = parse_strict("a", &text);
            prop_assert!(strict.is_err() || parse_lenient(&text).is_ok());
        }
    }

    #[test]
    fn descriptions_with_colons_survive_as_they_are(words in prop::collection::vec("[a-z\"\\\\']{1,6}", 2..6)) {
        // A value that begins with a quote would be a quoted value.
        let text = format!("x{}", words.join(": "));
        let parsed = parse_lenient(&document(&format!("name: a\ndescription: {text}"))).unwrap();
        prop_assert_eq!(parsed.skill.description, text);
        prop_assert_eq!(parsed.warnings, ["YAML repaired by quoting value(s) with unescaped colons"]);
    }
}
