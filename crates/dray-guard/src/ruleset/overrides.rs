//! Methods that a request names in addition to its request line, for servers that obey them. They are in fields, in the
//! query, and in forms ([`body`]).
//!
//! | name | read by |
//! |---|---|
//! | the fields | many frameworks and gateways, for `POST` or for every method |
//! | `_method` in the query | WordPress (also for `GET`), Symfony and Laravel, Spring, Jersey, `method-override` of Express |
//! | the names of the fields in the query | ASP.NET MVC, Play 1 |

pub mod body;

/// Fields by which a request names another method than its request line.
pub const METHOD_OVERRIDE_FIELDS: [&str; 3] = [
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
];

/// The parameter of a query by which a request names another method.
const METHOD_PARAMETER: &str = "_method";

/// The methods that parameters of a query name, in capitals, as most servers read them.
pub fn methods_in_query(query: &str) -> impl Iterator<Item = String> {
    // Some servers separate parameters by `;` (HTML 4.01, appendix B.2.2).
    let parts = query.split(['&', ';']);
    let parameters = parts.flat_map(|part| url::form_urlencoded::parse(part.as_bytes()));
    parameters
        .filter(|(name, _)| names_method(name))
        .map(|(_, value)| value.trim().to_ascii_uppercase())
}

/// Whether a server may read a parameter with this name as the method.
fn names_method(name: &str) -> bool {
    // PHP ends a name at NUL, ignores blanks before it, and reads blanks and dots as `_`; a name with `[` is a list.
    let name = name.split('\0').next().unwrap_or_default();
    let name = name.trim_start_matches(' ');
    let name = name.replacen('[', "_", usize::from(name.starts_with('[')));
    let name = name.split('[').next().unwrap_or_default();
    let name = name.to_lowercase().replace([' ', '.'], "_");
    name == METHOD_PARAMETER || METHOD_OVERRIDE_FIELDS.contains(&name.replace('_', "-").as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(query: &str) -> Vec<String> {
        methods_in_query(query).collect()
    }

    #[test]
    fn every_spelling_that_a_server_reads_as_the_method_is_found() {
        for query in [
            "_method=DELETE",
            "a=1&_method=delete",
            "a=1;_method=%20Delete",
            "%5Fmethod=DELETE",
            "_m%65thod=DE%4cETE",
            "_METHOD=DELETE",
            "+_method=DELETE",
            ".method=DELETE",
            "%5bmethod=DELETE",
            "_method[]=DELETE",
            "_method%00x=DELETE",
            "X-HTTP-Method-Override=DELETE",
            "x_http_method=DELETE",
            "x.method-override=DELETE",
        ] {
            assert_eq!(methods(query), ["DELETE"], "{query}");
        }
        assert_eq!(methods("_method=GET&_method=PUT"), ["GET", "PUT"]);
        assert_eq!(methods("_method"), [""]);
    }

    #[test]
    fn other_parameters_name_no_method() {
        for query in [
            "",
            "&&;",
            "method=DELETE",
            "a=_method=DELETE",
            "my_method=DELETE",
            "__method=DELETE",
            "_methods=DELETE",
            "é_method=DELETE",
            "%",
        ] {
            assert_eq!(methods(query), [""; 0], "{query}");
        }
    }
}
