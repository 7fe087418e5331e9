//! Query strings, read strictly: an unknown or repeated parameter is refused on every route, so
//! that an old relay says plainly that it does not understand a new client.

use argala_core::PageQuery;
use argala_wire::codec;
use axum::extract::FromRequestParts;
use http::request::Parts;
use utoipa::IntoParams;

use super::percent_decode;
use crate::{Api, error::ApiError};

/// What a route takes in its query string.
pub(crate) trait QueryParams: Sized {
    /// Takes what the route knows out of `values`.
    fn read(values: &mut Values) -> Result<Self, ApiError>;
}

/// The query string, as `T` reads it, with nothing left over.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: QueryParams> FromRequestParts<Api> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, ApiError> {
        let mut values = Values::parse(parts.uri.query().unwrap_or_default())?;
        let params = T::read(&mut values)?;
        values.end()?;
        Ok(Self(params))
    }
}

/// The parameters that nobody has asked for yet.
pub(crate) struct Values(Vec<(String, String)>);

impl Values {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut values: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name =
                decode(name).ok_or_else(|| ApiError::malformed("the query string is malformed"))?;
            if values.iter().any(|(given, _)| *given == name) {
                return Err(at_fault(&name, "the parameter is given twice"));
            }
            let value =
                decode(value).ok_or_else(|| at_fault(&name, "the parameter is malformed"))?;
            values.push((name, value));
        }
        Ok(Self(values))
    }

    /// The parameter `name`, where it was given.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(given, _)| given == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The parameter `name` as a number: decimal digits, no sign, no zeros before it.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, ApiError> {
        self.take(name)
            .map(|text| {
                decimal(&text)
                    .ok_or_else(|| ApiError::invalid(name, format!("{name} is a whole number")))
            })
            .transpose()
    }

    fn end(self) -> Result<(), ApiError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(at_fault(name, "the parameter is unknown")),
        }
    }
}

/// One part of a query string, in which a plus sign is a space.
fn decode(text: &str) -> Option<String> {
    percent_decode(&text.replace('+', " "))
}

/// A number as its shortest decimal text.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let shortest = text == "0" || !text.starts_with('0');
    if digits && shortest {
        text.parse().ok()
    } else {
        None
    }
}

/// A fault of the parameter `name`, which is repeated only where it could be ours.
fn at_fault(name: &str, detail: &'static str) -> ApiError {
    if codec::speakable(name) {
        ApiError::invalid(name, detail)
    } else {
        ApiError::malformed("a parameter of the query string is unknown or malformed")
    }
}

/// A route that takes nothing.
impl QueryParams for () {
    fn read(_values: &mut Values) -> Result<Self, ApiError> {
        Ok(())
    }
}

/// Which page of a list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// Where the last page ended: its `cursor`.
    pub(crate) cursor: Option<String>,
    /// How many items at the most.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u64>,
}

impl QueryParams for Page {
    fn read(values: &mut Values) -> Result<Self, ApiError> {
        Ok(Self {
            cursor: values.take("cursor"),
            limit: values.number("limit")?,
        })
    }
}

impl From<Page> for PageQuery {
    fn from(page: Page) -> Self {
        Self {
            cursor: page.cursor,
            limit: page.limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use argala_core::Rejection;
    use proptest::prelude::*;

    use super::*;

    fn read<T: QueryParams>(query: &str) -> Result<T, Option<String>> {
        let params = Values::parse(query).and_then(|mut values| {
            let params = T::read(&mut values)?;
            values.end()?;
            Ok(params)
        });
        params.map_err(|error| match error {
            ApiError::Rejected(Rejection::InvalidRequest { field, .. }) => field,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn each_parameter_is_known_and_given_once() {
        let page: Page = read("limit=20&cursor=a%2Db").expect("well formed");
        assert_eq!(
            (page.cursor.as_deref(), page.limit),
            (Some("a-b"), Some(20))
        );
        let page: Page = read("cursor").expect("an empty one is told by the relay");
        assert_eq!(page.cursor.as_deref(), Some(""));
        for (query, field) in [
            ("limit=1&limit=1", Some("limit")),
            ("limit=1&lim%69t=1", Some("limit")),
            ("limit=1&color=2", Some("color")),
            ("limit=%zz", Some("limit")),
            ("Dear%20Alex=1", None),
            ("%ff=1", None),
        ] {
            assert_eq!(
                read::<Page>(query).expect_err(query).as_deref(),
                field,
                "{query}"
            );
        }
        assert!(read::<()>("").is_ok());
        assert!(read::<()>("&").is_ok());
        assert_eq!(read::<()>("cursor=a"), Err(Some("cursor".to_owned())));
    }

    #[test]
    fn numbers_are_decimal_and_nothing_else() {
        for text in [
            "",
            "+1",
            "-1",
            " 1",
            "1 ",
            "1.0",
            "0x1",
            "01",
            "1e3",
            "18446744073709551616",
        ] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
        assert_eq!(decimal("0"), Some(0));
        assert_eq!(decimal("18446744073709551615"), Some(u64::MAX));
    }

    proptest! {
        #[test]
        fn every_number_is_read_as_it_is_written(number: u64) {
            prop_assert_eq!(decimal(&number.to_string()), Some(number));
        }

        #[test]
        fn garbage_never_panics(query: String) {
            let _ = read::<Page>(&query);
        }
    }
}
