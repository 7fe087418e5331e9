//! What is written down: one line a request, one an event, and failures once.
//!
//! Lines go to standard error, so that what a command prints stays apart. None holds a record's
//! id, a token, a key, a path as it was asked for, or anything of a body.

use std::io::{self, IsTerminal as _};

use argala_core::ports::{Event, EventSink};
use tracing::{Level, Subscriber, event};
use tracing_subscriber::{
    EnvFilter, Layer, filter,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry::LookupSpan,
};

use crate::config::{Log, LogFormat};

/// The target of events' lines, for `log.level`.
const EVENTS: &str = "argala::event";

/// What is worth a line.
///
/// # Errors
/// Where `level` is neither a level nor a list of them by module.
pub fn filter(level: &str) -> Result<EnvFilter, filter::ParseError> {
    EnvFilter::builder().parse(level)
}

/// The log as `log` asks for it.
fn layer<S, W>(log: &Log, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let base = fmt::layer().with_writer(writer);
    match log.format {
        LogFormat::Json => base
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .boxed(),
        LogFormat::Text => base.compact().with_ansi(io::stderr().is_terminal()).boxed(),
    }
}

/// What writes the log to `writer`: all of [`start`] but for its place, so that a test can read what
/// the relay would write.
///
/// # Errors
/// Where the level cannot be read.
pub fn subscriber<W>(
    log: &Log,
    writer: W,
) -> Result<impl Subscriber + Send + Sync, filter::ParseError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    Ok(tracing_subscriber::registry()
        .with(filter(&log.level)?)
        .with(layer(log, writer)))
}

/// Begins to log, for the whole process.
///
/// # Errors
/// Where the level cannot be read, or something logs already.
pub fn start(log: &Log) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tracing::subscriber::set_global_default(subscriber(log, io::stderr)?)?;
    Ok(())
}

/// Writes each event as one line.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventLog;

/// One line for an event; each member by the name that the protocol gives it.
macro_rules! line {
    ($name:expr $(, $member:literal = $value:expr)* $(,)?) => {
        event!(target: EVENTS, Level::INFO, "type" = $name $(, $member = $value)*)
    };
}

impl EventSink for EventLog {
    fn emit(&self, event: &Event) {
        let name = event.name();
        match event {
            Event::DeviceRegister {
                member_id,
                device_id,
                fresh,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "deviceId" = device_id.as_str(),
                "fresh" = fresh,
            ),
            Event::DeviceRevoke {
                member_id,
                device_id,
                graphs_flagged,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "deviceId" = device_id.as_str(),
                "graphsFlagged" = graphs_flagged,
            ),
            Event::GraphPush {
                member_id,
                storage_key,
                accepted,
                rejected,
                bytes,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "storageKey" = storage_key.as_str(),
                "accepted" = accepted,
                "rejected" = rejected,
                "bytes" = bytes,
            ),
            Event::GraphPull {
                member_id,
                storage_key,
                returned,
                filtered,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "storageKey" = storage_key.as_str(),
                "returned" = returned,
                "filtered" = filtered,
            ),
            Event::GraphRotate {
                member_id,
                storage_key,
                epoch,
                devices,
            }
            | Event::GraphGrant {
                member_id,
                storage_key,
                epoch,
                devices,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "storageKey" = storage_key.as_str(),
                "epoch" = epoch,
                "devices" = devices,
            ),
            Event::BlobPut {
                member_id,
                storage_key,
                size,
                policy,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "storageKey" = storage_key.as_str(),
                "size" = size,
                "policy" = policy.as_str(),
            ),
            Event::BlobForget {
                storage_key,
                reason,
            } => line!(
                name,
                "storageKey" = storage_key.as_str(),
                "reason" = reason.as_str(),
            ),
            Event::QuotaExceeded {
                member_id,
                storage_key,
                what,
            } => line!(
                name,
                "memberId" = member_id.as_str(),
                "storageKey" = storage_key.as_str(),
                "what" = what.as_str(),
            ),
            Event::RateLimitHit { member_id, bucket } => line!(
                name,
                "memberId" = member_id.as_str(),
                "bucket" = bucket.as_str(),
            ),
            Event::AuthRejected { reason } => line!(name, "reason" = reason),
        }
    }
}
