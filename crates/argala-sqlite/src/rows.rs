//! Statements over many rows at once, so that an operation takes as many statements for a
//! thousand records as for one.
//!
//! Sets of one column are bound as an array (`rarray`). What has several columns, or bytes, is
//! bound as the rows of a `VALUES`, which this module writes.

use std::fmt::Write as _;

use rusqlite::{Connection, Row, Statement, ToSql, types::ToSqlOutput, types::ValueRef};

/// SQLite's own ceiling, as it is built here.
const MAX_PARAMETERS: usize = 32_766;
/// Statements over more rows than this are rare and large: they are not kept.
const MAX_KEPT_ROWS: usize = 1_024;

/// Runs `sql` over `rows`, for what it writes.
///
/// In `sql`, `{rows}` stands for a table of the rows with the columns `column1`, `column2` and so
/// on, of which the first is never null; `shared` are the parameters `?1`, `?2` and so on. The
/// table may end in rows of nulls, so that one statement serves many numbers of rows: `sql` says
/// `WHERE column1 IS NOT NULL`.
///
/// There is one statement for a few thousand rows.
pub(crate) fn execute<R, const W: usize>(
    tx: &Connection,
    sql: &str,
    shared: &[&dyn ToSql],
    rows: &[R],
    columns: impl Fn(&R) -> [ValueRef<'_>; W],
) -> rusqlite::Result<()> {
    each_part(tx, sql, shared, rows, columns, |statement| {
        statement.raw_execute().map(drop)
    })
}

/// Runs `sql` over `rows` as [`execute`] does, for the rows that it yields.
pub(crate) fn query<R, const W: usize>(
    tx: &Connection,
    sql: &str,
    shared: &[&dyn ToSql],
    rows: &[R],
    columns: impl Fn(&R) -> [ValueRef<'_>; W],
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    each_part(tx, sql, shared, rows, columns, |statement| {
        let mut yielded = statement.raw_query();
        while let Some(row) = yielded.next()? {
            take(row)?;
        }
        Ok(())
    })
}

fn each_part<R, const W: usize>(
    tx: &Connection,
    sql: &str,
    shared: &[&dyn ToSql],
    rows: &[R],
    columns: impl Fn(&R) -> [ValueRef<'_>; W],
    mut run: impl FnMut(&mut Statement<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    for part in rows.chunks(most_rows(shared.len(), W)) {
        // Powers of two: a dozen statements to keep, whatever numbers of rows come.
        let room = part.len().next_power_of_two();
        let sql = sql.replace("{rows}", &table(shared.len(), W, room));
        if room <= MAX_KEPT_ROWS {
            let mut statement = tx.prepare_cached(&sql)?;
            bind(&mut statement, shared, part, &columns)?;
            run(&mut statement)?;
        } else {
            let mut statement = tx.prepare(&sql)?;
            bind(&mut statement, shared, part, &columns)?;
            run(&mut statement)?;
        }
    }
    Ok(())
}

/// The greatest power of two of rows for which there are parameters.
fn most_rows(shared: usize, width: usize) -> usize {
    1 << ((MAX_PARAMETERS - shared) / width).ilog2()
}

fn table(shared: usize, width: usize, rows: usize) -> String {
    let mut table = String::from("(VALUES ");
    for at in 0..rows * width {
        let before = match (at, at % width) {
            (0, _) => "(",
            (_, 0) => "),(",
            _ => ",",
        };
        write!(table, "{before}?{}", shared + at + 1).expect("a string takes what is written");
    }
    table.push_str("))");
    table
}

fn bind<R, const W: usize>(
    statement: &mut Statement<'_>,
    shared: &[&dyn ToSql],
    rows: &[R],
    columns: impl Fn(&R) -> [ValueRef<'_>; W],
) -> rusqlite::Result<()> {
    for (at, value) in shared.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, value)?;
    }
    let mut at = shared.len();
    for row in rows {
        for value in columns(row) {
            at += 1;
            statement.raw_bind_parameter(at, ToSqlOutput::Borrowed(value))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_spelled_with_the_parameters_after_the_shared_ones() {
        assert_eq!(table(2, 2, 2), "(VALUES (?3,?4),(?5,?6))");
        assert_eq!(table(0, 1, 1), "(VALUES (?1))");
    }

    fn columns(row: &i64) -> [ValueRef<'_>; 2] {
        [ValueRef::Integer(*row), ValueRef::Blob(b"")]
    }

    #[test]
    fn any_number_of_rows_arrives() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (a INTEGER, b BLOB, c TEXT)")
            .unwrap();
        for count in [0, 1, 2, 3, 5, 1_000, 1_024, 1_025, 9_000] {
            let rows: Vec<_> = (0..count).collect();
            let shared = "same";
            execute(
                &connection,
                "INSERT INTO t SELECT column1, column2, ?1 FROM {rows} WHERE column1 IS NOT NULL",
                &[&shared],
                &rows,
                columns,
            )
            .unwrap();
            let mut found = Vec::new();
            query(
                &connection,
                "SELECT t.a FROM {rows} v CROSS JOIN t ON t.a = v.column1 AND t.b = v.column2
                 WHERE v.column1 IS NOT NULL AND t.c = ?1",
                &[&shared],
                &rows,
                columns,
                |row| {
                    found.push(row.get::<_, i64>(0)?);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(found, rows);
            connection.execute("DELETE FROM t", []).unwrap();
        }
    }
}
