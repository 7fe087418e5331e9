//! Between columns and the protocol's types.

use std::{error::Error, str::FromStr};

use argala_core::ports::ObjectKey;
use argala_wire::{Sealed, Timestamp, devices::DeviceRef};
use tokio_postgres::{
    Row,
    types::{FromSql, IsNull, ToSql, Type, accepts, private::BytesMut, to_sql_checked},
};

use crate::failure::{Failure, Work};

const CORRUPT: Failure = Failure::Corrupt("a column holds what nothing of ours writes");

/// A value as the database holds it. The error's own text is not passed on: nothing of what is
/// stored belongs in a log.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Work<T> {
    row.try_get(at).map_err(|_| CORRUPT)
}

/// An id, or another text that only a `T` can have left there.
pub(crate) fn text<T: FromStr>(row: &Row, at: usize) -> Work<T> {
    get::<&str>(row, at)?.parse().map_err(|_| CORRUPT)
}

/// The name of an object.
pub(crate) fn object(row: &Row, at: usize) -> Work<ObjectKey> {
    ObjectKey::parse(get(row, at)?).ok_or(CORRUPT)
}

/// Which version of a row this is: its `xmin`, the number of the transaction that wrote it.
///
/// Whatever changes a row gives it another, whoever writes and whether they know or not. The numbers
/// come round after four billion transactions, so that none is good for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u32);

impl<'a> FromSql<'a> for Version {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }

    accepts!(XID);
}

impl ToSql for Version {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(XID);
    to_sql_checked!();
}

/// A number of the protocol, which is never negative.
pub(crate) fn number(row: &Row, at: usize) -> Work<u64> {
    u64::try_from(get::<i64>(row, at)?).map_err(|_| CORRUPT)
}

/// Numbers of the protocol.
pub(crate) fn numbers(row: &Row, at: usize) -> Work<Vec<u64>> {
    get::<Vec<i64>>(row, at)?
        .into_iter()
        .map(|number| u64::try_from(number).map_err(|_| CORRUPT))
        .collect()
}

/// Sealed bytes.
pub(crate) fn sealed(row: &Row, at: usize) -> Work<Sealed> {
    get::<&[u8]>(row, at).map(|bytes| Sealed(bytes.to_vec()))
}

/// Sealed bytes, where there are any.
pub(crate) fn maybe_sealed(row: &Row, at: usize) -> Work<Option<Sealed>> {
    let bytes: Option<&[u8]> = get(row, at)?;
    Ok(bytes.map(|bytes| Sealed(bytes.to_vec())))
}

/// A hash.
pub(crate) fn hash(row: &Row, at: usize) -> Work<[u8; 32]> {
    get::<&[u8]>(row, at)?.try_into().map_err(|_| CORRUPT)
}

/// A point in time.
pub(crate) fn time(row: &Row, at: usize) -> Work<Timestamp> {
    get(row, at).map(Timestamp::from_millis)
}

/// A point in time, where there is one.
pub(crate) fn maybe_time(row: &Row, at: usize) -> Work<Option<Timestamp>> {
    let millis: Option<i64> = get(row, at)?;
    Ok(millis.map(Timestamp::from_millis))
}

/// A device, its member in the column before its id.
pub(crate) fn device_ref(row: &Row, at: usize) -> Work<DeviceRef> {
    Ok(DeviceRef {
        member_id: text(row, at)?,
        device_id: text(row, at + 1)?,
    })
}

/// The first of `rows`, as `read` tells it.
pub(crate) fn first<T>(rows: &[Row], read: impl FnOnce(&Row) -> Work<T>) -> Work<Option<T>> {
    rows.first().map(read).transpose()
}

/// All of `rows`, as `read` tells them.
pub(crate) fn all<T, C: FromIterator<T>>(
    rows: &[Row],
    read: impl FnMut(&Row) -> Work<T>,
) -> Work<C> {
    rows.iter().map(read).collect()
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
