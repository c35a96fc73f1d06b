//! Adds the skills that a manifest names to those of the service (quickapps 36).

use std::collections::HashSet;

use super::parse::shown_name;
use super::{ParsedSkill, Skill, parse_lenient};
use crate::issues::SkillIssue;

/// The document at the address of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedSkill {
    /// The address, as the manifest has it.
    pub url: String,
    /// The document, or the reason why it is missing, as a text for the agent's builder.
    pub content: Result<String, String>,
}

/// All skills of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedSkills {
    /// Skills of the service, then skills of the manifest, each name once.
    pub skills: Vec<Skill>,
    /// The reasons for skills that are left out.
    pub errors: Vec<SkillIssue>,
    /// Problems of skills that can still be used.
    pub warnings: Vec<SkillIssue>,
}

/// Adds fetched skills to those of the service, in the order of the manifest. Of equal addresses the first one counts.
/// Of equal names, that of the service counts, otherwise the first one.
pub fn merge_skills(predefined: &[Skill], fetched: Vec<FetchedSkill>) -> LoadedSkills {
    let mut learned = LoadedSkills {
        skills: predefined.to_vec(),
        ..LoadedSkills::default()
    };
    let mut urls = HashSet::new();
    for FetchedSkill { url, content } in fetched {
        // A repeated address causes no warning (quickapps 36).
        if !urls.insert(url.clone()) {
            continue;
        }
        let issue = |reason: String| SkillIssue {
            url: url.clone(),
            reason,
        };
        let parsed = content.and_then(|markdown| parse_lenient(&markdown));
        let loaded = parsed.and_then(|ParsedSkill { skill, warnings }| {
            // The name is known only after parsing, because it is inside the document.
            refuse_taken_name(&skill.name, &learned.skills, predefined.len())?;
            Ok((skill, warnings))
        });
        match loaded {
            Ok((skill, warnings)) => {
                learned.warnings.extend(warnings.into_iter().map(issue));
                learned.skills.push(skill);
            }
            Err(reason) => learned.errors.push(issue(reason)),
        }
    }
    learned
}

/// Refuses a name that is taken. The first `predefined` skills belong to the service.
fn refuse_taken_name(name: &str, skills: &[Skill], predefined: usize) -> Result<(), String> {
    match skills.iter().position(|skill| skill.name == name) {
        None => Ok(()),
        Some(index) if index < predefined => {
            Err("Has the same name as a predefined skill; predefined takes precedence".to_owned())
        }
        Some(_) => Err(format!(
            "Duplicate skill name '{}'; keeping first occurrence",
            shown_name(name)
        )),
    }
}
