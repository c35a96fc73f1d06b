//! Skills (`io.modelcontextprotocol/skills`, SEP-2640): instructions for agents, as resources
//! `skill://drayage/NAME/SKILL.md`.
//!
//! One skill explains references to files in arguments; the others each explain a group of tools. A skill is served if
//! all of its tools are offered.

use dray_types::Fault;
use rmcp::model::{
    CacheScope, GetSkillResult, ListSkillsResult, ReadResourceResult, ResourceContents, Skill,
    SkillFrontmatter, SkillResource, SkillResources,
};

use crate::failure;
use crate::options::{ServerOptions, ToolName};

/// Prefix of the URIs of skills.
pub(crate) const SKILL_PREFIX: &str = "skill://";
/// How long a client may cache a skill, in milliseconds. A skill changes only with the program.
const SKILL_LIFETIME_MS: u64 = 3_600_000;

/// A skill and the tools that it is about.
struct SkillText {
    uri: &'static str,
    text: &'static str,
    tools: &'static [ToolName],
}

const BUNDLED_SKILLS: &[SkillText] = &[
    SkillText {
        uri: "skill://drayage/tool-call-file-parameter-formatting/SKILL.md",
        // The same text that agents of the orchestrator get.
        text: include_str!(
            "../../dray-agent/assets/skills/tool-call-file-parameter-formatting/SKILL.md"
        ),
        tools: &[ToolName::ResolveFileArguments],
    },
    SkillText {
        uri: "skill://drayage/read-documents/SKILL.md",
        text: include_str!("../skills/read-documents.md"),
        tools: &[ToolName::Read, ToolName::Fetch, ToolName::List],
    },
    SkillText {
        uri: "skill://drayage/move-files/SKILL.md",
        text: include_str!("../skills/move-files.md"),
        tools: &[ToolName::Get, ToolName::Put],
    },
    SkillText {
        uri: "skill://drayage/send-files/SKILL.md",
        text: include_str!("../skills/send-files.md"),
        tools: &[ToolName::SendFile, ToolName::Receipts],
    },
];

fn served_skills(options: &ServerOptions) -> impl Iterator<Item = &'static SkillText> {
    BUNDLED_SKILLS
        .iter()
        .filter(|skill| skill.tools.iter().all(|tool| options.offers(*tool)))
}

fn find(options: &ServerOptions, uri: &str) -> Result<&'static SkillText, Fault> {
    served_skills(options)
        .find(|skill| skill.uri == uri)
        .ok_or_else(|| {
            failure::invalid(
                "This skill does not exist here.",
                "`skills/list` shows them.",
            )
            .detail("skill_not_found")
        })
}

impl SkillText {
    fn entry(&self) -> Skill {
        let (name, description) = frontmatter(self.text);
        let resource = SkillResource::from_bytes(self.uri, self.text.as_bytes());
        Skill::new(
            self.uri,
            SkillFrontmatter::new(name, description),
            SkillResources::Files(vec![resource]),
        )
    }
}

/// Name and description between the two lines of hyphens. Both are on one line in the skills of this server.
fn frontmatter(text: &str) -> (&str, &str) {
    let field = |name: &str| {
        let mut lines = text.lines().skip(1).take_while(|line| *line != "---");
        lines
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
    };
    (field("name: "), field("description: "))
}

/// The skills whose tools are offered.
pub(crate) fn list(options: &ServerOptions) -> ListSkillsResult {
    ListSkillsResult::with_all_items(served_skills(options).map(SkillText::entry).collect())
        .with_ttl_ms(SKILL_LIFETIME_MS)
        .with_cache_scope(CacheScope::Private)
}

/// One skill, by the URI of its `SKILL.md`.
///
/// # Errors
///
/// The skill does not exist, or its tools are not offered.
pub(crate) fn get(options: &ServerOptions, uri: &str) -> Result<GetSkillResult, Fault> {
    let entry = find(options, uri)?.entry();
    Ok(GetSkillResult::new(entry)
        .with_ttl_ms(SKILL_LIFETIME_MS)
        .with_cache_scope(CacheScope::Private))
}

/// The text of a skill.
///
/// # Errors
///
/// Those of [`get`].
pub(crate) fn read(options: &ServerOptions, uri: &str) -> Result<ReadResourceResult, Fault> {
    let skill = find(options, uri)?;
    let contents = ResourceContents::text(skill.text, uri).with_mime_type("text/markdown");
    Ok(ReadResourceResult::new(vec![contents])
        .with_ttl_ms(SKILL_LIFETIME_MS)
        .with_cache_scope(CacheScope::Private))
}

#[cfg(test)]
mod tests {
    use rmcp::model::validate_skills;

    use super::*;
    use crate::Permissions;

    #[test]
    fn every_skill_is_valid_and_has_a_description() {
        let entries: Vec<Skill> = BUNDLED_SKILLS.iter().map(SkillText::entry).collect();
        validate_skills(&entries).unwrap();
        for entry in &entries {
            assert!(entry.frontmatter.description.len() > 20, "{}", entry.uri);
        }
    }

    #[test]
    fn a_skill_is_served_where_its_tools_are() {
        let names = |options: &ServerOptions| {
            let skills = list(options).skills.into_iter();
            skills
                .map(|skill| skill.name().to_owned())
                .collect::<Vec<_>>()
        };
        let reading = ["tool-call-file-parameter-formatting", "read-documents"];
        assert_eq!(names(&ServerOptions::default()), reading);
        let all = ServerOptions {
            permissions: Permissions {
                write: true,
                send: true,
            },
            ..ServerOptions::default()
        };
        assert_eq!(names(&all).len(), BUNDLED_SKILLS.len());
        let refused = get(&ServerOptions::default(), BUNDLED_SKILLS[3].uri).unwrap_err();
        assert_eq!(refused.detail, "skill_not_found");
        assert!(read(&all, "skill://drayage/../secret/SKILL.md").is_err());
    }
}
