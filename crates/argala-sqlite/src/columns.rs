//! Between columns and the protocol's types.

use std::{rc::Rc, str::FromStr};

use argala_core::ports::ObjectKey;
use argala_wire::{Sealed, Timestamp, devices::DeviceRef};
use rusqlite::{
    Row,
    types::{FromSql, FromSqlError, FromSqlResult, Value, ValueRef},
    vtab::array::Array,
};

/// A text that is a `T`.
struct Parsed<T>(T);

impl<T: FromStr> FromSql for Parsed<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text = value.as_str()?;
        // The type's own error is not passed on: nothing of what is stored belongs in a log.
        text.parse()
            .map(Self)
            .map_err(|_| FromSqlError::InvalidType)
    }
}

/// An id, or another text that only a `T` can have left there.
pub(crate) fn text<T: FromStr>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    row.get::<_, Parsed<T>>(at).map(|parsed| parsed.0)
}

/// The name of an object.
pub(crate) fn object(row: &Row<'_>, at: usize) -> rusqlite::Result<ObjectKey> {
    struct Name(ObjectKey);
    impl FromSql for Name {
        fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
            ObjectKey::parse(value.as_str()?)
                .map(Self)
                .ok_or(FromSqlError::InvalidType)
        }
    }
    row.get::<_, Name>(at).map(|name| name.0)
}

/// A number of the protocol, which is never negative.
pub(crate) fn number(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(at)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(at, number))
}

/// Sealed bytes.
pub(crate) fn sealed(row: &Row<'_>, at: usize) -> rusqlite::Result<Sealed> {
    row.get(at).map(Sealed)
}

/// A point in time.
pub(crate) fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    row.get(at).map(Timestamp::from_millis)
}

/// A point in time, where there is one.
pub(crate) fn maybe_time(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Timestamp>> {
    let millis: Option<i64> = row.get(at)?;
    Ok(millis.map(Timestamp::from_millis))
}

/// A device, its member in the column before its id.
pub(crate) fn device_ref(row: &Row<'_>, at: usize) -> rusqlite::Result<DeviceRef> {
    Ok(DeviceRef {
        member_id: text(row, at)?,
        device_id: text(row, at + 1)?,
    })
}

/// `number` as the database holds it.
///
/// What a caller sends may be any number; the greatest that a row can have stands for all beyond
/// it, which no row has. It never wraps.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `count` as a `LIMIT`.
pub(crate) fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Texts to bind where the statement says `rarray(?)`.
pub(crate) fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Array {
    let values = texts.into_iter().map(|text| Value::from(text.to_owned()));
    Rc::new(values.collect())
}

/// Numbers to bind where the statement says `rarray(?)`.
pub(crate) fn numbers(numbers: impl IntoIterator<Item = i64>) -> Array {
    Rc::new(numbers.into_iter().map(Value::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_wraps() {
        assert_eq!(int(u64::MAX), i64::MAX);
        assert_eq!(int(1 << 63), i64::MAX);
        assert_eq!(int(7), 7);
        assert_eq!(limit(usize::MAX), i64::MAX);
    }
}
