//! Pages of lists, as `OpenAI`'s API has them: `limit`, `order` and `after`.

use axum::http::Uri;
use dray_agent::failure::RequestFailure;
use serde_json::{Value, json};

/// The query of a list. Members of newer APIs are left out.
#[derive(Clone, Debug, Default)]
pub(super) struct PageQuery {
    limit: Option<String>,
    order: Option<String>,
    after: Option<String>,
    /// Purpose of the files to list; used only by the list of files.
    pub(super) purpose: Option<String>,
}

impl PageQuery {
    /// The query of a request.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut query = Self::default();
        let text = uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            let member = match &*name {
                "limit" => &mut query.limit,
                "order" => &mut query.order,
                "after" => &mut query.after,
                "purpose" => &mut query.purpose,
                _ => continue,
            };
            *member = Some(value.into_owned());
        }
        query
    }
}

/// The page of a list whose objects are in ascending order. `limits` are the default and the largest number of objects
/// on a page.
///
/// # Errors
///
/// 400 for a limit or an order that does not exist, and for an `after` that is not in the list.
pub(super) fn page_of(
    mut objects: Vec<Value>,
    query: &PageQuery,
    limits: (usize, usize),
) -> Result<Value, RequestFailure> {
    let (default_limit, max_limit) = limits;
    let limit = match &query.limit {
        None => default_limit,
        Some(text) => match text.parse() {
            Ok(limit) if (1..=max_limit).contains(&limit) => limit,
            _ => {
                let message = format!("It must be a whole number from 1 to {max_limit}.");
                return Err(wrong_query("limit", message));
            }
        },
    };
    match query.order.as_deref() {
        // The newest come first unless the request asks for another order.
        None | Some("desc") => objects.reverse(),
        Some("asc") => {}
        Some(_) => return Err(wrong_query("order", "It must be 'asc' or 'desc'.")),
    }
    if let Some(after) = &query.after {
        let position = objects
            .iter()
            .position(|object| object.get("id").and_then(Value::as_str) == Some(after));
        let position =
            position.ok_or_else(|| wrong_query("after", "The list has no object of this id."))?;
        objects.drain(..=position);
    }
    let has_more = objects.len() > limit;
    objects.truncate(limit);
    let id_of = |object: Option<&Value>| object.and_then(|object| object.get("id")).cloned();
    Ok(json!({
        "object": "list",
        "first_id": id_of(objects.first()),
        "last_id": id_of(objects.last()),
        "data": objects,
        "has_more": has_more,
    }))
}

fn wrong_query(param: &str, message: impl Into<String>) -> RequestFailure {
    RequestFailure::of_parameter(param, "invalid_value", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(limit: Option<&str>, order: Option<&str>, after: Option<&str>) -> PageQuery {
        PageQuery {
            limit: limit.map(str::to_owned),
            order: order.map(str::to_owned),
            after: after.map(str::to_owned),
            purpose: None,
        }
    }

    fn ids(query: &PageQuery) -> Result<(Vec<String>, bool), String> {
        let objects = ["a", "b", "c"].map(|id| json!({ "id": id })).to_vec();
        let page = page_of(objects, query, (2, 3));
        let page = page.map_err(|failure| failure.param.unwrap().into_string())?;
        let ids = page["data"].as_array().unwrap().iter();
        let ids = ids.map(|object| object["id"].as_str().unwrap().to_owned());
        Ok((ids.collect(), page["has_more"].as_bool().unwrap()))
    }

    #[test]
    fn pages_follow_each_other_in_both_orders() {
        let ids_of = |query: &PageQuery| ids(query).unwrap();
        let owned = |ids: &[&str]| ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>();
        assert_eq!(ids_of(&page(None, None, None)), (owned(&["c", "b"]), true));
        let rest = page(None, None, Some("b"));
        assert_eq!(ids_of(&rest), (owned(&["a"]), false));
        let all = page(Some("3"), Some("asc"), None);
        assert_eq!(ids_of(&all), (owned(&["a", "b", "c"]), false));
    }

    #[test]
    fn a_query_is_decoded_and_unknown_parameters_are_ignored() {
        let query = PageQuery::of(&"/x?limit=2&purpose=user%5Fdata&include=y".parse().unwrap());
        assert_eq!(query.limit.as_deref(), Some("2"));
        assert_eq!(query.purpose.as_deref(), Some("user_data"));
        assert_eq!((query.order, query.after), (None, None));
    }

    #[test]
    fn an_invalid_parameter_is_refused_by_its_name() {
        for (query, param) in [
            (page(Some("0"), None, None), "limit"),
            (page(Some("4"), None, None), "limit"),
            (page(Some("x"), None, None), "limit"),
            (page(None, Some("up"), None), "order"),
            (page(None, None, Some("z")), "after"),
        ] {
            assert_eq!(ids(&query), Err(param.to_owned()));
        }
    }
}
