//! An object's bytes on their way out.

use std::{io, ops::Range, time::Duration};

use argala_core::{StoreError, StoreResult, ports::ByteStream};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use futures_util::stream;
use tokio::time::timeout;

/// The answer's bytes, which end with an error where they are not as many as they should be, or
/// where the next ones take longer than `stall`.
///
/// # Errors
/// Where the answer's head already tells that it is not what was asked for.
pub(super) fn checked(
    answer: GetObjectOutput,
    range: Option<Range<u64>>,
    stall: Duration,
) -> StoreResult<ByteStream> {
    let length = answer.content_length().and_then(|n| u64::try_from(n).ok());
    let Some(length) = length else {
        return Err(StoreError::unavailable(
            "read an object",
            "S3 did not tell how many bytes it sends",
        ));
    };
    if let Some(range) = range {
        // One that does not know ranges sends all, from the first byte on.
        let begins = format!("bytes {}-", range.start);
        let told = answer.content_range().unwrap_or_default();
        if length != range.end - range.start || !told.starts_with(&begins) {
            return Err(StoreError::unavailable(
                "read an object",
                "S3 sends other bytes than those of the range",
            ));
        }
    }
    let state = (answer.body, length);
    Ok(Box::pin(stream::try_unfold(
        state,
        move |(mut body, left)| async move {
            let piece = match timeout(stall, body.next()).await {
                Ok(piece) => piece,
                Err(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "S3 sends no more of an object",
                    ));
                }
            };
            let Some(piece) = piece.transpose().map_err(io::Error::other)? else {
                return if left == 0 {
                    Ok(None)
                } else {
                    Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "an object ends before its time",
                    ))
                };
            };
            let Some(left) = left.checked_sub(piece.len() as u64) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "an object is longer than was told",
                ));
            };
            Ok(Some((piece, (body, left))))
        },
    )))
}
