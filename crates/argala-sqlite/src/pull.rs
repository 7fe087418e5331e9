//! Reading a page of records.

use argala_core::{
    ports::store::{Pull, Pulled},
    rules::pull::{self, Offer, PageBuilder, Plan},
};
use argala_wire::records::PulledRecord;
use rusqlite::{Connection, params};

use crate::{
    columns::{device_ref, int, number, numbers, sealed, text, time},
    failure::Work,
    graphs, keys,
};

/// One page of records, of one moment.
pub(crate) fn pull(connection: &Connection, request: &Pull) -> Work<Pulled> {
    let graph = graphs::find(connection, &request.key)?;
    let (held, span) = match &graph {
        None => (std::collections::BTreeSet::new(), None),
        Some(graph) => {
            let held = keys::held(connection, graph.id, &request.device)?;
            let span = match request.epoch {
                None => None,
                Some(epoch) => keys::span(connection, graph.id, epoch)?,
            };
            (held, span)
        }
    };
    let plan = pull::plan(request, graph.as_ref().map(|it| &it.graph), &held, span)?;
    let mut page = match plan {
        Plan::Unchanged { tag } => return Ok(Pulled::Unchanged { tag }),
        Plan::Read(page) => page,
    };
    if let Some(graph) = graph
        && page.after() < page.until()
    {
        let taken = choose(connection, graph.id, &mut page)?;
        read(connection, taken, &mut page)?;
    }
    Ok(Pulled::Page(page.finish()))
}

/// Offers row after row to the page, until it is full; the rows that it takes.
///
/// This reads an index alone, and no further than the page reaches: what is passed over costs
/// nothing of its content.
fn choose(
    connection: &Connection,
    graph: i64,
    page: &mut PageBuilder,
) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, seq, epoch, bytes FROM records
         WHERE graph = ?1 AND seq > ?2 AND seq <= ?3
         ORDER BY seq",
    )?;
    let mut rows = statement.query(params![graph, int(page.after()), int(page.until())])?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next()? {
        match page.offer(number(row, 1)?, number(row, 2)?, number(row, 3)?) {
            Offer::Take => taken.push(row.get(0)?),
            Offer::Pass => {}
            Offer::Full => break,
        }
    }
    Ok(taken)
}

fn read(connection: &Connection, taken: Vec<i64>, page: &mut PageBuilder) -> rusqlite::Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    // The array is in the order of the page, and the outer loop keeps it.
    let mut statement = connection.prepare_cached(
        "SELECT r.record, r.seq, r.epoch, r.by_member, r.by_device, r.at, r.deleted, r.sig,
                r.ciphertext
         FROM rarray(?1) v CROSS JOIN records r ON r.id = v.value",
    )?;
    let mut rows = statement.query([numbers(taken)])?;
    while let Some(row) = rows.next()? {
        let sig: Option<Vec<u8>> = row.get(7)?;
        page.add(PulledRecord {
            id: text(row, 0)?,
            seq: number(row, 1)?,
            epoch: number(row, 2)?,
            by: device_ref(row, 3)?,
            at: time(row, 5)?,
            deleted: row.get(6)?,
            sig: sig.map(Into::into),
            ciphertext: sealed(row, 8)?,
        });
    }
    Ok(())
}
