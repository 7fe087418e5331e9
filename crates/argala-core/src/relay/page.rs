//! Pages of lists.

use argala_wire::limits::Pages;

use crate::Rejection;

/// Which page of a list is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageQuery {
    /// Where the last page ended; an empty one is malformed.
    pub cursor: Option<String>,
    /// How many items at the most; 1 to 1,000.
    pub limit: Option<u64>,
}

/// The limit in force for a list that has `default` where none is named.
pub(super) fn limit(asked: Option<u64>, default: u64, pages: &Pages) -> Result<usize, Rejection> {
    let limit = asked.unwrap_or(default);
    if limit == 0 || limit > pages.max_limit {
        return Err(Rejection::invalid(
            "limit",
            format!("limit is 1 to {}", pages.max_limit),
        ));
    }
    usize::try_from(limit).map_err(|_| Rejection::invalid("limit", "limit is too large"))
}

/// Cuts a list that was read one item too long, so that it is known whether there is more.
pub(super) fn cut<T>(items: &mut Vec<T>, limit: usize) -> bool {
    let more = items.len() > limit;
    items.truncate(limit);
    more
}
