//! Fields of forms and queries, and the check that a form belongs to its session.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::Response;
use dray_http_server::body_failure_status;
use dray_types::{Fault, FaultCode, OperationId};
use http::{StatusCode, Uri};
use maud::{Markup, html};
use url::form_urlencoded;

use crate::page;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::shown;

/// Name of the field with the token of the session.
pub(crate) const TOKEN_FIELD: &str = "csrf";
/// Name of the field with the operation of an action that must not happen twice.
const OPERATION_FIELD: &str = "operation";
/// Largest form without a file, in bytes.
const MAX_FORM_BYTES: usize = 64 * 1024;

/// A form without a file that belongs to its session. Handlers get the fields of a form only through an extractor, so
/// none of them can forget a check.
pub(crate) struct CheckedForm {
    pub(crate) session: ConsoleSession,
    pub(crate) fields: FormFields,
}

impl FromRequest<ConsoleState> for CheckedForm {
    type Rejection = Response;

    async fn from_request(request: Request, _: &ConsoleState) -> Result<Self, Response> {
        let session = session_of(&request).ok_or_else(forged_form)?;
        let fields = FormFields::of_body(request.into_body(), &session).await?;
        Ok(Self { session, fields })
    }
}

/// The form of an action: a [`CheckedForm`] of a login that may act.
pub(crate) struct ActionForm {
    pub(crate) session: ConsoleSession,
    pub(crate) fields: FormFields,
}

impl FromRequest<ConsoleState> for ActionForm {
    type Rejection = Response;

    async fn from_request(request: Request, state: &ConsoleState) -> Result<Self, Response> {
        // The session is checked before the form is read: no field is read of a form that a login may not send.
        let session = session_of(&request).ok_or_else(forged_form)?;
        if !session.can_act() {
            return Err(acting_refused());
        }
        let CheckedForm { session, fields } = CheckedForm::from_request(request, state).await?;
        Ok(Self { session, fields })
    }
}

/// The session that the check of the request found; `None` for paths without a login, which have no forms.
pub(crate) fn session_of(request: &Request) -> Option<ConsoleSession> {
    request.extensions().get::<ConsoleSession>().cloned()
}

/// The hidden field with a new operation. The id is chosen with the page, so a form that is sent twice has one effect.
pub(crate) fn operation_field() -> Markup {
    html! { input type="hidden" name=(OPERATION_FIELD) value=(OperationId::mint()); }
}

/// Fields by name, in their order; a name may occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Fields that were read one by one.
    pub(crate) const fn of_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// The query of a request.
    pub(crate) fn of_query(uri: &Uri) -> Self {
        Self::parse(uri.query().unwrap_or_default().as_bytes())
    }

    /// The body of a form of this session. A form without the token of this session is refused.
    async fn of_body(body: Body, session: &ConsoleSession) -> Result<Self, Response> {
        let bytes = axum::body::to_bytes(body, MAX_FORM_BYTES)
            .await
            .map_err(|error| {
                page::refusal(
                    body_failure_status(&error),
                    "Not accepted",
                    "The form is too large or was cut off.",
                )
            })?;
        let fields = Self::parse(&bytes);
        // `SameSite` and `Origin` stop other sites already; this stops other ports of the same host too.
        if session.has_token(fields.get(TOKEN_FIELD)) {
            Ok(fields)
        } else {
            Err(forged_form())
        }
    }

    /// The first field of this name, without surrounding blanks; empty without one.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.get_exact(name).trim()
    }

    /// The first field of this name with its blanks; empty without one.
    pub(crate) fn get_exact(&self, name: &str) -> &str {
        let first = self.0.iter().find(|(field, _)| field == name);
        first.map_or("", |(_, value)| value.as_str())
    }

    /// The operation of a form with an [`operation_field`].
    pub(crate) fn operation(&self) -> Result<OperationId, Fault> {
        let text = self.get(OPERATION_FIELD);
        OperationId::new(text).map_err(|_| unknown_value(OPERATION_FIELD, text))
    }

    /// The value of a field as another type; `None` without one.
    pub(crate) fn parse_value<T: FromStr>(&self, name: &str) -> Result<Option<T>, Fault> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(unknown_value(name, text)),
            },
        }
    }

    /// Whether a box of this name is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        !self.get(name).is_empty()
    }

    /// Every field of this name.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(field, _)| field == name)
            .map(|(_, value)| value.trim())
    }
}

/// The fault for a value that a field does not have.
pub(crate) fn unknown_value(name: &str, value: &str) -> Fault {
    let sentence = format!("The field `{name}` has no value `{}`.", shown(value));
    Fault::new(FaultCode::InvalidArgument, sentence).detail("unknown_value")
}

/// The response to a form that does not carry the token of its session.
pub(crate) fn forged_form() -> Response {
    page::refusal(
        StatusCode::FORBIDDEN,
        "Not accepted",
        "The form does not belong to this login. Open the page again and repeat what you did.",
    )
}

/// The response to an action of a read-only login.
pub(crate) fn acting_refused() -> Response {
    page::refusal(
        StatusCode::FORBIDDEN,
        "Not allowed",
        "This login may look and not act. Log in with a link for acting: dray console link --role act",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionStore;
    use crate::settings::ConsoleRole;

    #[tokio::test]
    async fn a_form_needs_the_token_of_its_session() {
        let (_, session) = SessionStore::default().begin(ConsoleRole::Act, None, 0);
        let form = format!("csrf={}&id=1&id=+2+&dry=on", session.form_token());
        let fields = FormFields::of_body(Body::from(form), &session)
            .await
            .unwrap();
        assert_eq!(fields.all("id").collect::<Vec<_>>(), ["1", "2"]);
        assert!(fields.is_checked("dry") && !fields.is_checked("wet"));
        for forged in ["id=1", "csrf=&id=1", "csrf=x&id=1"] {
            let refused = FormFields::of_body(Body::from(forged), &session).await;
            assert_eq!(refused.unwrap_err().status(), 403, "{forged}");
        }
        let huge = Body::from(vec![b'a'; MAX_FORM_BYTES + 1]);
        let refused = FormFields::of_body(huge, &session).await;
        assert_eq!(refused.unwrap_err().status(), 413);
    }
}
