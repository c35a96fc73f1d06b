//! The order of roles in a request (quickapps 10): `(system)? (user assistant)* user`. All violations are reported
//! together.

use thiserror::Error;

use super::Role;

/// A violation of the order of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeViolation {
    /// The list of messages is empty; then no other problem is reported.
    #[error("Messages array must not be empty.")]
    Empty,
    /// A system message that is not the first message.
    #[error("Message at index {index}: role 'system' is only allowed at index 0.")]
    LateSystem {
        /// Index in the array, from 0.
        index: usize,
    },
    /// A tool or function message: tool results are in the state of assistant messages.
    #[error("Message at index {index}: role '{role}' is not allowed in a request.")]
    NotAllowed {
        /// Index in the array, from 0.
        index: usize,
        /// Role of the message there.
        role: Role,
    },
    /// No message of a user.
    #[error("Messages array must contain at least one user message.")]
    NoUser,
    /// Another role is expected here.
    #[error("Message at index {index}: expected role '{expected}', got '{actual}'.")]
    Alternation {
        /// Index in the array, from 0.
        index: usize,
        /// Role that the order requires.
        expected: Role,
        /// Role of the message there.
        actual: Role,
    },
    /// The last message is not of the user.
    #[error("Messages array must end with a user message, but index {index} has role '{role}'.")]
    End {
        /// Index in the array, from 0.
        index: usize,
        /// Role of the message there.
        role: Role,
    },
}

/// A request whose messages are out of order: status 400, type `invalid_request_error`. Its text is the `message` of
/// the error body.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("Invalid messages array")]
pub struct InvalidMessages {
    /// All violations, in order of position; never empty.
    pub violations: Vec<ShapeViolation>,
}

impl InvalidMessages {
    /// The `display_message` of the error body: a line for each violation.
    pub fn display_message(&self) -> String {
        let mut text = format!("{self}:");
        for violation in &self.violations {
            text.push_str("\n- ");
            text.push_str(&violation.to_string());
        }
        text
    }
}

/// Checks the roles of a request, in order. The content is not checked.
///
/// # Errors
///
/// [`InvalidMessages`] with all violations. If a role is at a position where it is never allowed, only such positions
/// are reported, because the order of the others is then meaningless.
///
/// ```
/// use dray_agent::message::{Role, shape};
///
/// assert!(shape::check_roles(&[Role::System, Role::User]).is_ok());
/// let refused = shape::check_roles(&[Role::Assistant, Role::User]).unwrap_err();
/// assert_eq!(
///     refused.display_message(),
///     "Invalid messages array:\n- Message at index 0: expected role 'user', got 'assistant'."
/// );
/// ```
pub fn check_roles(roles: &[Role]) -> Result<(), InvalidMessages> {
    let violations = shape_violations(roles);
    if violations.is_empty() {
        Ok(())
    } else {
        Err(InvalidMessages { violations })
    }
}

fn shape_violations(roles: &[Role]) -> Vec<ShapeViolation> {
    let Some(last) = roles.last() else {
        return vec![ShapeViolation::Empty];
    };
    let misplaced = misplaced_roles(roles);
    if !misplaced.is_empty() {
        // The only reported problem: with a forbidden role, the order of the others is meaningless (quickapps 10).
        return misplaced;
    }
    let mut violations = alternation_violations(roles);
    if !roles.contains(&Role::User) {
        // This violation has no position, and is listed before those with one.
        violations.insert(0, ShapeViolation::NoUser);
    } else if *last != Role::User {
        violations.push(ShapeViolation::End {
            index: roles.len() - 1,
            role: *last,
        });
    }
    violations
}

/// Messages whose role is never allowed at their position.
fn misplaced_roles(roles: &[Role]) -> Vec<ShapeViolation> {
    let to_violation = |(index, role): (usize, &Role)| match role {
        Role::System if index > 0 => Some(ShapeViolation::LateSystem { index }),
        Role::Tool | Role::Function => Some(ShapeViolation::NotAllowed { index, role: *role }),
        _ => None,
    };
    roles.iter().enumerate().filter_map(to_violation).collect()
}

/// Messages out of turn. After one, the next expected role follows from the actual role.
fn alternation_violations(roles: &[Role]) -> Vec<ShapeViolation> {
    let mut violations = Vec::new();
    let mut expected = Role::User;
    let speakers = roles.iter().copied().enumerate();
    // Later system messages were reported before, so only the one at index 0 is left out here.
    for (index, actual) in speakers.filter(|(_, role)| *role != Role::System) {
        if actual != expected {
            violations.push(ShapeViolation::Alternation {
                index,
                expected,
                actual,
            });
        }
        // The expected role follows from the actual role: `user user assistant user` is one violation, not three
        // (quickapps 10).
        expected = if actual == Role::User {
            Role::Assistant
        } else {
            Role::User
        };
    }
    violations
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Roles by first letter; `f` is function.
    fn roles(letters: &str) -> Vec<Role> {
        let role = |letter| match letter {
            's' => Role::System,
            'u' => Role::User,
            'a' => Role::Assistant,
            't' => Role::Tool,
            _ => Role::Function,
        };
        letters.chars().map(role).collect()
    }

    fn assert_refused(letters: &str, lines: &[&str]) {
        let error = check_roles(&roles(letters)).unwrap_err();
        let messages: Vec<_> = error.violations.iter().map(ToString::to_string).collect();
        assert_eq!(messages, lines, "{letters}");
    }

    #[test]
    fn a_dialogue_that_ends_with_the_user_is_accepted() {
        for letters in ["u", "su", "uau", "suauau"] {
            assert_eq!(check_roles(&roles(letters)), Ok(()), "{letters}");
        }
    }

    #[test]
    fn an_empty_array_is_the_only_reported_problem() {
        assert_refused("", &["Messages array must not be empty."]);
    }

    #[test]
    fn a_late_system_message_is_named() {
        assert_refused(
            "usau",
            &["Message at index 1: role 'system' is only allowed at index 0."],
        );
    }

    #[test]
    fn tool_and_function_messages_are_not_allowed() {
        assert_refused(
            "uatfu",
            &[
                "Message at index 2: role 'tool' is not allowed in a request.",
                "Message at index 3: role 'function' is not allowed in a request.",
            ],
        );
    }

    #[test]
    fn misplaced_roles_hide_the_alternation() {
        assert_refused(
            "aasat",
            &[
                "Message at index 2: role 'system' is only allowed at index 0.",
                "Message at index 4: role 'tool' is not allowed in a request.",
            ],
        );
    }

    #[test]
    fn a_user_message_is_required() {
        assert_refused(
            "s",
            &["Messages array must contain at least one user message."],
        );
        assert_refused(
            "a",
            &[
                "Messages array must contain at least one user message.",
                "Message at index 0: expected role 'user', got 'assistant'.",
            ],
        );
    }

    #[test]
    fn the_expected_role_follows_from_the_actual_role() {
        assert_refused(
            "uuau",
            &["Message at index 1: expected role 'assistant', got 'user'."],
        );
        assert_refused(
            "saau",
            &[
                "Message at index 1: expected role 'user', got 'assistant'.",
                "Message at index 2: expected role 'user', got 'assistant'.",
            ],
        );
    }

    #[test]
    fn the_last_message_must_be_of_the_user() {
        assert_refused(
            "suaa",
            &[
                "Message at index 3: expected role 'user', got 'assistant'.",
                "Messages array must end with a user message, but index 3 has role 'assistant'.",
            ],
        );
    }

    #[test]
    fn the_two_texts_of_the_error_body() {
        let error = check_roles(&roles("uua")).unwrap_err();
        assert_eq!(error.to_string(), "Invalid messages array");
        assert_eq!(
            error.display_message(),
            "Invalid messages array:\n\
             - Message at index 1: expected role 'assistant', got 'user'.\n\
             - Messages array must end with a user message, but index 2 has role 'assistant'."
        );
    }

    proptest! {
        #[test]
        fn exactly_the_grammar_is_accepted(letters in "[suatf]{0,7}") {
            let dialogue = letters.strip_prefix('s').unwrap_or(&letters);
            let fits = dialogue.len() % 2 == 1
                && dialogue.chars().enumerate().all(|(at, letter)| letter == ['u', 'a'][at % 2]);
            prop_assert_eq!(check_roles(&roles(&letters)).is_ok(), fits);
        }
    }
}
