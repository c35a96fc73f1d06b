//! Problems of setting up a turn, for the stage before the answer (quickapps 40).

/// Name of the stage.
pub const STAGE_NAME: &str = "Initialization issues";

/// A tool or tool set that is not available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolIssue {
    /// Name of the tool; `None` for an issue of a complete tool set.
    pub tool: Option<String>,
    /// The tool set, or the tool set of the tool.
    pub toolset: Option<String>,
    /// The problem, in a sentence for the builder.
    pub message: String,
    /// Lines below the message, shown in a fence.
    pub details: Vec<String>,
    /// Whether the user can fix it. If so, the message is also shown in the answer.
    pub is_for_user: bool,
}

/// A hook that is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookIssue {
    /// The event at which it would be called.
    pub event: String,
    /// The tool that it would call.
    pub tool: String,
    /// The problem, in a sentence for the builder.
    pub message: String,
}

/// A problem of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillIssue {
    /// Address of the skill, as the manifest has it.
    pub url: String,
    /// The problem, in the words of quickapps 36.
    pub reason: String,
}

/// All problems of setting up one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssueLog {
    /// Tools that are not available.
    pub tools: Vec<ToolIssue>,
    /// Hooks that are not available.
    pub hooks: Vec<HookIssue>,
    /// Whether all skills of DIAL are unavailable.
    pub no_skills: bool,
    /// Skills that are not available.
    pub errors: Vec<SkillIssue>,
    /// Skills that can be used but have problems.
    pub warnings: Vec<SkillIssue>,
}

impl IssueLog {
    /// Whether the stage is closed as failed.
    pub const fn is_hard(&self) -> bool {
        // Missing hooks and single skills do not make the stage fail (quickapps 40).
        !self.tools.is_empty() || self.no_skills
    }

    /// The text of the stage; `None` without problems.
    pub fn text(&self) -> Option<String> {
        // The sections have the order of quickapps 40.
        let sections: Vec<_> = [self.of_tools(), self.of_hooks(), self.of_skills()]
            .into_iter()
            .flatten()
            .collect();
        (!sections.is_empty()).then(|| sections.join("\n\n"))
    }

    /// Advice for the user in the answer: a line per tool set; `None` without advice.
    pub fn user_text(&self) -> Option<String> {
        let issues = self.tools.iter().filter(|issue| issue.is_for_user);
        let lines: Vec<_> = issues
            .map(|issue| format!("{}.\n\n", issue.message))
            .collect();
        (!lines.is_empty()).then(|| lines.concat())
    }

    fn of_tools(&self) -> Option<String> {
        let mut lines = vec!["#### Tool initialization".to_owned()];
        for issue in &self.tools {
            let tool = issue.tool.as_deref().unwrap_or_default();
            let toolset = match (&issue.tool, &issue.toolset) {
                (Some(_), Some(toolset)) => format!(" ({toolset})"),
                (None, Some(toolset)) => toolset.clone(),
                (_, None) => String::new(),
            };
            lines.push(format!("- **{tool}{toolset}**: {}", issue.message));
            if !issue.details.is_empty() {
                let details = issue.details.join("\n");
                let fence = fence_for(&details);
                lines.push(format!("{fence}\n{details}\n{fence}"));
            }
        }
        (!self.tools.is_empty()).then(|| lines.join("\n"))
    }

    fn of_hooks(&self) -> Option<String> {
        let lines = self
            .hooks
            .iter()
            .map(|hook| format!("- **{} ({})**: {}", hook.tool, hook.event, hook.message));
        let title = "#### Hook initialization".to_owned();
        let lines: Vec<_> = std::iter::once(title).chain(lines).collect();
        (!self.hooks.is_empty()).then(|| lines.join("\n"))
    }

    fn of_skills(&self) -> Option<String> {
        let mut lines = vec!["#### Skill loading".to_owned()];
        if self.no_skills {
            lines.push(
                "> DIAL prompts as a whole could not be loaded — falling back to predefined skills only."
                    .to_owned(),
            );
        }
        for (title, issues) in [("> Errors:", &self.errors), ("> Warnings:", &self.warnings)] {
            if !issues.is_empty() {
                lines.push(title.to_owned());
            }
            lines.extend(
                issues
                    .iter()
                    .map(|issue| format!("- **{}**: {}", issue.url, issue.reason)),
            );
        }
        (lines.len() > 1).then(|| lines.join("\n"))
    }
}

/// A code fence that the text cannot end.
fn fence_for(text: &str) -> String {
    let mut fence = "```".to_owned();
    // Only a run of backticks at least as long as the opening one ends a fence (CommonMark 4.5).
    while text.contains(&fence) {
        fence.push('`');
    }
    fence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(url: &str, reason: &str) -> SkillIssue {
        SkillIssue {
            url: url.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn sections_are_in_order() {
        let issues = IssueLog {
            tools: vec![ToolIssue {
                tool: Some("t".to_owned()),
                toolset: Some("s".to_owned()),
                message: "gone".to_owned(),
                details: vec!["```".to_owned()],
                is_for_user: false,
            }],
            hooks: vec![HookIssue {
                event: "on_completion".to_owned(),
                tool: "h".to_owned(),
                message: "missing".to_owned(),
            }],
            no_skills: true,
            errors: vec![skill("a", "x")],
            warnings: vec![skill("b", "y")],
        };
        assert_eq!(
            issues.text().unwrap(),
            "#### Tool initialization\n- **t (s)**: gone\n````\n```\n````\n\n#### Hook initialization\n\
             - **h (on_completion)**: missing\n\n#### Skill loading\n\
             > DIAL prompts as a whole could not be loaded — falling back to predefined skills only.\n\
             > Errors:\n- **a**: x\n> Warnings:\n- **b**: y"
        );
        assert_eq!(STAGE_NAME, "Initialization issues");
    }

    #[test]
    fn hooks_and_single_skills_are_soft() {
        let hook = IssueLog {
            hooks: vec![HookIssue {
                event: "on_completion".to_owned(),
                tool: "h".to_owned(),
                message: "missing".to_owned(),
            }],
            ..IssueLog::default()
        };
        assert!(!hook.is_hard() && hook.text().is_some());
        let soft = IssueLog {
            warnings: vec![skill("b", "y")],
            ..IssueLog::default()
        };
        assert_eq!(
            soft.text().unwrap(),
            "#### Skill loading\n> Warnings:\n- **b**: y"
        );
        assert!(!soft.is_hard());
        assert!(
            IssueLog {
                no_skills: true,
                ..IssueLog::default()
            }
            .is_hard()
        );
        assert_eq!(IssueLog::default().text(), None);
    }
}
